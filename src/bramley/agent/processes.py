"""Programs as real processes: each in its own session, killed with its descendants, and awaited for a bounded time.

Popen starts them and asyncio only watches descriptors: asyncio's own subprocesses need a thread each, and wait for pipes that a
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
from typing import IO

from bramley.agent.platform import System, fd_events, system
from bramley.agent.programs import ProgramMissing, ProgramResult
from bramley.base import errors, log

logger = log.get(__name__)

MAX_STDOUT_BYTES = 4 * 1024 * 1024
MAX_STDERR_BYTES = 32 * 1024
MAX_LINE_BYTES = 64 * 1024
# How long pipes may stay open, and a killed process may take to exit, after the program has ended.
EXIT_GRACE_SECONDS = 2.0
GATE_POLL_SECONDS = 0.05
_BLOCK = 64 * 1024
_NOT_EXECUTABLE = {
    *(errno.ENOENT, errno.EACCES, errno.EPERM),
    *(errno.ENOEXEC, errno.ENOTDIR, errno.ELOOP),
}
_OUT_OF_RESOURCES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class ProcessJournal:
    """Records running programs in one folder, for the next agent; a record that cannot be written is skipped."""

    def __init__(self, folder: Path, system: System) -> None:
        self._folder = folder
        self._system = system
        self._own_pids: set[int] = set()

    def add(self, pid: int) -> None:
        """Record a program that this agent runs."""
        self._own_pids.add(pid)
        started = self._system.start_time(pid)
        if started is None:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self._folder / str(pid)).write_text(f"{self._system.boot_id()} {started}")

    def remove(self, pid: int) -> None:
        """Remove the record of a program that has ended."""
        self._own_pids.discard(pid)
        with contextlib.suppress(OSError):
            (self._folder / str(pid)).unlink(missing_ok=True)

    async def kill_leftovers(self) -> None:
        """Kill the programs of an earlier agent; only for an agent that holds the host's lock."""
        with contextlib.suppress(FileNotFoundError):
            records = [path for path in self._folder.iterdir() if path.name.isdigit()]
            for path in records:
                if int(path.name) not in self._own_pids:
                    self._kill(path)

    def _kill(self, path: Path) -> None:
        pid = int(path.name)
        with contextlib.suppress(OSError):
            boot, _, started = path.read_text().partition(" ")
            # Compared by boot and start time, because the pid may have been reused.
            is_same_boot = bool(started) and boot == self._system.boot_id()
            if is_same_boot and self._system.start_time(pid) == started:
                logger.warning("Killing program of an earlier agent", pid=pid)
                system.signal_group(pid, signal.SIGKILL)
            path.unlink(missing_ok=True)


class HeadBuffer:
    """Keeps the first bytes of a stream."""

    def __init__(self, limit: int = MAX_STDOUT_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, block: bytes) -> None:
        """Append a block."""
        self._buffer += block[: self._limit - len(self._buffer)]

    def text(self) -> str:
        """Return the kept bytes as text; bytes that are not valid UTF-8 are replaced."""
        return self._buffer.decode(errors="replace")


class TailBuffer(HeadBuffer):
    """Keeps the last bytes of a stream."""

    def feed(self, block: bytes) -> None:
        """Append a block."""
        self._buffer += block
        del self._buffer[: -self._limit]


class LineSplitter:
    """Calls `on_line` for each line, without its end; a line that is too long is split."""

    def __init__(self, on_line: Callable[[str], None], limit: int = MAX_LINE_BYTES) -> None:
        self._on_line = on_line
        self._limit = limit
        self._rest = b""

    def feed(self, block: bytes) -> None:
        """Append a block."""
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            self._emit(line)
        if len(self._rest) >= self._limit:
            self.close()

    def close(self) -> None:
        """Emit the last line if it has no end."""
        if self._rest:
            self._emit(self._rest)
        self._rest = b""

    def _emit(self, line: bytes) -> None:
        self._on_line(line.rstrip(b"\r").decode(errors="replace"))


