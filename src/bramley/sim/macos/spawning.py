"""Who runs what launchd of a simulated Mac starts: the seam, and the side of it that only pretends to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bramley.sim.macos import programs
from bramley.sim.macos.call import Call

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

# As launchd keeps it in the state, see launchd.read_job.
Job = dict[str, Any]
# EX_CONFIG, which launchd tells of a job whose program is not there.
NO_PROGRAM = 78
WITH_MACOS = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/libexec/", "/System/")


@dataclass(frozen=True, slots=True)
class Exited:
    """A program that has ended already."""

    code: int


class Spawner(Protocol):
    """Runs programs of jobs; both are called within a change of the Mac's state."""

    def start(self, mac: Mac, state: dict[str, Any], target: str) -> int | Exited:
        """Start a job's program and return its process id; of its end, launchd.ended is told later."""
        ...

    def stop(self, mac: Mac, pid: int) -> None:
        """End a process; launchd.ended is not told of that."""
        ...


class Pretending:
    """Gives jobs that are kept alive a process id; what others start, if it is a program of the Mac, runs to its end at once."""

    def start(self, mac: Mac, state: dict[str, Any], target: str) -> int | Exited:
        """Pretend that a program runs, or run it."""
        job = state["launchd"]["jobs"][target]
        if job["label"] in state["launchd"]["crashing"]:
            return Exited(state["launchd"]["crashing"][job["label"]])
        program = job["program"] or job["arguments"][0]
        if not program.startswith(WITH_MACOS) and not mac.files.is_executable(program):
            return Exited(NO_PROGRAM)
        if job["keep_alive"] or programs.find(program.rpartition("/")[2]) is None:
            state["launchd"]["last_pid_count"] += 1
            return int(state["launchd"]["last_pid_count"])
        return Exited(mac.run(Call(tuple(job["arguments"]), job["user"] or "root")).code)

    def stop(self, mac: Mac, pid: int) -> None:
        """Pretend no longer."""
        del mac, pid
