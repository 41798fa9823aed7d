"""A real API server process that is killed and restarted with the same folder and port."""

from __future__ import annotations

import asyncio
import base64
import ssl
import sys
import time
from asyncio.subprocess import Process
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.process.durability.raw_http import Access, Connection, Lost, Unsent

BRAMLEY = Path(sys.executable).parent / "bramley"
READY_WITHIN = 180.0


@dataclass
class KillableServer:
    """One data folder, and the process that currently serves it."""

    folder: Path
    port: int
    access: Access = field(init=False)
    process: Process | None = None
    is_known: bool = False

    async def start(self) -> None:
        """Start the server and wait until it answers."""
        kubeconfig = self.folder / "kubeconfig"
        with (self.folder / "log").open("ab") as out:
            self.process = await asyncio.create_subprocess_exec(
                BRAMLEY,
                "apiserver",
                *("--data-dir", str(self.folder / "data")),
                *("--listen", f"127.0.0.1:{self.port}"),
                *("--kubeconfig-out", str(kubeconfig)),
                stdout=out,
                stderr=out,
            )
        deadline = time.monotonic() + READY_WITHIN
        while not await self._is_ready(kubeconfig):
            assert self.process.returncode is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the server did not become ready"
            await asyncio.sleep(0.01)
        self.access.is_up.set()

    async def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self.process and self.process.returncode is None:
            if self.is_known:
                self.access.is_up.clear()
            self.process.kill()
            await self.process.wait()

    async def _is_ready(self, kubeconfig: Path) -> bool:
        if not self.is_known and not self._read_access(kubeconfig):
            return False
        try:
            with Connection(self.access) as connection:
                status, _ = await connection.call("GET", "/api")
        except (Unsent, Lost):
            return False
        return status == 200

    def _read_access(self, kubeconfig: Path) -> bool:
        """Read token and authority from the kubeconfig; return whether it exists."""
        if not kubeconfig.exists():
            return False
        document = yaml.safe_load(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.access = Access(
            self.port,
            document["users"][0]["user"]["token"],
            ssl.create_default_context(cadata=authority),
        )
        self.is_known = True
        return True
