"""Explains one Mac, rented or owned: what it waits for, since when, and what happens next, from the API's objects alone. Pure.

The stages are those of `mac_decision`, in the same order. Limits that are flags of the manager are assumed to have their defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.api import conditions
from bramley.api.mac_status import MachineCondition
from bramley.api.names import annotations as annotation_names
from bramley.api.names import conditions as types
from bramley.api.names import events, labels
from bramley.base.explanation import Explanation, length
from bramley.machines import drift, objects, recovery
from bramley.machines.explanation_facts import (
    MacFacts,
    has_job,
    host_notes,
    notes,
    pod_notes,
    problems,
)
from bramley.machines.recovery import Recovery

_UPDATING = frozenset({events.UPDATING, events.REPLACING_TART, events.REBOOT_PENDING})
_WAITING = frozenset({events.WAITING_FOR_CANARY, events.WAITING_FOR_SLOT, events.CANARY_FAILED})
_MANAGER = "the manager: check that bramley machines runs and leads"


@dataclass(frozen=True, slots=True)
class _Stage:
    summary: str
    since: datetime | None = None
    waits_for: tuple[str, ...] = ()
    next: str = ""


def explain_mac(facts: MacFacts, *, now: datetime) -> Explanation:
    """Return the explanation of a machine or MacHost."""
    mac = facts.mac
    found = (stage for each in _STAGES if (stage := each(facts, now)) is not None)
    stage = next(found, _serving(facts))
    kind = "machine" if facts.is_rented else "machost"
    return Explanation(
        subject=f"{kind} {mac.namespace}/{mac.name}",
        state="Deleting" if mac.deleting else facts.status.phase or "New",
        summary=stage.summary,
        since=stage.since,
        waits_for=stage.waits_for,
        next=stage.next,
        problems=tuple(problems(facts)),
        notes=tuple(notes(facts)),
        pods=tuple(pod_notes(facts)),
        hosts=tuple(host_notes(facts)),
        events=facts.events,
    )


def _deleting(facts: MacFacts, _now: datetime) -> _Stage | None:
    if not facts.mac.deleting:
        return None
    draining = facts.remaining_work()
    if facts.is_rented:
        then = "the agent's identity is revoked, the host is wiped and goes back to the pool, and the Node is deleted"
    else:
        then = "the agent's identity is revoked, everything but Tart is removed from the Mac, and the Node is deleted"
    since = facts.mac.metadata.deletion_timestamp
    failed = facts.condition(types.PROVISIONED)
    if not draining and failed is not None and failed.status == "False":
        return _Stage("it is being deleted", since, (failed.message or failed.reason or "",), then)
    return _Stage("it is being deleted", since, draining or (_MANAGER,), then)


def _paused(facts: MacFacts, _now: datetime) -> _Stage | None:
    if not objects.is_paused(facts.mac, facts.cluster):
        return None
    if annotation_names.PAUSED in facts.mac.metadata.annotations:
        command = facts.annotate(f"{annotation_names.PAUSED}-")
        return _Stage("it is paused, and left as it is", waits_for=(command,))
    name = facts.cluster.name if facts.cluster is not None else ""
    return _Stage(f"its Cluster {name} is paused", waits_for=(f"spec.paused of Cluster {name}",))


def _gated(facts: MacFacts, _now: datetime) -> _Stage | None:
    name = facts.cluster_name
    if not name:
        return None
    if facts.cluster is None:
        return _Stage(
            "its Cluster is missing", waits_for=(f"Cluster {name}, which does not exist",)
        )
    if not facts.cluster.status.infrastructure_ready:
        waiting = f"status.infrastructureReady of Cluster {name}, which follows its TuistCluster"
        return _Stage("its Cluster is not ready", waits_for=(waiting,))
    return None


def _unobserved(facts: MacFacts, _now: datetime) -> _Stage | None:
    if facts.status.conditions:
        return None
    since = facts.mac.metadata.creation_timestamp
    return _Stage("the manager has not acted on it", since, (_MANAGER,))


def _swapped(facts: MacFacts, _now: datetime) -> _Stage | None:
    marks = facts.mac.metadata.annotations
    names = (annotation_names.QUARANTINE_HOST, annotation_names.RELEASE_HOST)
    requested = next((each for each in names if each in marks), None)
    if requested is None or not facts.is_rented:
        return None
    is_quarantine = requested == annotation_names.QUARANTINE_HOST
    then = "the host is wiped and goes back to the pool, and the machine gets another one"
    return _Stage(
        f"its host is being {'quarantined' if is_quarantine else 'released'} by the annotation {requested}",
        facts.status.drain_start_time,
        facts.remaining_work() or (_MANAGER,),
        f"{then}; that host is not adopted again" if is_quarantine else then,
    )


def _unprovisioned(facts: MacFacts, _now: datetime) -> _Stage | None:
    if facts.is_true(types.PROVISIONED):
        return None
    found = facts.condition(types.PROVISIONED)
    reason, text = (found.reason or "", found.message or "") if found is not None else ("", "")
    then = {
        events.HOST_NAME_CHANGED: "rename the host back at the provider, or release it",
        events.HOST_GONE: "release the host by the annotation, or delete the machine",
        events.NO_AVAILABLE_HOST: "the first host that fits is claimed",
    }.get(reason, "it is tried again by itself")
    since = found.last_transition_time if found is not None else None
    what = "it has no host that can be set up" if facts.is_rented else "its Mac is left alone"
    return _Stage(what, since, (text or reason or _MANAGER,), then)


def _bootstrapping(facts: MacFacts, now: datetime) -> _Stage | None:
    if facts.is_true(types.BOOTSTRAPPED):
        return None
    found = facts.condition(types.BOOTSTRAPPED)
    reason = found.reason if found is not None else ""
    since = found.last_transition_time if found is not None else None
    step = facts.status.step
    if step:
        return _Stage(
            f"the host is set up, at the step {step}", since, (f"the step {step}",), _later(facts)
        )
    if reason == events.BOOTSTRAPPING:
        place = (
            "a place among the hosts that are set up at once (--machine-max-concurrent-reconciles)"
        )
        return _Stage("the host is going to be set up", since, (place,), _later(facts))
    text = found.message if found is not None and found.message else _MANAGER
    attempts = facts.status.bootstrap_attempts
    if not attempts:
        return _Stage(
            "the host cannot be set up yet", since, (text,), "it is tried again by itself"
        )
    return _Stage(
        f"{attempts} {'attempt' if attempts == 1 else 'attempts'} to set up the host failed: {text}",
        since,
        (_next_attempt(facts, now),),
        _later(facts),
    )


def _next_attempt(facts: MacFacts, now: datetime) -> str:
    settings = facts.settings.recovery
    action = recovery.recovery(facts.status, settings, is_rented=facts.is_rented)
    if action is Recovery.RELEASE:
        return "the release of this host"
    left = recovery.wait_left(facts.status, settings, now)
    if action is Recovery.REBOOT and left:
        return "the reboot of the host"
    number = facts.status.bootstrap_attempts + 1
    return f"attempt {number}, {f'in {length(left)}' if left else 'which is due'}"


def _later(facts: MacFacts) -> str:
    """Return what follows if this attempt succeeds, and if it fails."""
    good = "after this step, its Node must become Ready, and a VM must boot on it"
    settings = facts.settings.recovery
    if not facts.is_rented:
        minutes = length(recovery.LATE_RETRY)
        return (
            f"{good}; after {settings.max_attempts} failures in a row it is tried every {minutes}"
        )
    reboot = settings.reboot_after
    is_rebooted = facts.status.bootstrap_reboot_issued
    second = (
        "the host was rebooted once"
        if is_rebooted
        else f"after {reboot} failures in a row the host is rebooted"
    )
    return f"{good}; {second}, after {settings.max_attempts} it is released and the machine gets another one"


def _operating(facts: MacFacts, _now: datetime) -> _Stage | None:
    found = facts.condition(types.UP_TO_DATE)
    is_updating = found is not None and found.reason in _UPDATING
    return _updating(facts, found) if found and is_updating and facts.status.step else None


def _unready(facts: MacFacts, _now: datetime) -> _Stage | None:
    found = facts.condition(types.NODE_READY)
    if found is None or found.status == "True":
        return None
    then = "after two minutes without a Node its host is verified" if facts.node is None else ""
    if facts.status.ready:
        then = then or "the Node gets Pods again once it is Ready"
    text = found.message or found.reason or ""
    return _Stage("its Node does not serve", found.last_transition_time, (text,), then)


def _unproven(facts: MacFacts, _now: datetime) -> _Stage | None:
    found = facts.condition(types.PROVEN)
    if found is None or found.status == "True":
        return None
    limit = length(facts.settings.proof_timeout)
    then = f"the taint {labels.UNPROVEN_TAINT} is removed; a proof that takes longer than {limit} is a failed attempt"
    return _Stage(
        "the host is set up and must prove that it works",
        found.last_transition_time,
        (found.message or found.reason or "",),
        then,
    )


def _outdated(facts: MacFacts, now: datetime) -> _Stage | None:
    found = facts.condition(types.UP_TO_DATE)
    if found is None or found.status == "True":
        return None
    reason, text = found.reason or "", found.message or ""
    if reason in _UPDATING:
        return _updating(facts, found)
    if reason in _WAITING:
        then = (
            "one host of the fleet is updated first; the others follow, a limited number at a time"
        )
        summary = f"it serves, and waits for its turn to be updated: {_queue(facts)}"
        return _Stage(summary, found.last_transition_time, (text,), then)
    if facts.status.tart_kubelet_update_attempts:
        return _failed_update(facts, found, now)
    return _Stage(
        "it serves, and cannot be updated yet", found.last_transition_time, (text or reason,)
    )


def _updating(facts: MacFacts, found: MachineCondition) -> _Stage:
    step, text = facts.status.step, found.message or ""
    waits_for = (f"the step {step}",) if step else facts.remaining_work() or (text,)
    then = "running VMs continue" if found.reason == events.UPDATING else "then VMs are taken again"
    what = "gets the desired configuration"
    if found.reason == events.REPLACING_TART:
        what = "gets another Tart, once it runs no VM"
    elif found.reason == events.REBOOT_PENDING:
        what = f"is rebooted once it runs no VM ({facts.status.reboot_pending or 'requested'})"
    return _Stage(f"the host {what}", found.last_transition_time, waits_for, then)


def _failed_update(facts: MacFacts, found: MachineCondition, now: datetime) -> _Stage:
    status, settings = facts.status, facts.settings.drift
    attempts, since = status.tart_kubelet_update_attempts, status.last_update_failure_time
    if status.failed_host_config_hash:
        wait = settings.terminal_retry_after
        then = "another configuration is tried at once"
        used_up = (
            "the attempts to update the host are used up; it serves with its old configuration"
        )
    else:
        wait, then = (
            drift.RETRY,
            f"after {settings.max_attempts} failures in a row it is left as it is",
        )
        used_up = (
            f"{attempts} {'attempt' if attempts == 1 else 'attempts'} to update the host failed"
        )
    left = max((since or now) + wait - now, timedelta())
    when = f"in {length(left)}" if left else "which is due"
    waits_for = (f"the next attempt, {when}",)
    return _Stage(f"{used_up}: {found.message or ''}", found.last_transition_time, waits_for, then)


def _queue(facts: MacFacts) -> str:
    """Return how far the update of the fleet is."""
    found = [conditions.find(each.status.conditions, types.UP_TO_DATE) for each in facts.fleet]
    done = sum(each is not None and each.status == "True" for each in found)
    updating = sum(each is not None and each.reason in _UPDATING for each in found)
    waiting = sorted(
        each.name
        for each, condition in zip(facts.fleet, found, strict=True)
        if condition is not None and condition.reason in _WAITING
    )
    place = waiting.index(facts.mac.name) + 1 if facts.mac.name in waiting else 0
    position = f", this one at place {place} by name" if place else ""
    limit = facts.settings.drift.max_unavailable(len(facts.fleet))
    return (
        f"{done} of {len(facts.fleet)} hosts have the configuration, {updating} of at most {limit} are being updated, "
        f"{len(waiting)} wait{position}"
    )


def _serving(facts: MacFacts) -> _Stage:
    jobs = sum(has_job(each) for each in facts.pods)
    ready = facts.condition(types.READY)
    since = ready.last_transition_time if ready is not None else None
    return _Stage(f"it serves with the desired configuration; {jobs} of its Pods have a job", since)


_STAGES: tuple[Callable[[MacFacts, datetime], _Stage | None], ...] = (
    _deleting,
    _paused,
    _gated,
    _unobserved,
    _swapped,
    _unprovisioned,
    _bootstrapping,
    _operating,
    _unready,
    _unproven,
    _outdated,
)
