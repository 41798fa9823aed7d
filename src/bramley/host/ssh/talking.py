"""One command line on a Mac: it is started, heard and spoken to until it ends, or until nobody waits for it any more.

What is heard is bounded: the beginning of the output, for answers, and the end of what went wrong, for people. Hanging up ends
the command on the other side, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from bramley.base.errors import HostUnreachable
from bramley.host.ssh.dialling import Line

if TYPE_CHECKING:
    import asyncssh

_BLOCK = 32 * 1024
_TAIL = 16 * 1024
_HUNG_UP_WITHIN = 5.0


class Heard:
    """What came on one output: its beginning, its end, and who waits for a text in it."""

    def __init__(self, most: int) -> None:
        self.beginning = bytearray()
        self.tail = bytearray()
        self._most = most
        self._news = asyncio.Event()

    def add(self, block: bytes) -> None:
        """Take what came."""
        self.beginning += block[: self._most - len(self.beginning)]
        self.tail = (self.tail + block)[-_TAIL:]
        self._news.set()
        self._news = asyncio.Event()

    async def until(self, text: str, *, times: int = 1) -> None:
        """Wait until a text has come so many times in the beginning."""
        while self.beginning.count(text.encode()) < times:
            await self._news.wait()


class Talk:
    """A command that runs on a Mac."""

    def __init__(self, line: Line, process: asyncssh.SSHClientProcess[bytes], most: int) -> None:
        self.output = Heard(most)
        self.errors = Heard(_TAIL)
        # Set by whoever answers sudo.
        self.is_password_wrong = False
        self._line = line
        self._process = process

    async def send(self, block: bytes) -> None:
        """Write to the command's input, and wait while more would only pile up."""
        await self._line.wire.room()
        # Who ended before everything was sent tells why by its exit code.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(block)
            await self._process.stdin.drain()

    def send_end(self) -> None:
        """Say that nothing more will come."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write_eof()

    async def finish(self, say: Callable[[Talk], Awaitable[None]]) -> int:
        """Speak as `say` does while listening, and return the exit code."""
        try:
            await self._listen_and(say)
        except ExceptionGroup as group:
            raise _first(group) from None
        await self._process.wait_closed()
        code = self._process.returncode
        # The shell itself was ended by a signal, as a Mac that goes down does it: how far it came nobody knows.
        if code is None or code < 0:
            raise ConnectionResetError("it ended before the answer")
        return code

    async def _listen_and(self, say: Callable[[Talk], Awaitable[None]]) -> None:
        async with asyncio.TaskGroup() as group:
            listening = [
                group.create_task(_listen(self._process.stdout, self.output)),
                group.create_task(_listen(self._process.stderr, self.errors)),
            ]
            saying = group.create_task(_say(say, self))
            await asyncio.wait(listening)
            saying.cancel()

    async def hang_up(self) -> None:
        """Leave the command; it notices, and ends."""
        self._process.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HUNG_UP_WITHIN):
                await self._process.wait_closed()


@contextlib.asynccontextmanager
async def talk(
    line: Line, command: str, *, told: str, most: int, on_terminal: bool
) -> AsyncIterator[Talk]:
    """Start a command line; it is left in the end, whatever happens. HostUnreachable if the line breaks."""
    import asyncssh

    try:
        process: asyncssh.SSHClientProcess[bytes] = await line.ssh.create_process(
            command, encoding=None, **_terminal(on_terminal=on_terminal)
        )
        # A block that the other side has no window for waits alone: a hundred hosts that wait hold one each.
        process.channel.set_write_buffer_limits(high=0)
        running = Talk(line, process, most)
        try:
            yield running
        finally:
            await running.hang_up()
    except (OSError, asyncssh.Error) as broken:
        reason = str(broken) or "it was closed"
        raise HostUnreachable(f"{told}: the connection was lost: {reason}") from None


def _terminal(*, on_terminal: bool) -> dict[str, Any]:
    import asyncssh

    if not on_terminal:
        return {"request_pty": False}
    # Without echo from the beginning: a program may be slower to turn it off than we are to type.
    modes = {asyncssh.PTY_ECHO: 0, asyncssh.PTY_ECHONL: 0, asyncssh.PTY_OPOST: 0}
    return {"request_pty": "force", "term_type": "dumb", "term_modes": modes}


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def _listen(reader: asyncssh.SSHReader[bytes], heard: Heard) -> None:
    while block := await reader.read(_BLOCK):
        heard.add(block)


async def _say(say: Callable[[Talk], Awaitable[None]], talk: Talk) -> None:
    await say(talk)
