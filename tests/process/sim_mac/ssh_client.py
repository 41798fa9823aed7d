"""A served simulated Mac and a plain asyncssh client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh

from bramley.sim.macos.fresh_install import Settings
from bramley.sim.ssh.server import SimulatedHost

PASSWORD = "an orange, 'quoted' one"
# Generous, for a busy machine.
TIMEOUT_SECONDS = 180.0
NOPASSWD = "umask 077; sudo -S -p '' sh -c 'cat > /etc/sudoers.d/m1-nopasswd'"
PROCESSES = "ps -A -o args="
SETTINGS = Settings(password=PASSWORD, boot_seconds=0.3, login_seconds=0.0)


class Client:
    """An SSH client that reconnects after a lost connection."""

    def __init__(self, host: SimulatedHost, password: str = PASSWORD) -> None:
        self._host = host
        self._password = password
        self._connection: asyncssh.SSHClientConnection | None = None

    async def connection(self) -> asyncssh.SSHClientConnection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncssh.connect(
                "127.0.0.1",
                self._host.port,
                username="m1",
                password=self._password,
                known_hosts=None,
                client_keys=None,
                agent_path=None,
                config=None,
            )
        return self._connection

    async def run(self, text: str, given: bytes = b"") -> asyncssh.SSHCompletedProcess:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await (await self.connection()).run(text, input=given, encoding=None)

    async def output_of(self, text: str, given: bytes = b"") -> str:
        """Run a command that must succeed and return its output."""
        done = await self.run(text, given)
        assert done.exit_status == 0, (text, done.exit_status, done.stderr)
        return _text(done.stdout)

    async def error_of(self, text: str, given: bytes = b"") -> str:
        """Run a command that must fail and return its standard error."""
        done = await self.run(text, given)
        assert done.exit_status, text
        return _text(done.stderr)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            await self._connection.wait_closed()


@asynccontextmanager
async def served(
    root: Path, *, may_sudo: bool = False
) -> AsyncIterator[tuple[SimulatedHost, Client]]:
    async with SimulatedHost(root, settings=SETTINGS) as host:
        client = Client(host)
        try:
            if may_sudo:
                grant = f"{PASSWORD}\nm1 ALL=(ALL) NOPASSWD: ALL\n".encode()
                await client.output_of(NOPASSWD, grant)
            yield host, client
        finally:
            await client.close()


async def wait_for_process(mac: Client, text: str) -> None:
    """Wait until a process of the Mac has this in its command line."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while text not in await mac.output_of(PROCESSES):
            await asyncio.sleep(0.05)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():
            await asyncio.sleep(0.05)


def _text(output: object) -> str:
    assert isinstance(output, bytes)
    return output.decode()
