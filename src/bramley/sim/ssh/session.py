"""One command over SSH: runs in the sandbox, on pipes or on a terminal, with the faults of the connection.

When the connection is lost, a command on pipes continues, as with every sshd: its input ends, and its output fails. One on a terminal
gets SIGHUP. Faults that cut the connection also apply to the single commands of a batch, which is a program in the input.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import os
import re
import signal
import struct
import termios
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import asyncssh

from bramley.sim.ssh.faults import Fault, FaultKind, Faults
from bramley.sim.ssh.processes import Identity, Processes, ProcessSpec
from bramley.sim.ssh.sandbox import SEARCH_PATH

if TYPE_CHECKING:
    Channel = asyncssh.SSHServerProcess[bytes]

BLOCK = 64 * 1024
# The index of the local modes in the attributes of a terminal, and the supported modes.
_LOCAL = 3
_MODES = (
    (asyncssh.PTY_ECHO, termios.ECHO),
    (asyncssh.PTY_ICANON, termios.ICANON),
    (asyncssh.PTY_ISIG, termios.ISIG),
)
_SHELL = "/bin/zsh"
_END_OF_INPUT = b"\x04"
_FULL, _TOO_LARGE = b"No space left on device", b"File too large"
_NOT_STARTED = 126
_FLUSH_SECONDS = 0.05
_PROGRESS = re.compile(rb"@[0-9a-f]{16} (start|end) (\d+)(?: \d+)?")
_MAX_PROGRAM, _MAX_LINE = 1024 * 1024, 256
_DISCONNECTED = (ConnectionError, asyncssh.Error)


@dataclass(frozen=True, slots=True)
class Throttle:
    """The bandwidth of a connection; None for no limit."""

    bytes_per_second: int | None = None

    @property
    def block(self) -> int:
        """Return the size of blocks; small for a slow connection, so that it delivers evenly."""
        if self.bytes_per_second is None:
            return BLOCK
        return max(1, min(BLOCK, self.bytes_per_second // 10))

    async def delay(self, count: int) -> None:
        """Wait for as long as these bytes take."""
        if self.bytes_per_second is not None:
            await asyncio.sleep(count / self.bytes_per_second)


class AsyncFile:
    """One end of a pipe or a terminal, read and written without blocking the event loop."""

    def __init__(self, number: int) -> None:
        self._descriptor = number
        self._is_open = True
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        os.set_blocking(number, False)

    async def read(self, limit: int) -> bytes:
        """Return the next bytes; empty at the end."""
        while self._is_open:
            try:
                return os.read(self._descriptor, limit)
            except BlockingIOError:
                await self._wait_ready(self._loop.add_reader, self._loop.remove_reader)
            except OSError:
                return b""
        return b""

    async def write(self, block: bytes) -> bool:
        """Write all bytes; return False if the reader is gone."""
        rest = memoryview(block)
        while rest and self._is_open:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                await self._wait_ready(self._loop.add_writer, self._loop.remove_writer)
            except OSError:
                return False
        return self._is_open

    def close(self) -> None:
        """Close it, and wake up a task that waits for it."""
        if self._is_open:
            self._is_open = False
            self._ready.set()
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)

    async def _wait_ready(
        self,
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], object],
    ) -> None:
        self._ready.clear()
        watch(self._descriptor, self._ready.set)
        try:
            await self._ready.wait()
        finally:
            if self._is_open:
                unwatch(self._descriptor)


async def _forward(
    file: AsyncFile, write: Callable[[bytes], Awaitable[None]], throttle: Throttle
) -> None:
    """Forward the output of a process to the client until its end, then close the file."""
    try:
        while block := await file.read(throttle.block):
            await throttle.delay(len(block))
            await write(block)
    finally:
        file.close()


@dataclass(frozen=True, slots=True)
class Login:
    """The user of a session, its home folder and SSH_CONNECTION."""

    user: Identity
    home: str
    peer: str

    def environment(self) -> dict[str, str]:
        """Return the environment of a session, as set by a Mac's sshd."""
        name = self.user.name
        own = {"HOME": self.home, "USER": name, "LOGNAME": name, "SHELL": _SHELL}
        return {**own, "PATH": SEARCH_PATH, "SSH_CONNECTION": self.peer}


