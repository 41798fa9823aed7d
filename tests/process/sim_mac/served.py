"""A served Mac and a bare SSH client that talks to it; nothing of ours is on the client's side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh

from bramley.sim.macos.fresh_install import Settings
from bramley.sim.ssh.server import SimulatedHost

PASSWORD = "an orange, 'quoted' one"
# Of a busy machine: it is only waited for in full when something is wrong.
PATIENCE_SECONDS = 180.0
NOPASSWD = "umask 077; sudo -S -p '' sh -c 'cat > /etc/sudoers.d/m1-nopasswd'"
PROCESSES = "ps -A -o args="
SETTINGS = Settings(password=PASSWORD, boot_seconds=0.3, login_seconds=0.0)


class Client:
    """A connection that is made again when it is gone."""

    def __init__(self, host: SimulatedHost, password: str = PASSWORD) -> None:
        self._host = host
        self._password = password
        self._line: asyncssh.SSHClientConnection | None = None

    async def line(self) -> asyncssh.SSHClientConnection:
        if self._line is None or self._line.is_closed():
            self._line = await asyncssh.connect(
                "127.0.0.1",
                self._host.port,
                username="m1",
                password=self._password,
                known_hosts=None,
                client_keys=None,
                agent_path=None,
                config=None,
            )
        return self._line

    async def run(self, text: str, given: bytes = b"") -> asyncssh.SSHCompletedProcess:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await (await self.line()).run(text, input=given, encoding=None)

    async def says(self, text: str, given: bytes = b"") -> str:
        """Return what a command that goes well prints."""
        done = await self.run(text, given)
        assert done.exit_status == 0, (text, done.exit_status, done.stderr)
        return _text(done.stdout)

    async def fails(self, text: str, given: bytes = b"") -> str:
        """Return what a command that goes wrong complains about."""
        done = await self.run(text, given)
        assert done.exit_status, text
        return _text(done.stderr)

    async def close(self) -> None:
        if self._line is not None:
            self._line.close()
            await self._line.wait_closed()


@asynccontextmanager
async def served(
    root: Path, *, may_sudo: bool = False
) -> AsyncIterator[tuple[SimulatedHost, Client]]:
    async with SimulatedHost(root, settings=SETTINGS) as host:
        client = Client(host)
        try:
            if may_sudo:
                grant = f"{PASSWORD}\nm1 ALL=(ALL) NOPASSWD: ALL\n".encode()
                await client.says(NOPASSWD, grant)
            yield host, client
        finally:
            await client.close()


async def shown(mac: Client, text: str) -> None:
    """Wait until a process of the Mac has this in its command line."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while text not in await mac.says(PROCESSES):
            await asyncio.sleep(0.05)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not true():
            await asyncio.sleep(0.05)


def _text(said: object) -> str:
    assert isinstance(said, bytes)
    return said.decode()
