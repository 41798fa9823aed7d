"""Which Pods go first when there are too many: those whose loss hurts least. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from bramley.api.core import Pod
from bramley.api.pod import PodCondition

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_ENDED = frozenset({"Succeeded", "Failed"})

Rank = tuple[int, int, int, int, int, int, str, int, float]


def is_active(pod: Pod) -> bool:
    """Tell whether a Pod counts: it has not ended and is not ending."""
    return not pod.deleting and pod.status.phase not in _ENDED


def ready_condition(pod: Pod) -> PodCondition | None:
    """Return the condition that says since when a Pod is ready, if it is."""
    found = (each for each in pod.status.conditions if each.type == "Ready")
    ready = next(found, None)
    return ready if ready is not None and ready.status == "True" else None


def first_to_go(
    pods: Sequence[Pod], related: Iterable[Pod], *, count: int, now: datetime
) -> list[Pod]:
    """Return this many of the Pods, those first whose loss hurts least."""
    if count >= len(pods):
        return list(pods)
    # Pods of the same family on one Node: the more crowded it is, the sooner one of them goes.
    crowds = Counter(each.spec.node_name for each in related if is_active(each))
    ranked = sorted(pods, key=lambda pod: _rank(pod, crowds[pod.spec.node_name], now))
    return ranked[:count]


def _rank(pod: Pod, crowd: int, now: datetime) -> Rank:
    ready = ready_condition(pod)
    since = ready.last_transition_time if ready is not None else None
    created = pod.metadata.creation_timestamp
    return (
        1 if pod.spec.node_name else 0,
        _PHASES.get(pod.status.phase, 0),
        1 if ready is not None else 0,
        _cost(pod),
        -crowd,
        _age_rank(since, now) if ready is not None else 0,
        # Among those that are ready for about as long, chance decides, and the uid is chance enough.
        pod.uid if ready is not None else "",
        -max((each.restart_count for each in pod.status.container_statuses), default=0),
        -created.timestamp() if created is not None else -math.inf,
    )


def _age_rank(since: datetime | None, now: datetime) -> int:
    """Return the order of magnitude of an age; what is unknown or lies ahead counts as newest."""
    if since is None:
        return -1
    seconds = (now - since).total_seconds()
    return int(math.log2(seconds * 1e9)) if seconds > 0 else 0


def _cost(pod: Pod) -> int:
    text = pod.metadata.annotations.get(DELETION_COST, "")
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() else 0
