"""One command over SSH: run for real in the Mac's root, on pipes or on a terminal, with whatever goes wrong on the way.

When the line breaks, a command on pipes goes on, as with every sshd: it sees the end of its input and nobody reads what it
writes. One on a terminal is hung up.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import asyncssh

from bramley.sim.ssh.faults import Do, Fault, Faults
from bramley.sim.ssh.processes import Identity, Processes, Start

if TYPE_CHECKING:
    Channel = asyncssh.SSHServerProcess[bytes]

BLOCK = 64 * 1024
# Modes of the client that we follow: where each stands in a terminal's settings.
_LOCAL = 3
_MODES = (
    (asyncssh.PTY_ECHO, termios.ECHO),
    (asyncssh.PTY_ICANON, termios.ICANON),
    (asyncssh.PTY_ISIG, termios.ISIG),
)
SEARCH_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
_SHELL = "/bin/zsh"
_END_OF_INPUT = b"\x04"
_FULL, _TOO_LARGE = b"No space left on device", b"File too large"
_NOT_STARTED = 126
_ON_ITS_WAY = 0.05
_LINE_BROKEN = (ConnectionError, asyncssh.Error)


@dataclass(frozen=True, slots=True)
class Line:
    """How many bytes a second the line carries; None: as many as come."""

    bytes_per_second: int | None = None

    @property
    def block(self) -> int:
        """Return how much is taken at once: a slow line delivers evenly."""
        if self.bytes_per_second is None:
            return BLOCK
        return max(1, min(BLOCK, self.bytes_per_second // 10))

    async def carry(self, count: int) -> None:
        """Wait as long as these bytes are on the line."""
        if self.bytes_per_second is not None:
            await asyncio.sleep(count / self.bytes_per_second)


class File:
    """One end of a pipe, or of a terminal, that never makes anybody else wait."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._is_open = True
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        os.set_blocking(number, False)

    async def read(self, most: int) -> bytes:
        """Return what has come, nothing at the end."""
        while self._is_open:
            try:
                return os.read(self._number, most)
            except BlockingIOError:
                await self._until(self._loop.add_reader, self._loop.remove_reader)
            except OSError:
                return b""
        return b""

    async def write(self, block: bytes) -> bool:
        """Write all of it; false if nobody reads it any more."""
        left = memoryview(block)
        while left and self._is_open:
            try:
                left = left[os.write(self._number, left) :]
            except BlockingIOError:
                await self._until(self._loop.add_writer, self._loop.remove_writer)
            except OSError:
                return False
        return self._is_open

    def close(self) -> None:
        """Let go of it, also for one who waits on it; the other side sees the end."""
        if self._is_open:
            self._is_open = False
            self._woken.set()
            self._loop.remove_reader(self._number)
            self._loop.remove_writer(self._number)
            os.close(self._number)

    async def _until(
        self,
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], object],
    ) -> None:
        self._woken.clear()
        watch(self._number, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            if self._is_open:
                unwatch(self._number)


async def bring(file: File, put: Callable[[bytes], Awaitable[None]], line: Line) -> None:
    """Bring what a process writes to the other side, until its end; the file is closed then."""
    try:
        while block := await file.read(line.block):
            await line.carry(len(block))
            await put(block)
    finally:
        file.close()


@dataclass(frozen=True, slots=True)
class Login:
    """Whose session it is, where it begins and where it comes from."""

    who: Identity
    home: str
    peer: str

    def environment(self) -> dict[str, str]:
        """Return the whole environment of a session, as a Mac's sshd gives it."""
        name = self.who.name
        mine = {"HOME": self.home, "USER": name, "LOGNAME": name, "SHELL": _SHELL}
        return {**mine, "PATH": SEARCH_PATH, "SSH_CONNECTION": self.peer}


@dataclass(slots=True)
class Session:
    """One command from its request to its end."""

    channel: Channel
    login: Login
    processes: Processes
    faults: Faults
    _ended: asyncio.Future[int] = field(init=False)
    _line: Line = field(init=False, default_factory=Line)
    _cut_at: Fault | None = field(init=False, default=None)
    # How many bytes the line still carries back; None: all.
    _answer_left: int | None = field(init=False, default=None)
    _full_at: int | None = field(init=False, default=None)
    _pid: int = field(init=False, default=0)

    async def run(self) -> None:
        """Run the command, and answer unless a fault forbids it."""
        self._ended = asyncio.get_running_loop().create_future()
        text = self.channel.command or ""
        if self.faults.wrong:
            self._refuse(self.faults.wrong)
        elif self.faults.strike(Do.CUT_BEFORE, text):
            self._cut()
        elif self.faults.strike(Do.HANG, text):
            await self.channel.wait_closed()
        else:
            await self._run(text)

    async def _run(self, text: str) -> None:
        slow, full = self.faults.strike(Do.SLOW, text), self.faults.strike(Do.DISK_FULL, text)
        self._line = Line(max(1, slow.bytes) if slow else None)
        self._full_at = full.bytes if full else None
        self._cut_at = self.faults.strike(Do.CUT_AT, text)
        answer = self.faults.strike(Do.CUT_ANSWER, text)
        self._answer_left = answer.bytes if answer else None
        cut_after = self.faults.strike(Do.CUT_AFTER, text)
        try:
            code = await self._to_its_end(text)
        except OSError as error:
            self._refuse(f"the simulated Mac cannot run a shell: {error}")
            return
        if cut_after:
            self._cut()
        elif code is not None and self._answer_left != 0:
            self._answer(code)

    async def _to_its_end(self, text: str) -> int | None:
        """Run the command until it has ended and nobody holds its output any more; None if the line broke before."""
        on_terminal = self.channel.term_type is not None
        ours, theirs = open_for(self.channel) if on_terminal else _pipes()
        try:
            self._start(text, theirs, on_terminal=on_terminal)
        except OSError:
            _close(ours)
            raise
        finally:
            _close(theirs)
        return await self._carry([File(file) for file in ours], on_terminal=on_terminal)

    def _start(self, text: str, files: tuple[int, int, int], *, on_terminal: bool) -> None:
        start = Start(
            argv=[_SHELL, "-c", text] if text else [_SHELL],
            who=self.login.who,
            files=files,
            environment=self.login.environment(),
            folder=self.login.home,
            on_terminal=on_terminal,
            largest_file=self._full_at,
        )
        self._pid = self.processes.start(start, self._set_ended)

    def _set_ended(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    async def _carry(self, files: list[File], *, on_terminal: bool) -> int | None:
        """Carry bytes both ways until the end of the command, or of the line."""
        puts = [self._to(self.channel.stdout), self._to_error]
        async with asyncio.TaskGroup() as group:
            others = [
                group.create_task(self._feed(files[0], on_terminal=on_terminal)),
                group.create_task(self._let_go_with_line(files)),
            ]
            outputs = [
                group.create_task(bring(file, put, self._line))
                for file, put in zip(files[1:], puts, strict=False)
            ]
            await asyncio.wait([self._ended])
            await asyncio.wait(outputs)
            for other in others:
                other.cancel()
        files[0].close()
        return None if self._ended.cancelled() else self._ended.result()

    async def _let_go_with_line(self, files: list[File]) -> None:
        await self.channel.wait_closed()
        for file in files:
            file.close()
        self._ended.cancel()

    async def _feed(self, file: File, *, on_terminal: bool) -> None:
        """Give the command what the other side sends, and its signals."""
        left = self._cut_at.bytes if self._cut_at else None
        while block := await self._received():
            if left is not None and len(block) >= left:
                await file.write(block[:left])
                self._cut()
                return
            left = None if left is None else left - len(block)
            await self._line.carry(len(block))
            await file.write(block)
        if on_terminal:
            await file.write(_END_OF_INPUT)
        else:
            file.close()

    async def _received(self) -> bytes:
        """Return the next block of input; nothing at its end."""
        while True:
            try:
                return await self.channel.stdin.read(self._line.block)
            except asyncssh.SignalReceived as received:
                with contextlib.suppress(KeyError, OSError):
                    number = signal.Signals[f"SIG{received.signal}"]
                    self.processes.signal(self._pid, number, group=True)
            except (asyncssh.BreakReceived, asyncssh.TerminalSizeChanged):
                continue
            except _LINE_BROKEN:
                return b""

    def _to(self, writer: asyncssh.SSHWriter[bytes]) -> Callable[[bytes], Awaitable[None]]:
        async def put(block: bytes) -> None:
            with contextlib.suppress(*_LINE_BROKEN):
                writer.write(block if self._answer_left is None else block[: self._answer_left])
                await writer.drain()
                self._count_answer(len(block))

        return put

    def _count_answer(self, count: int) -> None:
        if self._answer_left is None:
            return
        self._answer_left = max(0, self._answer_left - count)
        if not self._answer_left:
            # What was written is on its way before the line breaks.
            asyncio.get_running_loop().call_later(_ON_ITS_WAY, self._cut)

    async def _to_error(self, block: bytes) -> None:
        # The disk is full by a limit on files, and programs tell the limit.
        shown = block if self._full_at is None else block.replace(_TOO_LARGE, _FULL)
        await self._to(self.channel.stderr)(shown)

    def _cut(self) -> None:
        """Break the line, without a word."""
        self.channel.get_extra_info("connection").abort()

    def _refuse(self, why: str) -> None:
        with contextlib.suppress(*_LINE_BROKEN):
            self.channel.stderr.write(f"{why}\n".encode())
        self._answer(_NOT_STARTED)

    def _answer(self, code: int) -> None:
        with contextlib.suppress(*_LINE_BROKEN):
            if code >= 0:
                self.channel.exit(code)
            else:
                self.channel.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))


def open_for(channel: Channel) -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """Return our side of a new terminal, once to write and once to read, and the command's three files."""
    ours, theirs = os.openpty()
    columns, rows, width, height = channel.term_size
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, width, height))
    settings = termios.tcgetattr(theirs)
    for mode, bit in _MODES:
        requested = channel.term_modes.get(mode)
        if requested is not None:
            settings[_LOCAL] = settings[_LOCAL] | bit if requested else settings[_LOCAL] & ~bit
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    return (os.dup(ours), ours), (theirs, theirs, theirs)


def _pipes() -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """Return our ends of three pipes, and the command's."""
    (their_in, our_in), (our_out, their_out), (our_error, their_error) = (
        os.pipe(),
        os.pipe(),
        os.pipe(),
    )
    return (our_in, our_out, our_error), (their_in, their_out, their_error)


def _close(files: tuple[int, ...]) -> None:
    for file in dict.fromkeys(files):
        os.close(file)
