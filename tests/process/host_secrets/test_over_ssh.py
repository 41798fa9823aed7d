"""A bootstrap by hand over real SSH with a canary as every secret, cut and refused on its way: who else could have seen one?

Everything that can be read by others is looked at: both sides' process tables while it runs, every command that came to the Mac,
files that others may read, logs, screens and errors.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest
import yaml

from bramley.api.names import host as names
from bramley.app import hosts
from bramley.app.hosts import ApplyOptions
from bramley.app.ssh_options import SshOptions
from bramley.base.errors import BramleyError, CommandFailed, UnsupportedHost
from bramley.base.secret import Secret
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.ssh.faults import Do, Fault
from bramley.sim.ssh.server import SimulatedHost
from tests.process.host_secrets import process_table
from tests.process.host_secrets.process_table import Seen
from tests.scenarios.host_secrets.canaries import Canaries
from tests.scenarios.host_secrets.macs import Heard, leaks_of, listening
from tests.unit.host.steps import wanted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap and /proc are Linux's")
# Of a busy machine: it is only waited for in full when something is wrong.
WITHIN = 300.0
# What carries no secret is left out, since each step costs round trips.
STEPS = ("sudo", "auto-login", "tailscale", "kubeconfig")


@dataclass(frozen=True)
class Stage:
    """A bare Mac behind SSH, and the folder of somebody who makes it a Node by hand."""

    mac: SimulatedHost
    desk: Path
    canaries: Canaries

    @property
    def ssh_options(self) -> SshOptions:
        return SshOptions(
            target=f"m1@127.0.0.1:{self.mac.port}",
            user="m1",
            known_hosts=self.desk / "known_hosts",
            identities=(self.desk / "key",),
            password=self.canaries.password,
        )

    @property
    def options(self) -> ApplyOptions:
        return ApplyOptions(config=self.desk / "mac.yaml", only=STEPS)

    async def bramley(self, command: str, *more: str) -> tuple[int, str]:
        """Run `bramley host` as people do; returns its exit code and all that it printed."""
        only = [word for step in STEPS for word in ("--only", step)]
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "bramley"), "host", command, self.ssh_options.target, *only, *more,
            "-c", str(self.options.config), "-i", str(self.desk / "key"), "--password-file", str(self.desk / "password"),
            "--known-hosts", str(self.ssh_options.known_hosts),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        async with asyncio.timeout(WITHIN):
            said, _ = await process.communicate()
        return process.returncode or 0, said.decode()

    async def fails(
        self, heard: Heard, expected: type[BramleyError], step: str, password: Secret
    ) -> None:
        """Try a step in this process, where an error can be looked into."""
        ssh_options = dataclasses.replace(self.ssh_options, password=password)
        options = dataclasses.replace(self.options, only=(step,))
        with pytest.raises(expected) as caught:
            await hosts.apply(ssh_options, options, heard.progress)
        heard.error(caught.value)

    def let_out(self, heard: Heard, seen: Seen, *printed: str) -> list[str]:
        """Return the canaries that somebody else could have got."""
        told = [*heard.everything(), *printed, *self.mac.heard]
        found = self.canaries.seen_in(*told, *seen.command_lines, *seen.environments)
        return found + [
            leak for root in (self.mac.root, self.desk) for leak in leaks_of(root, self.canaries)
        ]


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    text = key.export_private_key("openssh").decode()
    canaries = Canaries(private_key=Secret(text.splitlines()[2]))
    desk = folder / "desk"
    desk.mkdir()
    wanted.tailscale(desk, "1.96.5")
    private = {
        "key": text,
        "password": canaries.password.reveal(),
        "auth-key": canaries.auth_key.reveal(),
        "kubeconfig": wanted.identity(signature=canaries.token.reveal()).reveal(),
    }
    for name, content in private.items():
        (desk / name).touch(mode=0o600)
        (desk / name).write_text(content)
    (desk / "mac.yaml").write_text(yaml.safe_dump(CONFIG))
    settings = Settings(
        password=canaries.password.reveal(),
        authorized_keys=(key.export_public_key().decode().strip(),),
        login_seconds=0.0,
    )
    async with SimulatedHost(folder / "mac", settings=settings) as mac:
        yield Stage(mac, desk, canaries)


# The command that writes the password of automatic login.
KEPT = f"*{names.KCPASSWORD} root:wheel 0600*"
CONFIG = {
    "node": wanted.NODE,
    "kubeconfigFile": "kubeconfig",
    "tailnet": {"authKeyFile": "auth-key", "tags": ["tag:macs"]},
    "artifacts": {"tailscale": {"file": "tailscale-1.96.5", "version": "1.96.5"}},
}


async def test_a_bootstrap_by_hand_that_is_cut_and_refused_shows_nobody_a_secret(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage:
        with process_table.watching() as seen, listening() as heard:
            planned = await stage.bramley("plan", "-o", "json")
            stage.mac.faults.put(Fault(do=Do.CUT_AFTER, match=KEPT, times=1))
            cut = await stage.bramley("apply")
            assert stage.let_out(heard, seen, planned[1], cut[1]) == []

            await stage.fails(heard, UnsupportedHost, "auto-login", stage.canaries.wrong_password)
            stage.mac.faults.put(Fault(do=Do.DISK_FULL, match=f"*{names.AGENT_KUBECONFIG}*"))
            await stage.fails(heard, CommandFailed, "kubeconfig", stage.canaries.password)
            stage.mac.faults.clear()
            done = await stage.bramley("apply")

        assert (planned[0], cut[0], done[0]) == (0, 1, 0), (planned, cut, done)
        assert (
            "step auto-login: keep the password of automatic login: the connection was lost"
            in cut[1]
        )
        assert stage.let_out(heard, seen, planned[1], cut[1], done[1]) == []
        assert len(seen.command_lines) > 20
        kept = [
            stage.mac.mac.files.read(path) for path in (names.KCPASSWORD, names.AGENT_KUBECONFIG)
        ]
        assert all(stage.canaries.seen_in(each or b"") for each in kept), "nothing was brought"
