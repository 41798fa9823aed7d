"""Default credentials, which are skipped if unusable; and a remote shell that is killed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.host import ssh
from bramley.host.artifacts import ArtifactStore
from bramley.host.commands import Run
from bramley.host.ssh import Credentials
from tests.process.host_ssh import openssh
from tests.process.host_ssh.test_login import log_in


async def test_unusable_default_key_and_agent_are_skipped(tmp_path: Path) -> None:
    async with openssh.serving(tmp_path) as server:
        encrypted = Secret(
            openssh.new_key().export_private_key("pkcs8-pem", passphrase="opens").decode()
        )
        keys, missing = (encrypted, openssh.private(server.key)), f"{tmp_path}/none"
        some = Credentials(private_keys=keys, agent=missing, are_explicit=False)
        await log_in(server.target(credentials=some))

        alone = Credentials(private_keys=(encrypted,), are_explicit=False)
        with pytest.raises(errors.BadConfiguration, match="encrypted with a passphrase"):
            await log_in(server.target(credentials=alone))


async def test_shell_killed_by_a_signal_counts_as_a_lost_connection(tmp_path: Path) -> None:
    timeout = timedelta(seconds=openssh.TIMEOUT)
    killed = Run(argv=("sh", "-c", "kill -KILL $PPID"), purpose="reboot", timeout=timeout)
    async with (
        openssh.serving(tmp_path) as server,
        ssh.open(server.target(), clock=SystemClock(), artifacts=ArtifactStore()) as mac,
    ):
        with pytest.raises(errors.HostUnreachable, match="ended before the answer"):
            await mac.execute(killed)
