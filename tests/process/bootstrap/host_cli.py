"""Calls of `bramley host` in a process, against a bare simulated Mac behind SSH."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bramley.sim.macos.fresh_install import Settings
from bramley.sim.ssh import tart_bundle
from bramley.sim.ssh.server import SimulatedHost
from tests.process.bootstrap.shared_loop import TIMEOUT
from tests.process.serving.processes import BRAMLEY, clean_environment
from tests.unit.host.steps import fixtures

PASSWORD = Settings().password
CONFIG = f"""\
node: mac-1
builder: false
kubeconfigFile: kubeconfig
artifacts:
  tart: {{file: tart.tar.gz, version: {tart_bundle.VERSION}}}
"""


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Return the JSON document that it printed."""
        return json.loads(self.out)


@dataclass(frozen=True)
class HostCli:
    """`bramley host` for one Mac, with its password and its configuration file."""

    served: SimulatedHost
    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "mac-1.yaml"

    @property
    def target(self) -> str:
        return f"m1@127.0.0.1:{self.served.port}"

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    async def start(self, command: str, *words: str, password: str) -> asyncio.subprocess.Process:
        known = str(self.folder / "known_hosts")
        options = [self.target, "--known-hosts", known]
        options += ["--password-file", str(self.file(f"password-{len(password)}", password))]
        return await asyncio.create_subprocess_exec(
            BRAMLEY,
            "host",
            command,
            *options,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Without the keys of the user who runs the tests.
            env=clean_environment(HOME=str(self.folder), SSH_AUTH_SOCK=""),
        )

    async def host(self, command: str, *words: str, password: str = PASSWORD) -> Result:
        """Run `bramley host` to its end."""
        process = await self.start(command, *words, password=password)
        async with asyncio.timeout(TIMEOUT):
            out, err = await process.communicate()
        return Result(process.returncode or 0, out.decode(), err.decode())

    async def with_config(self, command: str, *words: str) -> Result:
        """Run it with the configuration file."""
        return await self.host(command, "-c", str(self.config), *words)


@asynccontextmanager
async def host_cli(folder: Path) -> AsyncIterator[HostCli]:
    """Start a bare Mac."""
    (folder / "tart.tar.gz").write_bytes(tart_bundle.archive())
    (folder / "mac-1.yaml").write_text(CONFIG)
    (folder / "kubeconfig").write_text(fixtures.agent_kubeconfig(node="mac-1").reveal())
    settings = Settings(boot_seconds=1.0, login_seconds=0.5)
    async with SimulatedHost(folder / "mac", settings=settings) as served:
        yield HostCli(served, folder)
