"""What is to be done for one Mac that has a host and a login, and its status. Pure.

A Mac is bootstrapped, then its Node has to be Ready, then a VM has to boot on it; after that its configuration is kept up to date.
Each stage decides, or leaves the decision to the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from bramley.api import conditions
from bramley.api.names import conditions as types
from bramley.api.names import events
from bramley.base import errors
from bramley.machines import drift, host_proof, host_update, recovery
from bramley.machines.host_operations import Kind, Operation, Result, Unprepared
from bramley.machines.mac_draft import (
    RESYNC,
    Act,
    Decision,
    Draft,
    Observed,
    Problem,
    Settings,
    Start,
    Swap,
    count_failure,
)
from bramley.machines.outcomes import Severity
from bramley.machines.recovery import Recovery
from bramley.runtime.outcome import CheckAgain, Outcome

_MINUTE, _SOON = timedelta(minutes=1), timedelta(seconds=10)
_SECRET_RETRY = timedelta(seconds=30)
# How long a Node may be missing before its host is looked at.
_NODE_MISSING_AFTER = timedelta(minutes=2)


def decide(seen: Observed, settings: Settings) -> Decision:
    """Return what to do for a Mac."""
    draft = Draft(seen, settings, seen.status)
    found = (outcome for stage in _STAGES if (outcome := stage(draft)) is not None)
    outcome = next(found, CheckAgain(RESYNC, "the host is checked regularly"))
    _summarize(draft)
    return Decision(tuple(draft.steps), draft.status, tuple(draft.events), outcome)


def _operation(draft: Draft) -> Outcome | None:
    """Report a running operation, and the result of one that has ended."""
    state = draft.seen.operation
    draft.change(step=state.step if state is not None else "")
    if state is None:
        return None
    if state.result is not None:
        return _result(draft, state.result)
    operation = state.operation
    _observe_node(draft)
    if operation.kind is Kind.BOOTSTRAP:
        text = "the host is being set up"
        draft.put(types.BOOTSTRAPPED, events.BOOTSTRAPPING, text)
    else:
        reason = events.REPLACING_TART if operation.replace_tart else events.UPDATING
        draft.put(types.UP_TO_DATE, reason, "the host gets the desired configuration")
    return CheckAgain(RESYNC, f"the host is at the step {state.step or 'waiting'}")


def _result(draft: Draft, result: Result) -> Outcome | None:
    is_bootstrap, error = result.operation.kind is Kind.BOOTSTRAP, result.error
    if isinstance(error, Unprepared):
        type = types.BOOTSTRAPPED if is_bootstrap else types.UP_TO_DATE
        draft.put(type, error.reason, str(error), "Warning")
        if error.reason != events.BUILDER_BUSY:
            draft.add_event("Warning", error.reason, str(error))
        return CheckAgain(error.after, str(error))
    if error is not None and is_bootstrap:
        reason = (
            events.HOST_KEY_CHANGED
            if isinstance(error, errors.HostKeyChanged)
            else events.BOOTSTRAP_FAILED
        )
        count_failure(draft, reason, draft.seen.mac.describe(error))
    elif error is not None:
        _count_failed_update(draft, result.operation, draft.seen.mac.describe(error))
    else:
        _record_success(draft, result)
    return None


def _count_failed_update(draft: Draft, operation: Operation, text: str) -> None:
    attempts = draft.status.tart_kubelet_update_attempts + 1
    draft.change(tart_kubelet_update_attempts=attempts, last_update_failure_time=draft.seen.now)
    draft.put(types.UP_TO_DATE, events.AGENT_ROLL_FAILED, text, "Warning")
    draft.add_event("Warning", events.AGENT_ROLL_FAILED, f"Attempt {attempts} failed: {text}")
    if not drift.is_exhausted(attempts, draft.settings.drift):
        return
    message = f"{attempts} attempts to update the host have failed: {text}"
    draft.change(failed_host_config_hash=operation.host_config_hash)
    draft.put(types.UP_TO_DATE, events.UPDATE_EXCEEDED_RETRIES, message, "Error")
    draft.add_event("Warning", events.UPDATE_EXCEEDED_RETRIES, message)


def _record_success(draft: Draft, result: Result) -> None:
    operation = result.operation
    pending = "; ".join(result.report.pending) if result.report else ""
    draft.change(
        host_config_hash=operation.host_config_hash,
        tart_kubelet_binary_sha=draft.seen.agent_sha,
        # After an attempt that could have rebooted the host, another one would not help either.
        reboot_pending="" if operation.may_reboot else pending[:500],
    )
    draft.reset_update_failures()
    if operation.kind is Kind.BOOTSTRAP:
        draft.put(types.BOOTSTRAPPED)
        draft.add_event("Normal", events.BOOTSTRAPPED, "The host is set up")
    else:
        draft.add_event("Normal", events.AGENT_ROLLED, "The host has the desired configuration")
    if operation.replace_tart:
        draft.steps.append(Act("remove annotation"))
        draft.add_event("Normal", events.TART_REPLACED, "The host has the manager's Tart")


def _bootstrap(draft: Draft) -> Outcome | None:
    """Bootstrap the host, after failures with a reboot or another host."""
    seen, settings = draft.seen, draft.settings.recovery
    if draft.is_true(types.BOOTSTRAPPED):
        return None
    action = recovery.recovery(draft.status, settings, is_rented=seen.is_rented)
    if action is Recovery.RELEASE:
        text = f"{draft.status.bootstrap_attempts} attempts to set up the host have failed"
        draft.steps.append(Swap(events.BOOTSTRAP_EXHAUSTED, text))
        return CheckAgain(_SOON, text)
    left = recovery.wait_left(draft.status, settings, seen.now)
    if action is Recovery.REBOOT and left and not seen.is_busy:
        # Only before the next attempt, which also follows a reboot that the provider has refused.
        draft.steps.append(Act("reboot"))
        return CheckAgain(left, "the host is rebooted")
    if isinstance(seen.desired, Problem):
        return _unknown_configuration(draft, seen.desired)
    wait = max(left, seen.postponed)
    if wait:
        return CheckAgain(wait, "the last attempt has failed")
    # A host that has served may run VMs; without a Node nothing is known about them.
    is_first = not draft.status.ready
    draft.steps.append(Start(Operation(Kind.BOOTSTRAP, seen.desired, may_reboot=is_first)))
    draft.put(types.BOOTSTRAPPED, events.BOOTSTRAPPING, "the host is being set up")
    draft.add_event("Normal", events.BOOTSTRAPPING, "Setting up the host")
    return CheckAgain(RESYNC, "the host is being set up")


def _unknown_configuration(draft: Draft, problem: Problem) -> Outcome:
    """Report what is missing, with one event, and look again soon: Secrets are not watched."""
    before = conditions.find(draft.status.conditions, types.BOOTSTRAPPED)
    if before is None or before.message != problem.message:
        draft.add_event("Warning", problem.reason, problem.message)
    draft.put(types.BOOTSTRAPPED, problem.reason, problem.message, "Error")
    return CheckAgain(_SECRET_RETRY, problem.message)


def _observe_node(draft: Draft) -> tuple[str, str]:
    """Report the Node; return the reason and the message of a problem, or empty ones."""
    reason, text = _node_problem(draft.seen)
    severity: Severity = "Error" if reason == events.NAME_IN_USE else "Warning"
    draft.put(types.NODE_READY, reason, text, severity)
    return reason, text


def _node_problem(seen: Observed) -> tuple[str, str]:
    node = seen.node
    if node is None:
        return events.NODE_MISSING, f"there is no Node {seen.mac.name}"
    if not seen.mac.owns(node):
        return events.NAME_IN_USE, seen.mac.foreign_node(node)
    ready = conditions.find(node.status.conditions, types.READY)
    if ready is None or ready.status != "True":
        text = ready.message if ready is not None else "it has no condition Ready"
        return events.NODE_NOT_READY, f"the Node is not Ready: {text[:300]}"
    return "", ""


def _node(draft: Draft) -> Outcome | None:
    """Wait for the Node; one that is missing for some time has its host looked at."""
    reason, text = _observe_node(draft)
    if _is_failure(draft, reason):
        count_failure(draft, reason, text)
        return CheckAgain(recovery.RETRY, text)
    if reason == events.NODE_MISSING and _missing_for(draft) >= _NODE_MISSING_AFTER:
        draft.put(types.BOOTSTRAPPED, events.NODE_MISSING, text, "Warning")
        draft.add_event("Warning", events.NODE_MISSING, "The Node is gone; verifying the host")
        return _bootstrap(draft)
    if reason == events.NODE_MISSING:
        return CheckAgain(_NODE_MISSING_AFTER - _missing_for(draft), text)
    # A host that has served is also updated while its Node is not Ready: that may repair it. But the Node of another host must not
    # be drained for that.
    is_stopped = not draft.status.ready or reason == events.NAME_IN_USE
    return CheckAgain(_MINUTE, text) if reason and is_stopped else None


def _is_failure(draft: Draft, reason: str) -> bool:
    """Return whether the setup of a new host has failed: its Node has not become Ready."""
    limits = {
        events.NODE_MISSING: _NODE_MISSING_AFTER,
        events.NODE_NOT_READY: draft.settings.proof_timeout,
    }
    if draft.status.ready or reason not in limits:
        return False
    since = conditions.find(draft.status.conditions, types.BOOTSTRAPPED)
    begun = since.last_transition_time if since is not None else None
    return begun is not None and draft.seen.now >= begun + limits[reason]


def _missing_for(draft: Draft) -> timedelta:
    found = (
        conditions.find(draft.status.conditions, each)
        for each in (types.BOOTSTRAPPED, types.NODE_READY)
    )
    times = [each.last_transition_time for each in found if each and each.last_transition_time]
    return draft.seen.now - max(times, default=draft.seen.now)


_STAGES: tuple[Callable[[Draft], Outcome | None], ...] = (
    _operation,
    _bootstrap,
    _node,
    host_proof.prove,
    host_update.update,
)
_REQUIRED = (types.PROVISIONED, types.BOOTSTRAPPED, types.NODE_READY, types.PROVEN)


def _summarize(draft: Draft) -> None:
    """Report the condition Ready, the phase, and whether the Mac can serve; it stays so until it is released."""
    found = {each.type: each for each in draft.status.conditions}
    missing = next((type for type in _REQUIRED if not draft.is_true(type)), "")
    problem = found.get(missing)
    if problem is not None:
        draft.put(types.READY, problem.reason or "", problem.message or "", problem.severity)
    else:
        draft.put(types.READY, missing and events.NODE_NOT_READY, "", "Info")
    draft.change(ready=draft.status.ready or not missing)
    # Cluster API would copy a failure reason to the Machine and never remove it, so those of the existing provider are removed here.
    draft.change(failure_reason=None, failure_message=None)
    if draft.status.failed_host_config_hash:
        draft.change(phase="Failed")
    else:
        is_set_up = draft.is_true(types.BOOTSTRAPPED) and draft.status.ready
        draft.change(phase="Ready" if is_set_up else "Bootstrapping")
