"""The seams below the endpoints: where a Pod's log comes from, and what this Node and its Pods use.

`pod_logs` and `sampling` have the real sides. A source knows the Pods of this Node only: of every other it says NotFound.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from bramley.agent.host import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """Which part of which log; what is None or false was not asked for."""

    namespace: str
    pod: str
    container: str
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end, and when it was seen."""

    at: datetime
    text: bytes


class LogSource(Protocol):
    """Finds logs.

    Guarantees: tail and since are applied; lines and batches of them are bounded; a followed log ends when the VM has
    ended; closing the iterator gives back what it holds.
    Errors: NotFound for a Pod that is not here or has no such container, Refused for a log that cannot be had.
    """

    def batches(self, wanted: LogRequest) -> AsyncGenerator[Sequence[Line], None]:
        """Return the lines of a log, those together that are there together; errors come from the call itself."""
        ...


@dataclass(frozen=True, slots=True)
class Used:
    """What somebody used up to a moment: CPU time so far, cores at that moment (None: not known yet), memory."""

    at: datetime
    cpu_seconds: float
    cores: float | None
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """What the VM of one Pod uses."""

    namespace: str
    pod: str
    uid: str
    container: str
    started_at: datetime | None
    used: Used


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """What this Node uses: its VMs and its agent together, each VM, and the room on its disk."""

    node: str
    started_at: datetime
    used: Used
    pods: Sequence[PodUsage]
    disk: Space | None = None


class StatsSource(Protocol):
    """Tells what is used; quick, for it answers from what was measured last."""

    def usage(self) -> NodeUsage:
        """Return the last measurement."""
        ...
