"""Programs as real processes: each in a session of its own, killed with all it started, and never waited for beyond measure.

Popen starts them and asyncio only watches descriptors: asyncio's own processes need a thread each, and wait for pipes that a
grandchild keeps open.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from bramley.agent.platform import System, fd_events, system
from bramley.agent.programs import Finished, ProgramMissing
from bramley.base import errors, log


class ProcessJournal:
    """Notes of running programs in one folder; a note that cannot be written is done without."""

    def __init__(self, folder: Path, system: System) -> None:
        self._folder = folder
        self._system = system
        self._ours: set[int] = set()

    def note(self, pid: int) -> None:
        """Write down that a program of ours runs."""
        self._ours.add(pid)
        began = self._system.began(pid)
        if began is None:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self._folder / str(pid)).write_text(f"{self._system.boot_id()} {began}")

    def strike(self, pid: int) -> None:
        """Drop the note of a program that has ended."""
        self._ours.discard(pid)
        with contextlib.suppress(OSError):
            (self._folder / str(pid)).unlink(missing_ok=True)

    async def clear(self) -> None:
        """End what an earlier agent left; only for an agent that knows itself to be the only one."""
        with contextlib.suppress(FileNotFoundError):
            notes = [path for path in self._folder.iterdir() if path.name.isdigit()]
            for path in notes:
                if int(path.name) not in self._ours:
                    self._end(path)

    def _end(self, path: Path) -> None:
        pid = int(path.name)
        with contextlib.suppress(OSError):
            boot, _, began = path.read_text().partition(" ")
            is_left = bool(began) and boot == self._system.boot_id()
            if is_left and self._system.began(pid) == began:
                logger.warning("Ending a program that an earlier agent left", pid=pid)
                system.signal_group(pid, signal.SIGKILL)
            path.unlink(missing_ok=True)


HEAD = 4 * 1024 * 1024
TAIL = 32 * 1024
LINE = 64 * 1024


class Head:
    """Keeps the first bytes and lets the rest go by."""

    def __init__(self, limit: int = HEAD) -> None:
        self._limit = limit
        self._kept = bytearray()

    def feed(self, block: bytes) -> None:
        """Take what came."""
        self._kept += block[: self._limit - len(self._kept)]

    def text(self) -> str:
        """Return what was kept; bytes that are no text are shown as such."""
        return self._kept.decode(errors="replace")


class Tail:
    """Keeps the last bytes."""

    def __init__(self, limit: int = TAIL) -> None:
        self._limit = limit
        self._kept = bytearray()

    def feed(self, block: bytes) -> None:
        """Take what came."""
        self._kept += block
        del self._kept[: -self._limit]

    def text(self) -> str:
        """Return what was kept."""
        return self._kept.decode(errors="replace")


class Lines:
    """Tells each line without its end; one that is too long is told in pieces."""

    def __init__(self, tell: Callable[[str], None], limit: int = LINE) -> None:
        self._tell = tell
        self._limit = limit
        self._rest = b""

    def feed(self, block: bytes) -> None:
        """Take what came."""
        *whole, self._rest = (self._rest + block).split(b"\n")
        for line in whole:
            self._say(line)
        if len(self._rest) >= self._limit:
            self.close()

    def close(self) -> None:
        """Tell what came after the last line's end."""
        if self._rest:
            self._say(self._rest)
        self._rest = b""

    def _say(self, line: bytes) -> None:
        self._tell(line.rstrip(b"\r").decode(errors="replace"))


logger = log.get(__name__)

# How long pipes may stay open, and a killed process may take to go, after the program has ended.
PATIENCE_SECONDS = 2.0
GATE_SECONDS = 0.05
_BLOCK = 64 * 1024
_NOT_THERE = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ENOTDIR, errno.ELOOP}
_CANNOT_START = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class Sink(Protocol):
    """Takes what a program says."""

    def feed(self, block: bytes) -> None:
        """Take what came."""
        ...


