"""The proof that a new host works, before its Node gets Pods: a VM boots on it, or the runner of a builder is online. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as replaced
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from bramley.api import conditions
from bramley.api.core import Pod
from bramley.api.mac_status import MachineCondition, MacStatus
from bramley.api.names import conditions as types
from bramley.api.names import events, labels
from bramley.machines import smoke_vm
from bramley.machines.mac import Mac
from bramley.machines.mac_draft import Act, Decision, Draft, Observed, count_failure
from bramley.machines.objects import put_condition
from bramley.machines.outcomes import MachineEvent
from bramley.machines.smoke_vm import Proof
from bramley.runtime.outcome import CheckAgain, Outcome

_MINUTE = timedelta(minutes=1)
_RUNNER_RETRY = timedelta(seconds=30)
_NO_FAILED_BOOTSTRAPS: Mapping[str, Any] = MappingProxyType(
    {
        "bootstrap_attempts": 0,
        "bootstrap_reboot_issued": False,
        "last_bootstrap_failure_time": None,
    }
)


def needs_runner(mac: Mac, status: MacStatus) -> bool:
    """Return whether it is needed for a decision that the runner is online."""
    is_bootstrapped = conditions.is_true(status.conditions, types.BOOTSTRAPPED)
    is_proven = conditions.is_true(status.conditions, types.PROVEN)
    return mac.builder is not None and is_bootstrapped and not is_proven


def prove(draft: Draft) -> Outcome | None:
    """Prove that the host works, before its Node gets Pods."""
    seen = draft.seen
    node = seen.node
    if node is None or (draft.status.conditions and not draft.is_true(types.NODE_READY)):
        return None
    is_tainted = any(each.key == labels.UNPROVEN_TAINT for each in node.spec.taints)
    if not is_tainted and draft.is_true(types.PROVEN):
        draft.change(**_NO_FAILED_BOOTSTRAPS)
        _delete_smoke_pod(draft)
        return None
    if not is_tainted and conditions.find(draft.status.conditions, types.PROVEN) is None:
        # The Node was registered by the agent of the existing provider, and has served.
        draft.add_event("Normal", events.TAKEN_OVER, "The Node has no taint of a new one")
        _proven(draft, is_tainted=False)
        return None
    if seen.mac.builder is not None:
        return _prove_builder(draft, is_tainted=is_tainted)
    if seen.smoke_pod is None:
        return _boot_smoke_vm(draft, is_tainted=is_tainted)
    return _judge_smoke_vm(draft, seen.smoke_pod, is_tainted=is_tainted)


def _proven(draft: Draft, *, is_tainted: bool, reason: str = "", message: str = "") -> None:
    condition = MachineCondition(type=types.PROVEN, status="True", reason=reason, message=message)
    draft.change(
        conditions=conditions.put(draft.status.conditions, condition, now=draft.seen.now),
        **_NO_FAILED_BOOTSTRAPS,
    )
    if is_tainted:
        draft.steps.append(Act("remove taint"))


def _delete_smoke_pod(draft: Draft) -> None:
    pod = draft.seen.smoke_pod
    if pod is not None and not pod.deleting:
        draft.steps.append(Act("delete smoke Pod"))


def _prove_builder(draft: Draft, *, is_tainted: bool) -> Outcome | None:
    if draft.seen.is_runner_online:
        draft.add_event("Normal", events.PROVEN, "The runner is online")
        _proven(draft, is_tainted=is_tainted)
        return None
    text = "the runner of this builder is not online at its forge"
    draft.put(types.PROVEN, events.RUNNER_OFFLINE, text)
    # A forge that does not answer shows nothing about the host.
    is_offline = draft.seen.is_runner_online is False
    if is_offline and draft.seen.now >= _begun(draft) + draft.settings.proof_timeout:
        count_failure(draft, events.RUNNER_OFFLINE, text)
    return CheckAgain(_RUNNER_RETRY, text)


def _begun(draft: Draft) -> datetime:
    """Return since when the runner could be online: since the bootstrap, or since a builder has a new Node."""
    found = (
        conditions.find(draft.status.conditions, each)
        for each in (types.BOOTSTRAPPED, types.PROVEN)
    )
    times = [each.last_transition_time for each in found if each and each.last_transition_time]
    return max(times, default=draft.seen.now)


def _boot_smoke_vm(draft: Draft, *, is_tainted: bool) -> Outcome | None:
    if draft.seen.smoke_image is None:
        text = "there is no image: neither --smoke-image nor a RunnerPool of this fleet"
        _proven(draft, is_tainted=is_tainted, reason=events.NO_SMOKE_IMAGE, message=text)
        return None
    draft.steps.append(Act("create smoke Pod"))
    text = f"a VM of {draft.seen.smoke_image.image} boots"
    draft.put(types.PROVEN, events.SMOKE_VM_BOOTING, text)
    return CheckAgain(_MINUTE, text)


def refused(decision: Decision, seen: Observed, text: str) -> Decision:
    """Report that the smoke Pod of a decision was refused; it is tried again when the decision says."""
    message = f"the smoke Pod is not created: {text}"
    found = decision.status.conditions
    for type in (types.PROVEN, types.READY):
        found = put_condition(
            found,
            type,
            events.SMOKE_VM_FAILED,
            message=message,
            severity="Warning",
            now=seen.now,
        )
    before = conditions.find(seen.status.conditions, types.PROVEN)
    is_known = before is not None and before.message == message
    event = MachineEvent("Warning", events.SMOKE_VM_FAILED, message)
    return replaced(
        decision,
        status=replace(decision.status, conditions=found),
        events=decision.events if is_known else (*decision.events, event),
    )


def _judge_smoke_vm(draft: Draft, pod: Pod, *, is_tainted: bool) -> Outcome | None:
    found, text = smoke_vm.proof(pod, draft.seen.now, draft.settings.proof_timeout)
    if found is Proof.BOOTED:
        draft.add_event("Normal", events.PROVEN, text[0].upper() + text[1:])
        _proven(draft, is_tainted=is_tainted)
        _delete_smoke_pod(draft)
        return None
    if found is Proof.FAILED:
        _delete_smoke_pod(draft)
        count_failure(draft, events.SMOKE_VM_FAILED, text)
        draft.put(types.PROVEN, events.SMOKE_VM_FAILED, text, "Warning")
        return CheckAgain(_MINUTE, text)
    if found is Proof.CROWDED_OUT:
        # The next one has the whole time again.
        _delete_smoke_pod(draft)
    draft.put(types.PROVEN, events.SMOKE_VM_BOOTING, text)
    return CheckAgain(_MINUTE, text)
