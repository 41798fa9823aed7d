"""What decisions about one Mac are made from and what they consist of, and a decision that is being made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec.structs import replace

from bramley.api import conditions
from bramley.api.core import Node, Pod
from bramley.api.mac_status import MacStatus
from bramley.api.names import annotations as annotation_names
from bramley.api.names import conditions as types
from bramley.machines import drift, recovery
from bramley.machines.host_operations import Operation, State
from bramley.machines.mac import Mac
from bramley.machines.objects import put_condition
from bramley.machines.outcomes import MachineEvent, Severity
from bramley.machines.smoke_vm import SmokeImage
from bramley.runtime.events import EventType
from bramley.runtime.outcome import Outcome

RESYNC = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The limits of all decisions."""

    recovery: recovery.Settings = field(default_factory=recovery.Settings)
    drift: drift.Settings = field(default_factory=drift.Settings)
    proof_timeout: timedelta = timedelta(minutes=30)
    # How long the drain of a host before its release may take; None: as long as its jobs.
    drain_timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the desired configuration is not known."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A Mac and what it depends on."""

    mac: Mac
    status: MacStatus
    now: datetime
    # The hash of the desired configuration, or why there is none.
    desired: str | Problem
    agent_sha: str = ""
    is_rented: bool = True
    annotations: frozenset[str] = frozenset()
    operation: State | None = None
    # How long no operation may begin, after one that could not.
    postponed: timedelta = timedelta()
    node: Node | None = None
    # Of the Node, read for a Mac that needs maintenance.
    pods: Sequence[Pod] = ()
    # Whether a runner of the Node has a job.
    is_busy: bool = False
    smoke_pod: Pod | None = None
    smoke_image: SmokeImage | None = None
    # Of a builder; None if it is not known.
    is_runner_online: bool | None = None
    fleet: Sequence[drift.Member] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """Start an operation on the host."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict one Pod."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Swap:
    """Release the host and get another one."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Act:
    """An act without further parameters."""

    kind: Literal[
        "cordon",
        "uncordon",
        "create smoke Pod",
        "delete smoke Pod",
        "reboot",
        "remove taint",
        "remove annotation",
    ]


Step = Start | Evict | Swap | Act


@dataclass(frozen=True, slots=True)
class Decision:
    """The steps in order, the status and the events to report, and when to look again."""

    steps: tuple[Step, ...]
    status: MacStatus
    events: tuple[MachineEvent, ...]
    outcome: Outcome


@dataclass(slots=True)
class Draft:
    """A decision that is being made."""

    seen: Observed
    settings: Settings
    status: MacStatus
    steps: list[Step] = field(default_factory=list)
    events: list[MachineEvent] = field(default_factory=list)

    def change(self, **fields: Any) -> None:
        """Change fields of the status."""
        self.status = replace(self.status, **fields)

    def reset_update_failures(self) -> None:
        """Drop what the status says about failed updates."""
        self.change(
            tart_kubelet_update_attempts=0,
            last_update_failure_time=None,
            failed_host_config_hash="",
        )

    def put(
        self, type: str, problem: str = "", message: str = "", severity: Severity = "Info"
    ) -> None:
        """Set a condition, which is true without a problem."""
        found = put_condition(
            self.status.conditions,
            type,
            problem,
            message=message,
            severity=severity,
            now=self.seen.now,
        )
        self.change(conditions=found)

    def is_true(self, type: str) -> bool:
        """Return whether a condition is true."""
        return conditions.is_true(self.status.conditions, type)

    def add_event(self, type: EventType, reason: str, message: str) -> None:
        """Add an event to report."""
        self.events.append(MachineEvent(type, reason, message))


def is_cordoned(node: Node | None) -> bool:
    """Return whether the manager has cordoned a Node."""
    return (
        node is not None
        and node.spec.unschedulable
        and annotation_names.CORDONED_BY in node.metadata.annotations
    )


def count_failure(draft: Draft, reason: str, text: str) -> None:
    """Count a failed attempt to make the host a proven Node."""
    attempts = draft.status.bootstrap_attempts + 1
    draft.change(bootstrap_attempts=attempts, last_bootstrap_failure_time=draft.seen.now)
    draft.put(types.BOOTSTRAPPED, reason, text, "Warning")
    draft.add_event("Warning", reason, f"Attempt {attempts} failed: {text}")