class SystemPrograms:
    """Runs programs of this machine; implements `Programs`. `environment` is the agent's own."""

    def __init__(
        self, environment: Mapping[str, str], *, journal: ProcessJournal | None = None
    ) -> None:
        self._environment = dict(environment)
        self._journal = journal
        self._unreaped: list[subprocess.Popen[bytes]] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        on_line: Callable[[str], None] | None = None,
        gate: asyncio.Event | None = None,
    ) -> ProgramResult:
        """Run a program to its end; see `Programs`."""
        process = self._start(argv, environment or {}, has_input=bool(stdin))
        # Nothing is awaited between start and record, so a cancellation leaves no program without a record.
        if self._journal:
            self._journal.add(process.pid)
        try:
            return await _communicate(process, stdin=stdin, on_line=on_line, gate=gate)
        finally:
            await self._kill_and_reap(process)

    def _start(
        self, argv: Sequence[str], environment: Mapping[str, str], *, has_input: bool
    ) -> subprocess.Popen[bytes]:
        self._unreaped = [each for each in self._unreaped if each.poll() is None]
        try:
            return subprocess.Popen(  # noqa: S603 - the agent chooses the program
                list(argv),
                env={**self._environment, **environment},
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise _start_error(argv[0], error) from error
        except ValueError as error:
            # A NUL byte in an argument or a variable.
            raise errors.Refused(
                f"{argv[0]} cannot be run with these arguments: {error}"
            ) from error

    async def _kill_and_reap(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the program if it still runs, reap it and close the pipes."""
        try:
            # A killed leader leaves its group alive, so the whole group is signalled.
            if process.poll() is None:
                system.signal_group(process.pid, signal.SIGKILL)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EXIT_GRACE_SECONDS):
                        await fd_events.wait_for_exit(process.pid)
        finally:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            if process.poll() is None:
                # It is in an uninterruptible system call; the next start tries to reap it again.
                logger.warning("Killed program does not exit", pid=process.pid)
                self._unreaped.append(process)
            elif self._journal:
                self._journal.remove(process.pid)


async def _communicate(
    process: subprocess.Popen[bytes],
    *,
    stdin: bytes,
    on_line: Callable[[str], None] | None,
    gate: asyncio.Event | None,
) -> ProgramResult:
    """Read the output of a program until it ends, and shortly after while its pipes are open."""
    head, tail = HeadBuffer(), TailBuffer(MAX_STDERR_BYTES)
    lines = LineSplitter(on_line) if on_line else None
    sinks = (head.feed, lines.feed) if lines else (head.feed,)
    async with _paused_by(gate, process.pid), asyncio.TaskGroup() as group:
        streams = [
            group.create_task(_read(process.stdout, *sinks)),
            group.create_task(_read(process.stderr, tail.feed)),
            group.create_task(_write(process.stdin, stdin)),
        ]
        await fd_events.wait_for_exit(process.pid)
        # Not until the pipes are closed: a grandchild may keep them open for ever.
        await asyncio.wait(streams, timeout=EXIT_GRACE_SECONDS)
        for stream in streams:
            stream.cancel()
    if lines:
        lines.close()
    return ProgramResult(code=process.wait(), stdout=head.text(), stderr=tail.text())


async def _read(pipe: IO[bytes] | None, *sinks: Callable[[bytes], None]) -> None:
    if pipe is None:
        return
    handle = pipe.fileno()
    os.set_blocking(handle, False)
    while True:
        # Also yields to other tasks, so that a program that prints without end does not block them.
        await fd_events.wait_readable(handle)
        try:
            block = os.read(handle, _BLOCK)
        except BlockingIOError:
            continue
        if not block:
            return
        for sink in sinks:
            sink(block)


async def _write(pipe: IO[bytes] | None, content: bytes) -> None:
    if pipe is None:
        return
    handle = pipe.fileno()
    os.set_blocking(handle, False)
    rest = memoryview(content)
    # A program may exit or close its stdin without reading all of it.
    with contextlib.suppress(BrokenPipeError):
        while rest:
            await fd_events.wait_writable(handle)
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(handle, rest) :]
    pipe.close()


@contextlib.asynccontextmanager
async def _paused_by(gate: asyncio.Event | None, leader: int) -> AsyncIterator[None]:
    """Keep a process group stopped (SIGSTOP) while the gate is not set."""
    if gate is None:
        yield
        return
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_apply_gate(gate, leader))
        try:
            yield
        finally:
            task.cancel()


async def _apply_gate(gate: asyncio.Event, leader: int) -> None:
    while True:
        if gate.is_set():
            # Polled: an Event cannot be awaited until it is cleared.
            await asyncio.sleep(GATE_POLL_SECONDS)
            continue
        system.signal_group(leader, signal.SIGSTOP)
        await gate.wait()
        system.signal_group(leader, signal.SIGCONT)


def _start_error(program: str, error: OSError) -> errors.BramleyError:
    if error.errno in _OUT_OF_RESOURCES:
        return errors.Unavailable(f"{program} cannot be started now: {error.strerror}")
    if error.errno in _NOT_EXECUTABLE:
        return ProgramMissing(f"{program} cannot be run: {error.strerror}")
    return errors.Refused(f"{program} cannot be run with these arguments: {error.strerror}")
