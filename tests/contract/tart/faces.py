"""The two faces of the simulated tart behind one word, so that one suite asks both: real processes, and virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from bramley.agent.platform import locks, system
from bramley.base import virtual_time
from bramley.sim.mac.mac import SimulatedMac
from bramley.sim.mac.processes import Call, Process
from bramley.sim.tart import process

IMAGE = "ghcr.io/tuist/runner:1"
SMALL: dict[str, Any] = {
    "disk_bytes": 5_000_000_000,
    "size_bytes": 1_000_000_000,
    "guest": {"then": "stay"},
}
PATIENCE = 180


@dataclass(frozen=True)
class Ended:
    """How a call ended: its exit code or minus the signal, and what it said."""

    code: int
    stdout: str
    stderr: str


class Started(Protocol):
    """A call that goes on."""

    @property
    def pid(self) -> int: ...

    def lines(self) -> list[str]:
        """Return the lines of stdout so far."""
        ...

    def catches_signals(self) -> bool:
        """Return whether it is so far that it handles the signals that tart handles."""
        ...

    def send(self, number: signal.Signals) -> None: ...

    async def end(self) -> Ended: ...


class Face(Protocol):
    """One simulated Mac's tart."""

    home: Path
    scale: float

    async def start(
        self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> Started: ...

    def holder(self, vm: str) -> int | None:
        """Return who holds the lock of a running VM, as another process sees it."""
        ...

    def guests(self) -> list[int]:
        """Return the processes of guests."""
        ...

    def now(self) -> float: ...


@dataclass
class Tart:
    """What a test has: calls, settings and waiting."""

    face: Face
    content: dict[str, Any] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.face.home

    def vm(self, name: str) -> Path:
        return self.home / "vms" / name

    def configure(self, **content: Any) -> None:
        """Change the settings; calls from now on see it."""
        self.content |= content
        self.home.mkdir(parents=True, exist_ok=True)
        whole = {"scale": self.face.scale, "images": {IMAGE: SMALL}, **self.content}
        (self.home / "sim.json").write_text(json.dumps(whole))

    def fault(self, on: str, do: str, **details: Any) -> None:
        faults = [*self.content.get("faults", []), {"on": on, "do": do, **details}]
        self.configure(faults=faults)

    def heal(self) -> None:
        self.configure(faults=[])

    async def __call__(
        self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> Ended:
        started = await self.face.start(*words, stdin=stdin, env=env)
        async with asyncio.timeout(None if self.face.scale == 1 else PATIENCE):
            return await started.end()

    async def done(self, *words: str, **options: Any) -> str:
        """Make a call that has to succeed and return its stdout."""
        ended = await self(*words, **options)
        assert ended.code == 0, ended
        return ended.stdout

    async def start(self, *words: str, **options: Any) -> Started:
        return await self.face.start(*words, **options)

    async def running(self, name: str, *words: str, **options: Any) -> Started:
        """Run a VM and return once its guest lives."""
        before = self.face.guests()
        started = await self.start("run", name, "--no-graphics", *words, **options)
        await self.until(lambda: self.has_more_guests_than(before))
        return started

    def has_more_guests_than(self, before: Sequence[int]) -> bool:
        """Return whether a guest has come; not by their number, for one of before may just be going."""
        return not set(self.face.guests()) <= set(before)

    @contextlib.contextmanager
    def halting(self, call: Started) -> Iterator[None]:
        """Let a real call stand still, so that it cannot come to its end meanwhile; virtual time stands still by itself."""
        if self.face.scale < 1:
            call.send(signal.SIGSTOP)
        yield
        if self.face.scale < 1:
            call.send(signal.SIGCONT)

    async def until(self, is_true: Callable[[], bool], seconds: float = PATIENCE) -> None:
        end = self.face.now() + seconds
        while not is_true():
            assert self.face.now() < end, "it never came true"
            await asyncio.sleep(0.01 if self.face.scale < 1 else 0.2)

    async def a_vm(self, name: str = "one", image: str = IMAGE) -> Path:
        """Make a VM."""
        await self.done("clone", image, name)
        return self.vm(name)


class RealCall:
    """A call of the program, as a process."""

    def __init__(self, process: asyncio.subprocess.Process, stdin: bytes) -> None:
        self._process = process
        self.pid = process.pid
        self._out: list[bytes] = []
        self._err: list[bytes] = []
        self._reading = asyncio.gather(
            self._read(process.stdout, self._out), self._read(process.stderr, self._err)
        )
        assert process.stdin
        process.stdin.write(stdin)
        process.stdin.close()

    async def _read(self, stream: asyncio.StreamReader | None, into: list[bytes]) -> None:
        assert stream
        while part := await stream.read(1 << 16):
            into.append(part)

    def lines(self) -> list[str]:
        return b"".join(self._out).decode().splitlines()

    def catches_signals(self) -> bool:
        told = Path(f"/proc/{self.pid}/status").read_text()
        caught = next(line for line in told.splitlines() if line.startswith("SigCgt:"))
        # Python has a handler of its own for SIGINT from its start, but none for this one.
        return bool(int(caught.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def end(self) -> Ended:
        await self._reading
        code = await self._process.wait()
        return Ended(code, b"".join(self._out).decode(), b"".join(self._err).decode())


class Processes:
    """The face of real processes; time runs a hundred times as fast for them."""

    scale = 0.01

    def __init__(self, root: Path) -> None:
        self.home = root / "tart"
        self.program = root / "bin" / "tart"
        process.install_program(str(self.program), str(self.home), sys.executable)
        self._started: list[RealCall] = []

    async def start(
        self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> RealCall:
        process = await asyncio.create_subprocess_exec(
            self.program,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.home.parent), **(env or {})},
        )
        self._started.append(RealCall(process, stdin))
        return self._started[-1]

    def holder(self, vm: str) -> int | None:
        return locks.holder(self.home / "vms" / vm / "config.json", locks.LINUX)

    def guests(self) -> list[int]:
        service = os.fsencode(self.home / ".sim")
        found = []
        for each in Path("/proc").iterdir():
            if each.name.isdigit():
                with contextlib.suppress(OSError):
                    if service in (each / "cmdline").read_bytes():
                        found.append(int(each.name))
        return found

    def now(self) -> float:
        return time.time()

    async def close(self) -> None:
        for call in self._started:
            with contextlib.suppress(ProcessLookupError):
                call.send(signal.SIGKILL)
        for guest in self.guests():
            with contextlib.suppress(ProcessLookupError):
                os.kill(guest, signal.SIGKILL)
        for call in self._started:
            await call.end()


@dataclass
class VirtualCall:
    """A call of the program, as a task."""

    mac: SimulatedMac
    process: Process
    out: list[str]
    err: list[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def lines(self) -> list[str]:
        return [line for told in self.out for line in told.splitlines()]

    def catches_signals(self) -> bool:
        return True

    def send(self, number: signal.Signals) -> None:
        self.mac.table.kill(self.pid, number)

    async def end(self) -> Ended:
        code = await asyncio.shield(self.process.ended)
        told = ("".join(f"{line}\n" for line in lines) for lines in (self.out, self.err))
        return Ended(code, *told)


class VirtualTime:
    """The face without processes."""

    scale = 1.0

    def __init__(self, mac: SimulatedMac) -> None:
        self.mac = mac
        self.home = mac.folders.tart_home

    async def start(
        self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> VirtualCall:
        out: list[str] = []
        err: list[str] = []
        home = {"HOME": str(self.home.parent)}
        call = Call(("tart", *words), out.append, err.append, {**home, **(env or {})}, stdin=stdin)
        return VirtualCall(self.mac, self.mac.start(call, parent=1), out, err)

    def holder(self, vm: str) -> int | None:
        process = self.mac.tart.run_locks.holder(str(self.home / "vms" / vm / "config.json"))
        return process.pid if process else None

    def guests(self) -> list[int]:
        living = self.mac.table.living()
        return [each.pid for each in living if system.GUEST_SERVICE in each.argv[0]]

    def now(self) -> float:
        return self.mac.clock.now().timestamp()


@contextlib.asynccontextmanager
async def _virtual(root: Path) -> AsyncIterator[Face]:
    async with asyncio.TaskGroup() as group:
        mac = SimulatedMac(root, clock=virtual_time.clock(), rng=random.Random(1), group=group)
        yield VirtualTime(mac)
        mac.table.clear()


@contextlib.asynccontextmanager
async def _real(root: Path) -> AsyncIterator[Face]:
    face = Processes(root)
    try:
        yield face
    finally:
        await face.close()


Case = Callable[[Tart], Coroutine[Any, Any, None]]
REAL, VIRTUAL = "processes", "virtual time"


def run_case(case: Case, target: str, root: Path) -> None:
    async def main() -> None:
        async with (_real if target == REAL else _virtual)(root) as face:
            tart = Tart(face)
            tart.configure()
            await case(tart)

    if target == REAL:
        asyncio.run(main())
    else:
        virtual_time.run(main())


def on(*targets: str) -> Callable[[Case], Callable[[str, Path], None]]:
    """Make a test of each of these faces from a coroutine that is given a `Tart`."""

    def decorate(case: Case) -> Callable[[str, Path], None]:
        def test(target: str, tmp_path: Path) -> None:
            run_case(case, target, tmp_path)

        # Its own signature, not the case's, is what pytest has to see.
        functools.update_wrapper(test, case)
        del test.__wrapped__  # type: ignore[attr-defined]
        return pytest.mark.parametrize("target", targets)(test)

    return decorate


both = on(REAL, VIRTUAL)
