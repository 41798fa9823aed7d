"""One command line on a Mac: started, fed with input and read until it ends.

Kept output is bounded: its beginning, for answers, and the end of the error output, for people. Closing the channel ends the command
on the Mac, too. This module imports the SSH library, so it is imported after the first connection only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncssh

from bramley.base.errors import HostUnreachable
from bramley.host.ssh.connect import ClientConnection

_BLOCK = 32 * 1024
_TAIL = 16 * 1024
_CLOSE_TIMEOUT = 5.0


class OutputBuffer:
    """The beginning and the end of one output."""

    def __init__(self, max_bytes: int) -> None:
        self.beginning = bytearray()
        self.tail = bytearray()
        self._max_bytes = max_bytes
        self._changed = asyncio.Event()

    def add(self, block: bytes) -> None:
        """Add output, and wake those who wait for a text."""
        self.beginning += block[: self._max_bytes - len(self.beginning)]
        self.tail = (self.tail + block)[-_TAIL:]
        # A new event for each block: waiters of the old one check the text, and then wait for the next block.
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for(self, text: str, *, times: int = 1) -> None:
        """Wait until the beginning contains a text this many times."""
        while self.beginning.count(text.encode()) < times:
            await self._changed.wait()


class RemoteProcess:
    """A command that runs on a Mac."""

    def __init__(
        self,
        connection: ClientConnection,
        process: asyncssh.SSHClientProcess[bytes],
        max_bytes: int,
    ) -> None:
        self.output = OutputBuffer(max_bytes)
        self.errors = OutputBuffer(_TAIL)
        # Set when sudo has rejected the password.
        self.is_password_wrong = False
        self._connection = connection
        self._process = process

    async def send(self, block: bytes) -> None:
        """Write to the command's input, and wait while the connection accepts no more."""
        await self._connection.tunnel.drain()
        # A command that ended early reports the reason by its exit code.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(block)
            await self._process.stdin.drain()

    def send_eof(self) -> None:
        """End the command's input."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write_eof()

    async def communicate(self, interact: Callable[[RemoteProcess], Awaitable[None]]) -> int:
        """Run `interact` while the output is read, and return the exit code."""
        try:
            await self._communicate(interact)
        except ExceptionGroup as group:
            task = asyncio.current_task()
            # A TaskGroup drops a cancellation that arrives together with an error of a child; a lost line must not hide it.
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from group
            raise _first(group) from None
        await self._process.wait_closed()
        code = self._process.returncode
        # The shell was killed by a signal, as during a shutdown: it is unknown how far it came.
        if code is None or code < 0:
            raise ConnectionResetError("it ended before the answer")
        return code

    async def _communicate(self, interact: Callable[[RemoteProcess], Awaitable[None]]) -> None:
        async def write() -> None:
            await interact(self)

        async with asyncio.TaskGroup() as group:
            readers = [
                group.create_task(_read(self._process.stdout, self.output)),
                group.create_task(_read(self._process.stderr, self.errors)),
            ]
            writer = group.create_task(write())
            # The outputs end with the command; a writer may wait for a prompt that never comes.
            await asyncio.wait(readers)
            writer.cancel()

    async def close(self) -> None:
        """Close the channel; the command on the Mac then ends."""
        self._process.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._process.wait_closed()


@contextlib.asynccontextmanager
async def start(
    connection: ClientConnection, line: str, *, context: object, max_bytes: int, on_terminal: bool
) -> AsyncIterator[RemoteProcess]:
    """Start a command line and close its channel at the end; HostUnreachable if the connection is lost."""
    try:
        process: asyncssh.SSHClientProcess[bytes] = await connection.ssh.create_process(
            line, encoding=None, **_terminal(on_terminal=on_terminal)
        )
        # At most one block waits for the peer's window: a hundred waiting hosts hold one block each.
        process.channel.set_write_buffer_limits(high=0)
        running = RemoteProcess(connection, process, max_bytes)
        try:
            yield running
        finally:
            await running.close()
    except (OSError, asyncssh.Error) as error:
        reason = str(error) or "it was closed"
        raise HostUnreachable(f"{context}: the connection was lost: {reason}") from None


def _terminal(*, on_terminal: bool) -> dict[str, Any]:
    if not on_terminal:
        return {"request_pty": False}
    # Without echo from the start: the program may disable it only after the input has arrived.
    modes = {asyncssh.PTY_ECHO: 0, asyncssh.PTY_ECHONL: 0, asyncssh.PTY_OPOST: 0}
    return {"request_pty": "force", "term_type": "dumb", "term_modes": modes}


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def _read(reader: asyncssh.SSHReader[bytes], buffer: OutputBuffer) -> None:
    while block := await reader.read(_BLOCK):
        buffer.add(block)
