"""The two drivers of the simulated tart behind one interface, for one test suite: real processes, and virtual time."""

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
from bramley.sim.mac.mac import SimulatedMac
from bramley.sim.mac.processes import Call, Process
from bramley.sim.tart import process
from tests import virtual_time

IMAGE = "ghcr.io/tuist/runner:1"
SMALL: dict[str, Any] = {
    "disk_bytes": 5_000_000_000,
    "size_bytes": 1_000_000_000,
    "guest": {"then": "stay"},
}
TIMEOUT_SECONDS = 180


@dataclass(frozen=True)
class RunExit:
    """The result of a call: its exit code or minus the signal, and its output."""

    code: int
    stdout: str
    stderr: str


class Started(Protocol):
    """A running call."""

    @property
    def pid(self) -> int: ...

    def lines(self) -> list[str]:
        """Return the lines of stdout so far."""
        ...

    def catches_signals(self) -> bool:
        """Return whether it has installed its signal handlers."""
        ...

    def send(self, number: signal.Signals) -> None: ...

    async def end(self) -> RunExit: ...


class TartDriver(Protocol):
    """One simulated Mac's tart."""

    home: Path
    scale: float

    async def start(
        self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> Started: ...

    def holder(self, vm: str) -> int | None:
        """Return the pid that holds the lock of a running VM, as seen by another process."""
        ...

    def guests(self) -> list[int]:
        """Return the processes of guests."""
        ...

    def now(self) -> float: ...


@dataclass
class Tart:
    """Calls, settings and waits for one test."""

    driver: TartDriver
    content: dict[str, Any] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.driver.home

    def vm(self, name: str) -> Path:
        return self.home / "vms" / name

    def configure(self, **content: Any) -> None:
        """Change the settings for later calls."""
        self.content |= content
        self.home.mkdir(parents=True, exist_ok=True)
        whole = {"scale": self.driver.scale, "images": {IMAGE: SMALL}, **self.content}
        (self.home / "sim.json").write_text(json.dumps(whole))

    def fault(self, on: str, do: str, **details: Any) -> None:
        faults = [*self.content.get("faults", []), {"on": on, "do": do, **details}]
        self.configure(faults=faults)

    def remove_faults(self) -> None:
        self.configure(faults=[])

    async def __call__(
        self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> RunExit:
        started = await self.driver.start(*words, stdin=stdin, env=env)
        async with asyncio.timeout(None if self.driver.scale == 1 else TIMEOUT_SECONDS):
            return await started.end()

    async def done(self, *words: str, **options: Any) -> str:
        """Make a call that must succeed and return its stdout."""
        ended = await self(*words, **options)
        assert ended.code == 0, ended
        return ended.stdout

    async def start(self, *words: str, **options: Any) -> Started:
        return await self.driver.start(*words, **options)

    async def running(self, name: str, *words: str, **options: Any) -> Started:
        """Run a VM and return when its guest runs."""
        before = self.driver.guests()
        started = await self.start("run", name, "--no-graphics", *words, **options)
        await self.until(lambda: self.has_more_guests_than(before))
        return started

    def has_more_guests_than(self, before: Sequence[int]) -> bool:
        """Return whether there is a new guest; not by their number, since an earlier one may be ending."""
        return not set(self.driver.guests()) <= set(before)

    @contextlib.contextmanager
    def stopped(self, call: Started) -> Iterator[None]:
        """Stop a real call, so that it cannot end within the block; virtual time does not advance within it."""
        if self.driver.scale < 1:
            call.send(signal.SIGSTOP)
        yield
        if self.driver.scale < 1:
            call.send(signal.SIGCONT)

    async def until(self, condition: Callable[[], bool], seconds: float = TIMEOUT_SECONDS) -> None:
        end = self.driver.now() + seconds
        while not condition():
            assert self.driver.now() < end, "the condition did not become true"
            await asyncio.sleep(0.01 if self.driver.scale < 1 else 0.2)

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
        status = Path(f"/proc/{self.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        # Python itself handles SIGINT from its start, but not this one.
        return bool(int(caught.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def end(self) -> RunExit:
        await self._reading
        code = await self._process.wait()
        return RunExit(code, b"".join(self._out).decode(), b"".join(self._err).decode())


class ProcessDriver:
    """The driver of real processes; time runs a hundred times as fast for them."""

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
        return [line for text in self.out for line in text.splitlines()]

    def catches_signals(self) -> bool:
        return True

    def send(self, number: signal.Signals) -> None:
        self.mac.table.kill(self.pid, number)

    async def end(self) -> RunExit:
        code = await asyncio.shield(self.process.exit_code)
        output = ("".join(f"{line}\n" for line in lines) for lines in (self.out, self.err))
        return RunExit(code, *output)


class VirtualTimeDriver:
    """The driver without processes."""

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
async def _virtual(root: Path) -> AsyncIterator[TartDriver]:
    async with asyncio.TaskGroup() as group:
        mac = SimulatedMac(root, clock=virtual_time.clock(), rng=random.Random(1), group=group)
        yield VirtualTimeDriver(mac)
        mac.table.clear()


@contextlib.asynccontextmanager
async def _real(root: Path) -> AsyncIterator[TartDriver]:
    driver = ProcessDriver(root)
    try:
        yield driver
    finally:
        await driver.close()


Case = Callable[[Tart], Coroutine[Any, Any, None]]
REAL, VIRTUAL = "processes", "virtual time"


def run_case(case: Case, target: str, root: Path) -> None:
    async def main() -> None:
        async with (_real if target == REAL else _virtual)(root) as driver:
            tart = Tart(driver)
            tart.configure()
            await case(tart)

    if target == REAL:
        asyncio.run(main())
    else:
        virtual_time.run(main())


def on(*targets: str) -> Callable[[Case], Callable[[str, Path], None]]:
    """Make a test for each of these drivers from a coroutine with a `Tart`."""

    def decorate(case: Case) -> Callable[[str, Path], None]:
        def test(target: str, tmp_path: Path) -> None:
            run_case(case, target, tmp_path)

        # pytest must see the signature of `test`, not that of the case.
        functools.update_wrapper(test, case)
        del test.__wrapped__  # type: ignore[attr-defined]
        return pytest.mark.parametrize("target", targets)(test)

    return decorate


both = on(REAL, VIRTUAL)
