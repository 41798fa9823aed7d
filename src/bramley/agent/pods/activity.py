"""How long a Pod has been active, for its `activeDeadlineSeconds`; a host whose time of day jumps ends no Pod for it.

The time counts from the Pod's start time. That is looked at once in an agent's life; from then on only seconds count that never
jump.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bramley.agent.pods import fields
from bramley.agent.pods.means import Means
from bramley.api.pod import Pod

# Ends are dated in whole seconds, and by a clock that may be corrected a little.
_SLACK = timedelta(seconds=2)


def left(pod: Pod | None, means: Means) -> timedelta | None:
    """Return how long a Pod may still be active, below zero if it is too late; None if nothing limits it yet."""
    limit = fields.lifetime(pod) if pod is not None else None
    began = pod.status.start_time if pod is not None else None
    if pod is None or limit is None or began is None:
        return None
    notes, now = means.memory.of(pod.uid), means.clock.monotonic()
    if notes.active_since is None:
        notes.active_since = now - means.clock.age(began).total_seconds()
    return limit - timedelta(seconds=now - notes.active_since)


def is_late(pod: Pod | None, means: Means) -> bool:
    """Tell whether a Pod's active deadline has passed."""
    rest = left(pod, means)
    return rest is not None and rest <= timedelta()


def was_late(pod: Pod, at: datetime, means: Means) -> bool:
    """Tell whether it had passed at a moment that this host has dated."""
    rest = left(pod, means)
    return rest is not None and rest <= timedelta() and means.clock.age(at) <= -rest + _SLACK
