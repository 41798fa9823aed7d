"""launchd's jobs as real processes in the Mac's root; the model decides which ones run, and when they are restarted.

A job that is stopped gets SIGTERM, and the next process of its label starts when it has exited; the rest of its process group is killed,
as by launchd. Programs of macOS that the sandbox does not have only get a pid.
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
from bramley.sim.ssh.processes import Identity, Processes, ProcessSpec
from bramley.sim.ssh.sandbox import SEARCH_PATH

logger = log.get(__name__)

_OF_MACOS = ("/System/", "/usr/libexec/")


class ProcessSpawner:
    """Runs the jobs of one Mac."""

    def __init__(self) -> None:
        self.processes: Processes | None = None
        self._targets: dict[int, str] = {}
        # Processes that were sent SIGTERM, by the target of their job.
        self._stopping: dict[str, int] = {}

    def on_boot(self, processes: Processes) -> None:
        """Use these processes from now on; those of the last boot are gone."""
        self.processes = processes
        self._targets.clear()
        self._stopping.clear()

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
            logger.info("Job did not start", mac=mac.root.name, job=target, error=str(error))
            return Exited(NO_PROGRAM)

    def stop(self, mac: Mac, pid: int) -> None:
        """Send SIGTERM to a process."""
        del mac
        target = self._targets.pop(pid, None)
        if target is not None and self.processes is not None:
            self._stopping[target] = pid
            self.processes.signal(pid, signal.SIGTERM)

    def _start(self, mac: Mac, state: dict[str, Any], target: str) -> int:
        assert self.processes is not None  # noqa: S101 - for the type checker; `start` checks it
        job, processes = state["launchd"]["jobs"][target], self.processes
        user = _user(state, target, job)
        with _standard_files(mac, job) as files:
            start = ProcessSpec(
                argv=[job["program"] or job["arguments"][0], *job["arguments"][1:]],
                user=user,
                files=files,
                environment=_environment(state, user, job),
                folder=job["folder"],
                after=self._stopping.get(target, 0),
            )
            pid = processes.start(start, lambda code: self._on_exit(mac, processes, pid, code))
        self._targets[pid] = target
        return pid

    def _on_exit(self, mac: Mac, processes: Processes, pid: int, code: int) -> None:
        with contextlib.suppress(OSError):
            processes.signal(pid, signal.SIGKILL, group=True)
        for target in [job for job, stopping in self._stopping.items() if stopping == pid]:
            del self._stopping[target]
        ended = self._targets.pop(pid, None)
        if ended is not None and processes is self.processes:
            with mac.change() as state:
                launchd.on_exit(mac, state, ended, code)


def _user(state: dict[str, Any], target: str, job: Job) -> Identity:
    kind, _, rest = target.partition("/")
    if kind in {"gui", "user"}:
        name = users.name_of(state, int(rest.partition("/")[0]))
        return processes.identity_of(state, name or "")
    return processes.identity_of(state, job["user"] or "root")


def _environment(state: dict[str, Any], user: Identity, job: Job) -> dict[str, str]:
    own = {"PATH": SEARCH_PATH, "USER": user.name, "LOGNAME": user.name}
    return {**own, "HOME": users.home_of(state, user.name), **job["environment"]}


@contextlib.contextmanager
def _standard_files(mac: Mac, job: Job) -> Iterator[tuple[int, int, int]]:
    """Open the standard files of a job."""
    with contextlib.ExitStack() as stack:
        descriptors = []
        for path in ("/dev/null", job["out"], job["err"]):
            local_path = "/dev/null" if path == "/dev/null" else str(mac.files.at(path))
            descriptor = os.open(local_path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            stack.callback(os.close, descriptor)
            descriptors.append(descriptor)
        yield descriptors[0], descriptors[1], descriptors[2]
