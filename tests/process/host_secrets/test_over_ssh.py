"""A bootstrap by hand over real SSH with a canary as every secret, interrupted and refused on the way: no other user can read one.

Everything that others may read is searched: the process tables of both sides while it runs, every command line that the Mac
received, world-readable files, logs, output and errors.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
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
from bramley.sim.macos.call import Call
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.ssh.faults import Fault, FaultKind
from bramley.sim.ssh.server import SimulatedHost
from tests.process.host_secrets import process_table
from tests.process.host_secrets.process_table import ProcessTable
from tests.scenarios.host_secrets.canaries import Canaries
from tests.scenarios.host_secrets.macs import Output, captured_output, leaks_of
from tests.unit.host.steps import fixtures

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap and /proc are Linux's")
# For a busy machine; it passes only when the test fails.
TIMEOUT = 300.0
# Only the steps with secrets, because each step costs round trips.
STEPS = (
    *("sudo", "auto-login", "tailscale", "kubeconfig", "registry-credentials"),
    "actions-runner",
)


@dataclass(frozen=True)
class Setup:
    """A bare Mac behind SSH, and the folder with its configuration and credentials."""

    mac: SimulatedHost
    folder: Path
    canaries: Canaries

    @property
    def ssh_options(self) -> SshOptions:
        return SshOptions(
            target=f"m1@127.0.0.1:{self.mac.port}",
            user="m1",
            known_hosts=self.folder / "known_hosts",
            identities=(self.folder / "key",),
            password=self.canaries.password,
        )

    @property
    def options(self) -> ApplyOptions:
        return ApplyOptions(config=self.folder / "mac.yaml", only=STEPS)

    async def bramley(self, command: str, *more: str) -> tuple[int, str]:
        """Run `bramley host` in a process, and return its exit code and output."""
        only = [word for step in STEPS for word in ("--only", step)]
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "bramley"), "host", command, self.ssh_options.target, *only, *more,
            "-c", str(self.options.config), "-i", str(self.folder / "key"), "--password-file", str(self.folder / "password"),
            "--known-hosts", str(self.ssh_options.known_hosts),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        async with asyncio.timeout(TIMEOUT):
            printed, _ = await process.communicate()
        return process.returncode or 0, printed.decode()

    async def expect_failure(
        self, output: Output, expected: type[BramleyError], step: str, password: Secret
    ) -> None:
        """Apply a step in this process, so that the error can be searched."""
        ssh_options = dataclasses.replace(self.ssh_options, password=password)
        options = dataclasses.replace(self.options, only=(step,))
        with pytest.raises(expected) as caught:
            await hosts.apply(ssh_options, options, output.progress)
        output.error(caught.value)

    def leaks(self, output: Output, table: ProcessTable, *printed: str) -> list[str]:
        """Return the canaries that another user could have read."""
        texts = [*output.texts(), *printed, *self.mac.commands]
        # config.sh takes its token from nowhere else; on a Mac only the user of the process and root can read its environment.
        environments = [
            process_table.without_variable(each, names.ACTIONS_RUNNER_TOKEN_VARIABLE)
            for each in table.environments
        ]
        found = self.canaries.seen_in(*texts, *table.command_lines, *environments)
        return found + [
            leak for root in (self.mac.root, self.folder) for leak in leaks_of(root, self.canaries)
        ]


@asynccontextmanager
async def prepared(root: Path) -> AsyncIterator[Setup]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    text = key.export_private_key("openssh").decode()
    canaries = Canaries(private_key=Secret(text.splitlines()[2]))
    folder = root / "config"
    folder.mkdir()
    fixtures.tailscale(folder, "1.96.5")
    runner = fixtures.actions_runner(folder)
    private = {
        "key": text,
        "password": canaries.password.reveal(),
        "auth-key": canaries.auth_key.reveal(),
        "runner-token": canaries.runner_token.reveal(),
        "logins.json": canaries.registry_credentials.reveal(),
        "kubeconfig": fixtures.agent_kubeconfig(signature=canaries.token.reveal()).reveal(),
    }
    for name, content in private.items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(content)
    archive = {"file": runner.path.name, "version": runner.version, "sha256": runner.sha256}
    table = {"org": "tuist", "archive": archive, "tokenFile": "runner-token"}
    (folder / "mac.yaml").write_text(yaml.safe_dump({**CONFIG, "ghActionsRunner": table}))
    settings = Settings(
        password=canaries.password.reveal(),
        authorized_keys=(key.export_public_key().decode().strip(),),
        login_seconds=0.0,
    )
    async with SimulatedHost(root / "mac", settings=settings) as mac:
        yield Setup(mac, folder, canaries)


# The command that writes the password of automatic login.
PASSWORD_WRITE = f"*{names.KCPASSWORD} root:wheel 0600*"
CONFIG = {
    "node": fixtures.NODE,
    "kubeconfigFile": "kubeconfig",
    "registryCredentialsFile": "logins.json",
    "tailnet": {"authKeyFile": "auth-key", "tags": ["tag:macs"]},
    "artifacts": {"tailscale": {"file": "tailscale-1.96.5", "version": "1.96.5"}},
}


async def test_interrupted_and_refused_bootstrap_leaks_no_secret(tmp_path: Path) -> None:
    async with prepared(tmp_path) as setup:
        with process_table.recorded() as table, captured_output() as output:
            planned = await setup.bramley("plan", "-o", "json")
            setup.mac.faults.set(Fault(do=FaultKind.CUT_AFTER, match=PASSWORD_WRITE, times=1))
            interrupted = await setup.bramley("apply")
            assert setup.leaks(output, table, planned[1], interrupted[1]) == []
            # The next command of the batch may have begun before the Mac noticed the lost connection.
            disable = ("defaults", "delete", names.LOGINWINDOW_DEFAULTS, "autoLoginUser")
            setup.mac.mac.run(Call(disable, "root"))

            await setup.expect_failure(
                output, UnsupportedHost, "auto-login", setup.canaries.wrong_password
            )
            setup.mac.faults.set(Fault(do=FaultKind.DISK_FULL, match=f"*{names.AGENT_KUBECONFIG}*"))
            await setup.expect_failure(output, CommandFailed, "kubeconfig", setup.canaries.password)
            setup.mac.faults.set()
            done = await setup.bramley("apply")

        assert (planned[0], interrupted[0], done[0]) == (0, 1, 0), (planned, interrupted, done)
        assert (
            "step auto-login: write the password of automatic login: the connection was lost"
            in interrupted[1]
        )
        assert setup.leaks(output, table, planned[1], interrupted[1], done[1]) == []
        assert len(table.command_lines) > 20
        paths = (names.KCPASSWORD, names.AGENT_KUBECONFIG, names.REGISTRY_CREDENTIALS)
        stored = [setup.mac.mac.files.read(path) for path in paths]
        assert all(setup.canaries.seen_in(each or b"") for each in stored), "no secret was sent"
        digest = hashlib.sha256(setup.canaries.runner_token.reveal().encode()).hexdigest()
        assert setup.mac.mac.state["actions_runner"]["token_sha256"] == digest
