"""Updates of hosts that serve, at the pace of their fleet; what interrupts VMs waits until the host runs none. Pure."""

from __future__ import annotations

from datetime import timedelta

from bramley.api import conditions
from bramley.api.mac_status import MacStatus
from bramley.api.names import annotations as annotation_names
from bramley.api.names import conditions as types
from bramley.api.names import events
from bramley.machines import drift, node_drain
from bramley.machines.host_operations import Kind, Operation
from bramley.machines.mac_draft import RESYNC, Act, Draft, Problem, Start, is_cordoned
from bramley.runtime.outcome import CheckAgain, Outcome

# How long an agent may not report before its host is looked at, and between two such looks.
_SILENT_AFTER = timedelta(minutes=10)


def needs_drain(status: MacStatus, annotations: frozenset[str]) -> bool:
    """Return whether an update has to wait until the host runs no VM."""
    return bool(status.reboot_pending) or annotation_names.REPLACE_TART in annotations


def _replaces_tart(draft: Draft) -> bool:
    """Return whether Tart is still to be replaced; the annotation is removed after the status is written."""
    is_done = Act("remove annotation") in draft.steps
    return annotation_names.REPLACE_TART in draft.seen.annotations and not is_done


def update(draft: Draft) -> Outcome | None:
    """Bring the host to the desired configuration, at the pace of its fleet."""
    seen = draft.seen
    if isinstance(seen.desired, Problem):
        draft.put(types.UP_TO_DATE, seen.desired.reason, seen.desired.message, "Warning")
        return None
    needs_idle = bool(draft.status.reboot_pending) or _replaces_tart(draft)
    is_current = seen.desired == draft.status.host_config_hash and not needs_idle
    if is_current and not _is_silent(draft):
        draft.put(types.UP_TO_DATE)
        draft.reset_update_failures()
        _end_drain(draft)
        return None
    if drift.is_terminal(draft.status, seen.desired, seen.now, draft.settings.drift):
        # Its condition stays as it was set with the last failure.
        _end_drain(draft)
        return CheckAgain(RESYNC, "the attempts to update the host are used up")
    _lift_terminal(draft)
    wait = max(drift.wait_left(draft.status, seen.now), seen.postponed)
    if wait:
        return CheckAgain(wait, "the last update has failed")
    refusal = drift.refusal(seen.mac.name, seen.fleet, draft.settings.drift)
    if refusal is not None and not is_cordoned(seen.node):
        draft.put(types.UP_TO_DATE, refusal.reason, refusal.message)
        return CheckAgain(timedelta(minutes=1), refusal.message)
    return _start_when_idle(draft, seen.desired) if needs_idle else _start(draft, seen.desired)


def _is_silent(draft: Draft) -> bool:
    """Return whether the agent does not report, and the host was not looked at for a while.

    If all tokens of an agent have expired, as after days without a network, only another kubeconfig brings it back.
    """
    node = draft.seen.node
    ready = conditions.find(node.status.conditions, types.READY) if node is not None else None
    if ready is None or ready.status != "Unknown":
        return False
    found = (
        conditions.find(draft.status.conditions, each)
        for each in (types.NODE_READY, types.UP_TO_DATE)
    )
    times = [each.last_transition_time for each in found if each and each.last_transition_time]
    return draft.seen.now >= max(times, default=draft.seen.now) + _SILENT_AFTER


def _lift_terminal(draft: Draft) -> None:
    if draft.status.failed_host_config_hash:
        draft.reset_update_failures()
        draft.add_event("Normal", events.AGENT_ROLL_RETRIED, "Trying to update the host again")


def _start(draft: Draft, desired: str) -> Outcome:
    draft.steps.append(Start(Operation(Kind.UPDATE, desired, may_reboot=False)))
    draft.put(types.UP_TO_DATE, events.UPDATING, "the host gets the desired configuration")
    return CheckAgain(RESYNC, "the host is being updated")


def _start_when_idle(draft: Draft, desired: str) -> Outcome:
    """Drain the Node, and then update the host with all that interrupts VMs."""
    replaces = _replaces_tart(draft)
    reason = events.REPLACING_TART if replaces else events.REBOOT_PENDING
    waiting = node_drain.wait(draft)
    if waiting is not None:
        draft.put(types.UP_TO_DATE, reason, f"The Node is drained first. {waiting.why}")
        return waiting
    operation = Operation(Kind.UPDATE, desired, replace_tart=replaces, may_reboot=True)
    draft.steps.append(Start(operation))
    draft.put(types.UP_TO_DATE, reason, "The host gets the desired configuration")
    return CheckAgain(RESYNC, "the host is being updated")


def _end_drain(draft: Draft) -> None:
    """Uncordon the Node if the manager has cordoned it; the time of this drain must not count for the next one."""
    node = draft.seen.node
    # Also one that a person has uncordoned: otherwise a later cordon of a person would look like the manager's.
    if node is not None and annotation_names.CORDONED_BY in node.metadata.annotations:
        draft.steps.append(Act("uncordon"))
    draft.change(drain_start_time=None)
