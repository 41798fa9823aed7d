"""`bramley host` as people call it: real command lines against a bare simulated Mac behind SSH."""

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
from tests.process.bootstrap.kept import PATIENCE
from tests.process.serving.processes import BRAMLEY, clean_environment
from tests.unit.host.steps import wanted

PASSWORD = Settings().password
CONFIG = f"""\
node: mac-1
builder: false
kubeconfigFile: kubeconfig
artifacts:
  tart: {{file: tart.tar.gz, version: {tart_bundle.VERSION}}}
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> Any:
        """Return what it printed as JSON."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Desk:
    """Somebody with a Mac, its password, and a file that says what it is to become."""

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
        way = [self.target, "--known-hosts", known]
        way += ["--password-file", str(self.file(f"password-{len(password)}", password))]
        return await asyncio.create_subprocess_exec(
            BRAMLEY,
            "host",
            command,
            *way,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # No keys of whoever runs the tests.
            env=clean_environment(HOME=str(self.folder), SSH_AUTH_SOCK=""),
        )

    async def host(self, command: str, *words: str, password: str = PASSWORD) -> Ended:
        """Call `bramley host` and wait for its end."""
        process = await self.start(command, *words, password=password)
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
        return Ended(process.returncode or 0, out.decode(), err.decode())

    async def wanted(self, command: str, *words: str) -> Ended:
        """Call it with the file."""
        return await self.host(command, "-c", str(self.config), *words)


@asynccontextmanager
async def desk(folder: Path) -> AsyncIterator[Desk]:
    """Switch a bare Mac on."""
    (folder / "tart.tar.gz").write_bytes(tart_bundle.archive())
    (folder / "mac-1.yaml").write_text(CONFIG)
    (folder / "kubeconfig").write_text(wanted.identity(node="mac-1").reveal())
    settings = Settings(boot_seconds=1.0, login_seconds=0.5)
    async with SimulatedHost(folder / "mac", settings=settings) as served:
        yield Desk(served, folder)