@dataclass(slots=True)
class BatchMonitor:
    """Follows the commands of a batch in its input and output."""

    is_cut: bool = False
    _program: bytearray = field(default_factory=bytearray)
    _rest: bytes = b""

    def add_input(self, block: bytes) -> None:
        """Keep the program of a batch."""
        self._program += block[: _MAX_PROGRAM - len(self._program)]

    def events(self, block: bytes) -> Iterator[tuple[FaultKind, str]]:
        """Yield the commands that begin or end in this output, and the fault that would cut the connection there."""
        *lines, self._rest = (self._rest + block).split(b"\n")
        self._rest = self._rest[-_MAX_LINE:]
        for line in lines:
            if match := _PROGRESS.fullmatch(line):
                kind = FaultKind.CUT_AFTER if match[1] == b"end" else FaultKind.CUT_BEFORE
                yield kind, self._text(int(match[2]))

    def _text(self, number: int) -> str:
        try:
            program = base64.b64decode(self._program, validate=True).decode("utf-8", "replace")
        except ValueError:
            return ""
        _, _, rest = program.partition(f"begin {number}\n")
        return rest.partition(f"finish {number} ")[0]


@dataclass(slots=True)
class Session:
    """One command."""

    channel: Channel
    login: Login
    processes: Processes
    faults: Faults
    _ended: asyncio.Future[int] = field(init=False)
    _throttle: Throttle = field(init=False, default_factory=Throttle)
    _cut_at: Fault | None = field(init=False, default=None)
    # The number of bytes of output until the connection is cut; None for no cut.
    _output_left: int | None = field(init=False, default=None)
    _full_at: int | None = field(init=False, default=None)
    _pid: int = field(init=False, default=0)
    _batch: BatchMonitor = field(init=False, default_factory=BatchMonitor)

    async def run(self) -> None:
        """Run the command and send its exit code, unless a fault prevents it."""
        self._ended = asyncio.get_running_loop().create_future()
        text = self.channel.command or ""
        if error := self.faults.file_error:
            self._refuse(error)
        elif self.faults.take(FaultKind.CUT_BEFORE, text):
            self._cut()
        elif self.faults.take(FaultKind.HANG, text):
            await self.channel.wait_closed()
        else:
            await self._run(text)

    async def _run(self, text: str) -> None:
        slow, full = (
            self.faults.take(FaultKind.SLOW, text),
            self.faults.take(FaultKind.DISK_FULL, text),
        )
        self._throttle = Throttle(max(1, slow.bytes) if slow else None)
        self._full_at = full.bytes if full else None
        self._cut_at = self.faults.take(FaultKind.CUT_AT, text)
        cut_output = self.faults.take(FaultKind.CUT_ANSWER, text)
        self._output_left = cut_output.bytes if cut_output else None
        cut_after = self.faults.take(FaultKind.CUT_AFTER, text)
        try:
            code = await self._run_to_end(text)
        except OSError as error:
            self._refuse(f"the simulated Mac cannot run a shell: {error}")
            return
        if cut_after:
            self._cut()
        elif code is not None and self._output_left != 0:
            self._exit(code)

    async def _run_to_end(self, text: str) -> int | None:
        """Run the command until it has exited and its output is closed; None if the connection was lost before."""
        on_terminal = self.channel.term_type is not None
        ours, theirs = _terminal(self.channel) if on_terminal else _pipes()
        try:
            self._start(text, theirs, on_terminal=on_terminal)
        except OSError:
            _close(ours)
            raise
        finally:
            _close(theirs)
        files = [AsyncFile(file) for file in ours]
        return await self._forward_until_exit(files, on_terminal=on_terminal)

    def _start(self, text: str, files: tuple[int, int, int], *, on_terminal: bool) -> None:
        start = ProcessSpec(
            argv=[_SHELL, "-c", text] if text else [_SHELL],
            user=self.login.user,
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

    async def _forward_until_exit(self, files: list[AsyncFile], *, on_terminal: bool) -> int | None:
        """Forward bytes in both directions until the end of the command or of the connection."""
        writes = [self._write_stdout, self._write_stderr]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._feed(files[0], on_terminal=on_terminal)),
                group.create_task(self._close_on_disconnect(files)),
            ]
            outputs = [
                group.create_task(_forward(file, write, self._throttle))
                for file, write in zip(files[1:], writes, strict=False)
            ]
            await asyncio.wait([self._ended])
            await asyncio.wait(outputs)
            for task in tasks:
                task.cancel()
        files[0].close()
        return None if self._ended.cancelled() else self._ended.result()

    async def _close_on_disconnect(self, files: list[AsyncFile]) -> None:
        await self.channel.wait_closed()
        for file in files:
            file.close()
        self._ended.cancel()

    async def _feed(self, file: AsyncFile, *, on_terminal: bool) -> None:
        """Forward input and signals of the client to the command."""
        input_left = self._cut_at.bytes if self._cut_at else None
        while block := await self._read_input():
            if input_left is not None and len(block) >= input_left:
                await file.write(block[:input_left])
                self._cut()
                return
            input_left = None if input_left is None else input_left - len(block)
            await self._throttle.delay(len(block))
            self._batch.add_input(block)
            await file.write(block)
        if on_terminal:
            await file.write(_END_OF_INPUT)
        else:
            file.close()

    async def _read_input(self) -> bytes:
        """Return the next block of input; empty at its end."""
        while True:
            try:
                return await self.channel.stdin.read(self._throttle.block)
            except asyncssh.SignalReceived as received:
                with contextlib.suppress(KeyError, OSError):
                    number = signal.Signals[f"SIG{received.signal}"]
                    self.processes.signal(self._pid, number, group=True)
            except (asyncssh.BreakReceived, asyncssh.TerminalSizeChanged):
                continue
            except _DISCONNECTED:
                return b""

    def _writer(self, writer: asyncssh.SSHWriter[bytes]) -> Callable[[bytes], Awaitable[None]]:
        async def write(block: bytes) -> None:
            with contextlib.suppress(*_DISCONNECTED):
                writer.write(block if self._output_left is None else block[: self._output_left])
                await writer.drain()
                self._count_output(len(block))

        return write

    async def _write_stdout(self, block: bytes) -> None:
        if self._batch.is_cut:
            return
        if any(self.faults.take(kind, text) for kind, text in self._batch.events(block)):
            # The answer of the command is lost, and so is everything after it.
            self._batch.is_cut = True
            self._cut()
            return
        await self._writer(self.channel.stdout)(block)

    def _count_output(self, count: int) -> None:
        if self._output_left is None:
            return
        self._output_left = max(0, self._output_left - count)
        if not self._output_left:
            # Leaves time to send what was written.
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._cut)

    async def _write_stderr(self, block: bytes) -> None:
        # A full disk is simulated by a file size limit; programs report the limit.
        output = block if self._full_at is None else block.replace(_TOO_LARGE, _FULL)
        await self._writer(self.channel.stderr)(output)

    def _cut(self) -> None:
        """Abort the connection."""
        self.channel.get_extra_info("connection").abort()

    def _refuse(self, message: str) -> None:
        with contextlib.suppress(*_DISCONNECTED):
            self.channel.stderr.write(f"{message}\n".encode())
        self._exit(_NOT_STARTED)

    def _exit(self, code: int) -> None:
        with contextlib.suppress(*_DISCONNECTED):
            if code >= 0:
                self.channel.exit(code)
            else:
                self.channel.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))


def _terminal(channel: Channel) -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """Return our side of a new terminal, one descriptor to write and one to read, and the command's three files."""
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
    stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
    return (stdin[1], stdout[0], stderr[0]), (stdin[0], stdout[1], stderr[1])


def _close(files: tuple[int, ...]) -> None:
    for file in dict.fromkeys(files):
        os.close(file)
