"""What nobody chose may fail: the keys and the agent that everybody has. And a shell that dies is no answer."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.host import ssh
from bramley.host.artifacts import Depot
from bramley.host.commands import Run
from bramley.host.ssh import Credentials
from tests.process.host_ssh import openssh
from tests.process.host_ssh.test_logging_in import logged_in


async def test_a_locked_key_and_a_lost_agent_are_passed_over_if_nobody_chose_them(
    tmp_path: Path,
) -> None:
    async with openssh.serving(tmp_path) as server:
        locked = Secret(
            openssh.new_key().export_private_key("pkcs8-pem", passphrase="opens").decode()
        )
        keys, nobody = (locked, openssh.private(server.key)), f"{tmp_path}/none"
        some = Credentials(private_keys=keys, agent=nobody, are_chosen=False)
        await logged_in(server.target(credentials=some))

        alone = Credentials(private_keys=(locked,), are_chosen=False)
        with pytest.raises(errors.BadConfiguration, match="locked by a passphrase"):
            await logged_in(server.target(credentials=alone))


async def test_a_shell_that_is_ended_by_a_signal_counts_as_a_lost_line(tmp_path: Path) -> None:
    within = timedelta(seconds=openssh.PATIENCE)
    ended = Run(argv=("sh", "-c", "kill -KILL $PPID"), purpose="restart", within=within)
    async with (
        openssh.serving(tmp_path) as server,
        ssh.open(server.target(), clock=SystemClock(), artifacts=Depot()) as mac,
    ):
        with pytest.raises(errors.HostUnreachable, match="ended before the answer"):
            await mac.do(ended)
