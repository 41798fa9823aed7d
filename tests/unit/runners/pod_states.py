"""States of pools for tests of the plan of their Pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from bramley.api.runner_pool_status import DrainTicket, Slot
from bramley.runners.pod_plan import PodPlan, PodState
from bramley.runners.pod_timeouts import Why
from bramley.runners.pods import RunnerPod
from bramley.runners.roll import RollState, Room
from tests.unit.runners.builders import NEW, NOW, OLD, in_slots


def a_state(
    pods: Iterable[RunnerPod] = (),
    *,
    replicas: int | None = None,
    target: str = NEW,
    room: int = 1,
    slots: Sequence[Slot] | None = None,
    tickets: Sequence[DrainTicket] = (),
    **changes: Any,
) -> PodState:
    """Return the state of a pool that rolls from the old to the new image; every host has both."""
    placed, own_slots = in_slots(pods)
    if slots is not None:
        placed, own_slots = tuple(pods), list(slots)
    return PodState(
        roll=RollState(
            percent=5,
            replicas=len(placed) if replicas is None else replicas,
            target=target,
            pods=placed,
            slots=own_slots,
            draining=frozenset(ticket.pod for ticket in tickets),
        ),
        slots=own_slots,
        tickets=tickets,
        room=Room(room, room, room),
        **{**_defaults(placed), **changes},
    )


def _defaults(pods: Sequence[RunnerPod]) -> dict[str, Any]:
    return {
        "last_good": OLD,
        "free": 100,
        "target_slots": 100,
        "requires_golden": False,
        "drainable_hosts": frozenset(pod.node for pod in pods),
        "cordoned_hosts": frozenset(),
        "unreachable_hosts": frozenset(),
        "owed": 0,
        "deletes_drained": False,
        "silent_pods": frozenset(),
        "tried_image": "",
        "waiting_since": {},
        "now": NOW,
    }


def created(plan: PodPlan) -> list[tuple[int, int, str, str]]:
    """Return slot, counter, image and reason of the Pods to create."""
    return [
        (
            each.slot,
            each.counter,
            "new" if each.pending.image == NEW else "old",
            each.pending.created_for,
        )
        for each in sorted(plan.create, key=lambda each: each.slot)
    ]


def deleted(plan: PodPlan) -> list[tuple[str, Why]]:
    return [(each.pod.name, each.why) for each in plan.delete]


def names(pods: Iterable[RunnerPod]) -> list[str]:
    return [pod.name for pod in pods]


def ticket(pod: str, since: datetime = NOW) -> DrainTicket:
    return DrainTicket(pod=pod, since=since)