class SystemPrograms:
    """Runs programs of this machine; implements `Programs`. `environment` is ours, told by who started us."""

    def __init__(
        self, environment: Mapping[str, str], *, journal: ProcessJournal | None = None
    ) -> None:
        self._environment = dict(environment)
        self._leftovers = journal
        self._unreaped: list[subprocess.Popen[bytes]] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        on_line: Callable[[str], None] | None = None,
        gate: asyncio.Event | None = None,
    ) -> Finished:
        """Run a program to its end; see `Programs`."""
        process = self._start(argv, environment or {}, has_input=bool(stdin))
        if self._leftovers:
            self._leftovers.note(process.pid)
        try:
            return await _followed(process, stdin=stdin, on_line=on_line, gate=gate)
        finally:
            await self._bury(process)

    def _start(
        self, argv: Sequence[str], environment: Mapping[str, str], *, has_input: bool
    ) -> subprocess.Popen[bytes]:
        self._unreaped = [each for each in self._unreaped if each.poll() is None]
        try:
            return subprocess.Popen(  # noqa: S603 - what we run is ours to choose
                list(argv),
                env={**self._environment, **environment},
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise _told(argv[0], error) from error
        except ValueError as error:
            # A zero byte in a word or a variable.
            raise errors.Refused(f"{argv[0]} cannot be run as asked: {error}") from error

    async def _bury(self, process: subprocess.Popen[bytes]) -> None:
        """Kill what is left when nobody waits any more, reap it and close the pipes."""
        try:
            if process.poll() is None:
                system.signal_group(process.pid, signal.SIGKILL)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        await fd_events.wait_for_exit(process.pid)
        finally:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            if process.poll() is None:
                # The system holds it in a call that cannot be broken; the next start looks again.
                logger.warning("A killed program does not go away", pid=process.pid)
                self._unreaped.append(process)
            elif self._leftovers:
                self._leftovers.strike(process.pid)


async def _followed(
    process: subprocess.Popen[bytes],
    *,
    stdin: bytes,
    on_line: Callable[[str], None] | None,
    gate: asyncio.Event | None,
) -> Finished:
    """Read all that a program says until it ends, and a little longer while its pipes are open."""
    head, tail = Head(), Tail()
    lines = Lines(on_line) if on_line else None
    said: list[Sink] = [head, lines] if lines else [head]
    async with _halting(process.pid, gate), asyncio.TaskGroup() as group:
        streams = [
            group.create_task(_read(process.stdout, said)),
            group.create_task(_read(process.stderr, [tail])),
            group.create_task(_write(process.stdin, stdin)),
        ]
        await fd_events.wait_for_exit(process.pid)
        await asyncio.wait(streams, timeout=PATIENCE_SECONDS)
        for stream in streams:
            stream.cancel()
    if lines:
        lines.close()
    return Finished(code=process.wait(), stdout=head.text(), stderr=tail.text())


async def _read(pipe: IO[bytes] | None, sinks: Sequence[Sink]) -> None:
    if pipe is None:
        return
    handle = pipe.fileno()
    os.set_blocking(handle, False)
    while True:
        # Also yields to others: who talks without end is heard, but not alone.
        await fd_events.wait_readable(handle)
        try:
            block = os.read(handle, _BLOCK)
        except BlockingIOError:
            continue
        if not block:
            return
        for sink in sinks:
            sink.feed(block)


async def _write(pipe: IO[bytes] | None, content: bytes) -> None:
    if pipe is None:
        return
    handle = pipe.fileno()
    os.set_blocking(handle, False)
    rest = memoryview(content)
    # Who does not read all of its input has its reasons.
    with contextlib.suppress(BrokenPipeError):
        while rest:
            await fd_events.wait_writable(handle)
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(handle, rest) :]
    pipe.close()


@contextlib.asynccontextmanager
async def _halting(leader: int, gate: asyncio.Event | None) -> AsyncIterator[None]:
    """Keep a process group stopped while the gate is not set."""
    if gate is None:
        yield
        return
    async with asyncio.TaskGroup() as group:
        porter = group.create_task(_stand_at(gate, leader))
        try:
            yield
        finally:
            porter.cancel()


async def _stand_at(gate: asyncio.Event, leader: int) -> None:
    while True:
        if gate.is_set():
            # An Event does not tell when it is cleared.
            await asyncio.sleep(GATE_SECONDS)
            continue
        system.signal_group(leader, signal.SIGSTOP)
        await gate.wait()
        system.signal_group(leader, signal.SIGCONT)


def _told(program: str, error: OSError) -> errors.BramleyError:
    if error.errno in _CANNOT_START:
        return errors.Unavailable(f"{program} cannot be started now: {error.strerror}")
    if error.errno in _NOT_THERE:
        return ProgramMissing(f"{program} cannot be run: {error.strerror}")
    return errors.Refused(f"{program} cannot be run as asked: {error.strerror}")
