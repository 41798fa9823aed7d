"""When a Node was last heard of, and what is said of one that is silent. Pure.

A sign of life is a change: of the Lease's renew time, or of the Ready condition's heartbeat. What either says about the time
does not matter, only when the change was seen; so wrong clocks do no harm, and a controller that starts anew waits a whole
grace before it says anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bramley.api import conditions
from bramley.api.coordination import Lease
from bramley.api.core import Node, NodeCondition

_SILENCED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True, slots=True)
class Health:
    """The last signs of life of one Node, and when they were seen."""

    uid: str
    heard_at: float
    heartbeat: datetime | None
    renewed: str | None
    was_ready_known: bool


def ready(node: Node) -> NodeCondition | None:
    """Return the Ready condition."""
    return conditions.find(node.status.conditions, "Ready")


def observe(
    before: Health | None, node: Node, lease: Lease | None, *, now: float, today: datetime
) -> Health:
    """Return what is known of the Node after this look at it."""
    known = ready(node)
    heartbeat = known.last_heartbeat_time if known else None
    renewed = lease.spec.renew_time if lease else None
    if before is None or before.uid != node.uid:
        # A Node that never said anything has had its time since it was made.
        born = node.metadata.creation_timestamp
        age = (today - born).total_seconds() if born is not None and known is None else 0.0
        heard = now if renewed is not None else now - age
        return Health(node.uid, heard, heartbeat, renewed, known is not None)
    is_news = (
        before.was_ready_known != (known is not None)
        or (known is not None and before.heartbeat != heartbeat)
        or (renewed is not None and renewed > (before.renewed or ""))
    )
    return replace(
        before,
        heard_at=now if is_news else before.heard_at,
        heartbeat=heartbeat,
        renewed=renewed if renewed is not None else before.renewed,
        was_ready_known=known is not None,
    )


def is_silent(health: Health, *, now: float, grace: timedelta) -> bool:
    """Tell whether the Node has not been heard of for longer than its grace."""
    return now - health.heard_at > grace.total_seconds()


def silenced(node: Node, *, today: datetime) -> list[NodeCondition]:
    """Return the Node's conditions as they are once nobody can tell any more."""
    today = today.replace(microsecond=0)
    after = list(node.status.conditions)
    for type in _SILENCED:
        found = conditions.find(after, type)
        if found is None:
            after.append(
                NodeCondition(
                    type=type,
                    status="Unknown",
                    reason="NodeStatusNeverUpdated",
                    message="Kubelet never posted node status.",
                    last_heartbeat_time=node.metadata.creation_timestamp,
                    last_transition_time=today,
                )
            )
        elif found.status != "Unknown":
            unknown = NodeCondition(
                type=type,
                status="Unknown",
                reason="NodeStatusUnknown",
                message="Kubelet stopped posting node status.",
                last_heartbeat_time=found.last_heartbeat_time,
                last_transition_time=today,
            )
            after = [unknown if one.type == type else one for one in after]
    return after
