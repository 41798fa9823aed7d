"""`tart run` under a detached supervisor: a folder per run, whose files outlive the agent and tell the next one all it needs.

`run` (our boot) is written before anything starts; the supervisor adds `supervisor`, `tart` and `ended`. See supervisor.sh.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bramley.agent import atomic_file, platform
from bramley.agent.platform import System, fd_events, system
from bramley.agent.runs import Ended, Run
from bramley.agent.vm_logs import VmLogs
from bramley.base import errors, log
from bramley.base.clock import Clock

logger = log.get(__name__)

SCRIPT = Path(__file__).with_name("supervisor.sh")
START_LIMIT = timedelta(seconds=10)
_LOOK_SECONDS = 0.005
_FORGOTTEN = ".forgotten-"
_SHELL_SIGNAL = 128
_MOST_SIGNALS = 64


@dataclass(frozen=True, slots=True)
class Noted:
    """A process as the supervisor noted it."""

    pid: int
    began: str


class SupervisedRuns:
    """Starts and follows `tart run`; implements `Runs`. `environment` is ours, told by who started us."""

    def __init__(
        self,
        state_dir: Path,
        log_dir: Path,
        clock: Clock,
        *,
        environment: Mapping[str, str],
        system: System | None = None,
    ) -> None:
        self._folder = state_dir / "runs"
        self._logs = VmLogs(log_dir, clock=clock)
        self._system = system or platform.current()
        self._clock = clock
        self._environment = dict(environment)
        self._children: set[int] = set()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in self._folder.glob(f"{_FORGOTTEN}*"):
            shutil.rmtree(left, ignore_errors=True)

    async def start(self, run: Run) -> None:
        """Begin a run; TimedOut, after all was killed, if it has not begun within 10 s."""
        self._claim(run.vm)
        supervisor = self._launch(run)
        try:
            async with asyncio.timeout(START_LIMIT.total_seconds()):
                # The supervisor tells by a file, for whichever agent there will be.
                while self._noted(run.vm, "tart") is None and self._system.began(supervisor):  # noqa: ASYNC110 - a file of another process, which no event tells
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError as error:
            system.signal_group(supervisor, signal.SIGKILL)
            raise errors.TimedOut(f"the run of {run.vm} did not begin in time") from error

    def is_begun(self, vm: str) -> bool:
        """Tell whether a run of this name was begun and not forgotten."""
        return self._of(vm).exists()

    def is_alive(self, vm: str) -> bool:
        """Tell whether the supervisor or its tart lives."""
        return bool(self._living(vm)) or self._is_settling(vm)

    def ended(self, vm: str) -> Ended | None:
        """Return how the run ended; without a code if its supervisor was lost."""
        if not self.is_begun(vm):
            return None
        # In this order: a supervisor that is found dead has written before all it ever will.
        is_alive = self.is_alive(vm)
        written = _ended(self._of(vm) / "ended")
        return written or (None if is_alive else Ended(None, None))

    async def wait(self, vm: str) -> Ended:
        """Wait until the run has ended."""
        if not self.is_begun(vm):
            raise errors.NotFound(f"no run of {vm} was begun")
        while (ended := self.ended(vm)) is None:
            living = self._living(vm)
            if living:
                await fd_events.wait_for_exit(living[0].pid)
            else:
                await asyncio.sleep(_LOOK_SECONDS)
        self._reap()
        return ended

    def kill(self, vm: str) -> None:
        """Kill tart; its supervisor writes that down and clears the rest of the group."""
        supervisor, tart = self._noted_alive(vm, "supervisor"), self._noted_alive(vm, "tart")
        with contextlib.suppress(ProcessLookupError):
            if tart and supervisor:
                os.kill(tart.pid, signal.SIGKILL)
            elif tart:
                system.signal_group(os.getpgid(tart.pid), signal.SIGKILL)
            elif supervisor:
                system.signal_group(supervisor.pid, signal.SIGKILL)

    def output_tail(self, vm: str) -> str:
        """Return the last lines of what tart printed, without passwords."""
        return self._logs.tail(vm)

    def forget(self, vm: str) -> None:
        """Drop the folder of a run; Conflict while it lives."""
        if self.ended(vm) is None and self.is_begun(vm):
            raise errors.Conflict(f"the run of {vm} has not ended")
        self._reap()
        # Renamed first: a folder of which only a part is left would tell lies.
        gone = self._folder / f"{_FORGOTTEN}{vm}"
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(gone, ignore_errors=True)
            self._of(vm).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _claim(self, vm: str) -> None:
        folder = self._of(vm)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError as error:
            raise errors.AlreadyExists(f"a run of {vm} was begun before") from error
        try:
            atomic_file.replace(folder / "run", self._system.boot_id().encode())
            atomic_file.sync_folder(self._folder)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise errors.Unavailable(
                f"the run of {vm} cannot be noted: {error.strerror}"
            ) from error

    def _launch(self, run: Run) -> int:
        try:
            output = self._logs.open(run.vm)
        except OSError as error:
            raise self._not_begun(run.vm, error) from error
        try:
            process = subprocess.Popen(  # noqa: S603 - what we run is ours to choose
                ["/bin/sh", str(SCRIPT), str(self._of(run.vm)), *run.argv],
                env={**self._environment, **run.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            raise self._not_begun(run.vm, error) from error
        finally:
            os.close(output)
        # It lives longer than the object that stands for it, which would complain; we reap it by its number.
        process.returncode = 0
        self._children.add(process.pid)
        return process.pid

    def _not_begun(self, vm: str, error: OSError) -> errors.Unavailable:
        """Take the claim back, for nothing was started: it would count as a run that was lost."""
        shutil.rmtree(self._of(vm), ignore_errors=True)
        return errors.Unavailable(f"no supervisor can be started: {error.strerror}")

    def _of(self, vm: str) -> Path:
        if not vm or "/" in vm or vm.startswith("."):
            raise ValueError(f"no VM can be called {vm!r}")
        return self._folder / vm

    def _living(self, vm: str) -> list[Noted]:
        self._reap()
        found = (self._noted_alive(vm, name) for name in ("supervisor", "tart"))
        return [noted for noted in found if noted is not None]

    def _noted_alive(self, vm: str, name: str) -> Noted | None:
        noted = self._noted(vm, name)
        is_same = noted is not None and self._system.is_same(noted.pid, noted.began)
        return noted if is_same and self._is_of_this_boot(vm) else None

    def _noted(self, vm: str, name: str) -> Noted | None:
        with contextlib.suppress(OSError, ValueError):
            pid, _, began = (self._of(vm) / name).read_text().strip().partition(" ")
            return Noted(int(pid), began.strip())
        return None

    def _is_of_this_boot(self, vm: str) -> bool:
        with contextlib.suppress(OSError):
            return (self._of(vm) / "run").read_text() == self._system.boot_id()
        return False

    def _is_settling(self, vm: str) -> bool:
        """Tell whether a supervisor may have been started that did not come to its first word yet."""
        if self._noted(vm, "supervisor") is not None or not self._is_of_this_boot(vm):
            return False
        with contextlib.suppress(OSError):
            age = self._clock.now().timestamp() - (self._of(vm) / "run").stat().st_mtime
            return abs(age) < START_LIMIT.total_seconds()
        return False

    def _reap(self) -> None:
        for pid in list(self._children):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    continue
            self._children.discard(pid)


def _ended(path: Path) -> Ended | None:
    with contextlib.suppress(OSError, ValueError):
        code, seconds = (int(word) for word in path.read_text().split())
        return Ended(_code(code), _time(seconds, path.stat().st_mtime))
    return None


def _code(told: int) -> int:
    """Return minus the signal, which a shell tells as a code above 128; so it cannot be told from such a code."""
    number = told - _SHELL_SIGNAL
    return -number if 0 < number <= _MOST_SIGNALS else told


def _time(seconds: int, written: float) -> datetime:
    """Return the time in whole seconds, or more precisely when the file was written in the same one."""
    precise = written if 0 <= written - seconds < 1 else seconds
    return datetime.fromtimestamp(precise, UTC)
