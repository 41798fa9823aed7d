"""The interfaces between the endpoints and the host: the logs of Pods, and the resource usage of this Node and its Pods.

`pod_logs` and `stats` implement them. A source covers only the Pods of this Node, and raises NotFound for every other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from bramley.agent.host import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """The log of a container, and the options of the request."""

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
    """One line without its newline, and when it was first seen."""

    at: datetime
    text: bytes


class LogSource(Protocol):
    """Reads the logs of Pods.

    Guarantees: tail and since are applied; lines and batches are bounded; a followed log ends when the VM has ended; closing the
    iterator closes its files.
    Errors: NotFound for a Pod that is not on this Node or has no such container, Refused for a log that is not available.
    """

    def batches(self, request: LogRequest) -> AsyncGenerator[Sequence[Line], None]:
        """Return the lines of a log in batches; errors are raised by the call itself, not by the iterator."""
        ...


@dataclass(frozen=True, slots=True)
class UsageSample:
    """Resource usage at a time: total CPU time, cores in use (None if not known yet) and memory."""

    at: datetime
    cpu_seconds: float
    cores: float | None
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """The resource usage of one Pod's VM."""

    namespace: str
    pod: str
    uid: str
    container: str
    started_at: datetime | None
    used: UsageSample


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """The resource usage of this Node: VMs and agent in total, each VM, and the disk."""

    node: str
    started_at: datetime
    used: UsageSample
    pods: Sequence[PodUsage]
    disk: Space | None = None


class StatsSource(Protocol):
    """Provides the last measurement of resource usage."""

    def usage(self) -> NodeUsage:
        """Return the last measurement."""
        ...
