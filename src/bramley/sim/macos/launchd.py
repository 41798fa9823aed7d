"""launchd of a simulated Mac: the jobs of its domains, and what keeps them alive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

Job = dict[str, Any]


class Spawner(Protocol):
    """Runs what launchd starts."""

    def start(self, mac: Mac, target: str, job: Job) -> int:
        """Start a job's program and return its process id; `ended` is told when it has ended."""
        ...

    def stop(self, mac: Mac, pid: int) -> None:
        """End a process of a job; `ended` is not told of it."""
        ...


class Pretending:
    """Gives jobs a process id and nothing more."""

    def start(self, mac: Mac, target: str, job: Job) -> int:
        """Pretend that it runs."""
        del mac, target, job
        return 0

    def stop(self, mac: Mac, pid: int) -> None:
        """Pretend no longer."""
        del mac, pid


def is_due(state: Mapping[str, Any], now: float) -> bool:
    """Tell whether a job is to be started by now."""
    del state, now
    return False


def settle(mac: Mac, state: dict[str, Any]) -> None:
    """Start what is due."""
    del mac, state
