"""`tart run` under a detached supervisor: one folder per run, whose files outlive the agent and are all that the next one needs.

`run` (the boot id) and `output` (the size of the VM's log) are written before anything starts; the supervisor adds `supervisor`,
`tart` and `ended`. See supervisor.sh.
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
from bramley.agent.runs import TAIL_LINES, Run, RunExit
from bramley.agent.vm_logs import VmLogs
from bramley.base import errors, log
from bramley.base.clock import Clock

logger = log.get(__name__)

SCRIPT = Path(__file__).with_name("supervisor.sh")
START_LIMIT = timedelta(seconds=10)
_POLL_SECONDS = 0.005
_FORGOTTEN = ".forgotten-"
_SHELL_SIGNAL = 128
_MAX_SIGNAL = 64


@dataclass(frozen=True, slots=True)
class RecordedProcess:
    """A process as the supervisor recorded it."""

    pid: int
    started: str


class SupervisedRuns:
    """Starts and monitors `tart run`; implements `Runs`. `environment` is the agent's own."""

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
        for leftover in self._folder.glob(f"{_FORGOTTEN}*"):
            shutil.rmtree(leftover, ignore_errors=True)

    async def start(self, run: Run) -> None:
        """Start a run; TimedOut, after everything was killed, if it has not started within 10 s."""
        # The claim comes first: a crash after the launch must never lead to a second run of this disk.
        self._claim(run.vm)
        supervisor = self._launch(run)
        try:
            async with asyncio.timeout(START_LIMIT.total_seconds()):
                while not self._recorded(run.vm, "tart") and self._system.start_time(supervisor):  # noqa: ASYNC110 - a file of another process
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError as error:
            # The claim stays: the guest may have booted, so this disk is never started again.
            system.signal_group(supervisor, signal.SIGKILL)
            raise errors.TimedOut(f"the run of {run.vm} did not start in time") from error

    def exists(self, vm: str) -> bool:
        """Return whether a run of this name was started and not forgotten."""
        return self._run_folder(vm).exists()

    def is_alive(self, vm: str) -> bool:
        """Return whether the supervisor or its tart is alive."""
        return bool(self._living_processes(vm)) or self._is_starting(vm)

    def find_exit(self, vm: str) -> RunExit | None:
        """Return how the run ended; without a code if its supervisor was killed."""
        if not self.exists(vm):
            return None
        # Liveness must be read before the file: a dead supervisor has already written everything it ever will.
        is_alive = self.is_alive(vm)
        written = _read_exit(self._run_folder(vm) / "ended")
        return written or (None if is_alive else RunExit(None, None))

    async def wait(self, vm: str) -> RunExit:
        """Wait until the run has ended."""
        if not self.exists(vm):
            raise errors.NotFound(f"VM {vm} has no run")
        # The supervisor is awaited first, because it records the exit; only without one tart itself is.
        while (ended := self.find_exit(vm)) is None:
            living = self._living_processes(vm)
            if living:
                await fd_events.wait_for_exit(living[0].pid)
            else:
                await asyncio.sleep(_POLL_SECONDS)
        self._reap()
        return ended

    def kill(self, vm: str) -> None:
        """Kill tart; its supervisor records the exit and kills the rest of the process group."""
        supervisor, tart = self._living_process(vm, "supervisor"), self._living_process(vm, "tart")
        with contextlib.suppress(ProcessLookupError):
            # Only tart, so that its supervisor can record the exit.
            if tart and supervisor:
                os.kill(tart.pid, signal.SIGKILL)
            elif tart:
                system.signal_group(os.getpgid(tart.pid), signal.SIGKILL)
            elif supervisor:
                system.signal_group(supervisor.pid, signal.SIGKILL)

    def output_tail(self, vm: str, lines: int = TAIL_LINES) -> str:
        """Return the last lines of tart's output in this run, without passwords."""
        start = 0
        # Runs of older agents do not have this file.
        with contextlib.suppress(OSError, ValueError):
            start = int((self._run_folder(vm) / "output").read_text())
        return self._logs.tail(vm, lines, start=start)

    def forget(self, vm: str) -> None:
        """Remove the folder of a run; Conflict while it is alive."""
        if self.find_exit(vm) is None and self.exists(vm):
            raise errors.Conflict(f"the run of {vm} has not ended")
        self._reap()
        # Renamed first, which is atomic: a crash must not leave a run with only some of its files.
        renamed = self._folder / f"{_FORGOTTEN}{vm}"
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(renamed, ignore_errors=True)
            self._run_folder(vm).rename(renamed)
        shutil.rmtree(renamed, ignore_errors=True)

    def _claim(self, vm: str) -> None:
        folder = self._run_folder(vm)
        try:
            # mkdir is atomic, so only one of two concurrent starts gets the name.
            folder.mkdir(mode=0o700)
        except FileExistsError as error:
            raise errors.AlreadyExists(f"VM {vm} already has a run") from error
        try:
            # On disk before the launch: the next agent must find every run that may have started.
            atomic_file.replace(folder / "run", self._system.boot_id().encode())
            atomic_file.sync_folder(self._folder)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise errors.Unavailable(
                f"the run of {vm} cannot be recorded: {error.strerror}"
            ) from error

    def _launch(self, run: Run) -> int:
        try:
            output = self._logs.open(run.vm)
        except OSError as error:
            raise self._remove_claim(run.vm, error) from error
        try:
            # The log may contain the output of earlier runs of this name, which show nothing about this one.
            size = str(os.fstat(output).st_size).encode()
            atomic_file.replace(self._run_folder(run.vm) / "output", size, durable=False)
            process = subprocess.Popen(  # noqa: S603 - the agent chooses the program
                ["/bin/sh", str(SCRIPT), str(self._run_folder(run.vm)), *run.argv],
                env={**self._environment, **run.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            raise self._remove_claim(run.vm, error) from error
        finally:
            os.close(output)
        # Popen warns about a child that outlives it; this one is reaped by its pid.
        process.returncode = 0
        self._children.add(process.pid)
        return process.pid

    def _remove_claim(self, vm: str, error: OSError) -> errors.Unavailable:
        """Remove the claim of a run that was not started; otherwise it would count as a run whose exit is unknown."""
        shutil.rmtree(self._run_folder(vm), ignore_errors=True)
        return errors.Unavailable(f"the supervisor of {vm} cannot be started: {error.strerror}")

    def _run_folder(self, vm: str) -> Path:
        if not vm or "/" in vm or vm.startswith("."):
            raise ValueError(f"{vm!r} is not a valid VM name")
        return self._folder / vm

    def _living_processes(self, vm: str) -> list[RecordedProcess]:
        self._reap()
        processes = (self._living_process(vm, name) for name in ("supervisor", "tart"))
        return [each for each in processes if each is not None]

    def _living_process(self, vm: str, name: str) -> RecordedProcess | None:
        recorded = self._recorded(vm, name)
        if recorded is None or not self._is_of_this_boot(vm):
            return None
        return recorded if self._system.is_same_process(recorded.pid, recorded.started) else None

    def _recorded(self, vm: str, name: str) -> RecordedProcess | None:
        with contextlib.suppress(OSError, ValueError):
            pid, _, started = (self._run_folder(vm) / name).read_text().strip().partition(" ")
            return RecordedProcess(int(pid), started.strip())
        return None

    def _is_of_this_boot(self, vm: str) -> bool:
        with contextlib.suppress(OSError):
            return (self._run_folder(vm) / "run").read_text() == self._system.boot_id()
        return False

    def _is_starting(self, vm: str) -> bool:
        """Return whether a supervisor may have been started that has not recorded itself yet."""
        if self._recorded(vm, "supervisor") is not None or not self._is_of_this_boot(vm):
            return False
        with contextlib.suppress(OSError):
            age = self._clock.now().timestamp() - (self._run_folder(vm) / "run").stat().st_mtime
            return abs(age) < START_LIMIT.total_seconds()
        return False

    def _reap(self) -> None:
        for pid in list(self._children):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    continue
            self._children.discard(pid)


def _read_exit(path: Path) -> RunExit | None:
    with contextlib.suppress(OSError, ValueError):
        code, seconds = (int(word) for word in path.read_text().split())
        return RunExit(_code(code), _time(seconds, path.stat().st_mtime))
    return None


def _code(shell_code: int) -> int:
    """Return minus the signal, which a shell encodes as 128 + signal; an exit code in that range looks the same."""
    number = shell_code - _SHELL_SIGNAL
    return -number if 0 < number <= _MAX_SIGNAL else shell_code


def _time(seconds: int, modified: float) -> datetime:
    """Return the recorded second, with the fraction of the file's modification time if that is in the same second."""
    precise = modified if 0 <= modified - seconds < 1 else seconds
    return datetime.fromtimestamp(precise, UTC)
