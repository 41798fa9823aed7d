"""launchd's jobs as real processes in the Mac's root; which ones run, and when again, is the model's matter.

A job that is asked to end gets SIGTERM, and the next one of its label begins when it has gone; what it leaves behind in its
own process group is killed, as launchd does. Programs that come with macOS and are not there are pretended.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

from bramley.base import log
from bramley.sim.macos import launchd, users
from bramley.sim.macos.launchd import NO_PROGRAM, Exited, Job
from bramley.sim.macos.mac import Mac
from bramley.sim.ssh import processes
from bramley.sim.ssh.processes import Identity, Processes, Start

logger = log.get(__name__)

_SEARCH_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
_OF_MACOS = ("/System/", "/usr/libexec/")


class ProcessSpawner:
    """Runs the jobs of one Mac."""

    def __init__(self) -> None:
        self.processes: Processes | None = None
        self._targets: dict[int, str] = {}
        # Processes that were asked to end, by the job that they belong to.
        self._leaving: dict[str, int] = {}

    def booted(self, processes: Processes) -> None:
        """Run jobs there from now on; whatever ran before is gone."""
        self.processes = processes
        self._targets.clear()
        self._leaving.clear()

    def start(self, mac: Mac, state: dict[str, Any], target: str) -> int | Exited:
        """Start a job's program."""
        job = state["launchd"]["jobs"][target]
        crash = state["launchd"].get("crashing", {}).get(job["label"])
        if crash is not None:
            return Exited(crash)
        if self.processes is None or (job["program"] or job["arguments"][0]).startswith(_OF_MACOS):
            state["launchd"]["last_pid_count"] += 1
            return int(state["launchd"]["last_pid_count"])
        try:
            return self._start(mac, state, target)
        except (OSError, LookupError) as error:
            logger.info("Job cannot start", mac=mac.root.name, job=target, error=str(error))
            return Exited(NO_PROGRAM)

    def stop(self, mac: Mac, pid: int) -> None:
        """Ask a process to end."""
        del mac
        target = self._targets.pop(pid, None)
        if target is not None and self.processes is not None:
            self._leaving[target] = pid
            self.processes.signal(pid, signal.SIGTERM)

    def _start(self, mac: Mac, state: dict[str, Any], target: str) -> int:
        assert self.processes is not None  # noqa: S101 - for the type checker; asked before
        job, processes = state["launchd"]["jobs"][target], self.processes
        who = _user(state, target, job)
        with _standard_files(mac, job) as files:
            start = Start(
                argv=[job["program"] or job["arguments"][0], *job["arguments"][1:]],
                who=who,
                files=files,
                environment=_environment(state, who, job),
                folder=job["folder"],
                after=self._leaving.get(target, 0),
            )
            pid = processes.start(start, lambda code: self._ended(mac, processes, pid, code))
        self._targets[pid] = target
        return pid

    def _ended(self, mac: Mac, processes: Processes, pid: int, code: int) -> None:
        with contextlib.suppress(OSError):
            processes.signal(pid, signal.SIGKILL, group=True)
        for target in [job for job, leaving in self._leaving.items() if leaving == pid]:
            del self._leaving[target]
        ended = self._targets.pop(pid, None)
        if ended is not None and processes is self.processes:
            with mac.change() as state:
                launchd.ended(mac, state, ended, code)


def _user(state: dict[str, Any], target: str, job: Job) -> Identity:
    kind, _, rest = target.partition("/")
    if kind in {"gui", "user"}:
        name = users.name_of(state, int(rest.partition("/")[0]))
        return processes.identity_of(state, name or "")
    return processes.identity_of(state, job["user"] or "root")


def _environment(state: dict[str, Any], who: Identity, job: Job) -> dict[str, str]:
    mine = {"PATH": _SEARCH_PATH, "USER": who.name, "LOGNAME": who.name}
    return {**mine, "HOME": users.home_of(state, who.name), **job["environment"]}


@contextlib.contextmanager
def _standard_files(mac: Mac, job: Job) -> Iterator[tuple[int, int, int]]:
    """Open a job's input and its logs."""
    with contextlib.ExitStack() as stack:
        numbers = []
        for path in ("/dev/null", job["out"], job["err"]):
            place = "/dev/null" if path == "/dev/null" else str(mac.files.at(path))
            number = os.open(place, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            stack.callback(os.close, number)
            numbers.append(number)
        yield numbers[0], numbers[1], numbers[2]
