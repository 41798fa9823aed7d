"""The drain of a Node by the manager: it is cordoned, idle runners are retired by their pool, and running jobs finish. Pure."""

from __future__ import annotations

from datetime import timedelta

from bramley.api.names import events
from bramley.machines import drain
from bramley.machines.mac_draft import Act, Draft, Evict
from bramley.runtime.outcome import CheckAgain

# How often the Pods of a drained Node are read.
_RETRY = timedelta(seconds=10)
# The scheduler may have decided to bind a Pod just before it observed the cordon.
_CORDON_SETTLES = timedelta(seconds=3)


def wait(draft: Draft, *, timeout: timedelta | None = None) -> CheckAgain | None:
    """Return what the drain of the Node waits for; None once it has no Pods, or the timeout has passed."""
    node, now = draft.seen.node, draft.seen.now
    started = draft.status.drain_start_time
    if started is None:
        started = now
        draft.change(drain_start_time=now)
        draft.add_event("Normal", events.DRAINING, f"Draining the Node {draft.seen.mac.name}")
    plan = drain.plan(node, draft.seen.pods)
    if plan.remaining and timeout is not None and is_over(draft, timeout):
        text = f"Pods are left after {timeout.total_seconds() / 60:.0f} min"
        draft.add_event("Warning", events.DRAIN_TIMED_OUT, text)
        return None
    if node is not None and not node.spec.unschedulable:
        draft.steps.append(Act("cordon"))
        # Also when a person has uncordoned it meanwhile: the last cordon has to settle.
        draft.change(drain_start_time=now)
        return CheckAgain(_CORDON_SETTLES, "The Node was cordoned")
    if plan.remaining:
        draft.steps += map(Evict, plan.evict)
        return CheckAgain(_RETRY, plan.message)
    left = started + _CORDON_SETTLES - now
    # The scheduler binds nothing to a Node that does not exist.
    if node is None or left <= timedelta():
        return None
    return CheckAgain(left, "The Node was cordoned")


def is_over(draft: Draft, timeout: timedelta | None) -> bool:
    """Return whether a drain that has begun has used up its time."""
    started = draft.status.drain_start_time
    return timeout is not None and started is not None and draft.seen.now >= started + timeout
