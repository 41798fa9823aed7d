"""The status of a Pod as typed, pure values, and `publish`, which writes it to the server.

Only fields that the agent owns are applied, so the scheduler's condition, the QOS class and what other clients write are kept.
All functions take the Pod as last read: known addresses and times are kept, and a condition keeps its transition time until its
status changes.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import msgspec

from bramley.agent.runs import RunExit
from bramley.agent.tart.failures import RunEnd
from bramley.api import conditions
from bramley.api.meta import ConditionStatus, K
from bramley.api.names import agent, events
from bramley.api.pod import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    HostIP,
    Pod,
    PodCondition,
    PodIP,
    PodStatus,
)
from bramley.base import errors

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
# The condition types that the agent owns; PodScheduled belongs to the scheduler.
INITIALIZED, CONTAINERS_READY, READY = "Initialized", "ContainersReady", "Ready"

MAX_MESSAGE_LENGTH = 4096
CONFLICT_RETRIES = 5
CONFLICT_PAUSE_SECONDS = 0.05
_MAX_EXIT_CODE = 255
_SIGNALLED = 128
# What a kubelet reports for a container that ended by its SIGTERM, or was killed after the grace period.
SHUT_DOWN_CODE, POWERED_OFF_CODE = 143, 137
# Required by the API even when they are empty; clients print them.
_REQUIRED: Mapping[str, Any] = {
    "image": "",
    "imageID": "",
    "ready": False,
    "restartCount": 0,
    "lastState": {},
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What every status of a Pod on this host contains: the host's address or name, and the VM once it has a record."""

    host: str
    now: datetime
    vm: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a VM ended: the phase of the Pod, and exit code and reason of the container."""

    phase: str
    code: int
    reason: str
    signal: int = 0


# tart exits with 0 in all of these cases.
_BROKEN_RUNS: Mapping[RunEnd, Exit] = {
    RunEnd.CRASHED: Exit(FAILED, 1, agent.GUEST_CRASHED),
    RunEnd.DISCONNECTED: Exit(FAILED, 1, agent.NETWORK_LOST),
    RunEnd.STOPPED: Exit(FAILED, POWERED_OFF_CODE, agent.STOPPED),
    RunEnd.SUSPENDED: Exit(FAILED, POWERED_OFF_CODE, agent.STOPPED),
}


def exit_of(
    reported: int | None,
    ended: RunExit | None,
    end: RunEnd | None = None,
    *,
    was_shut_down: bool = False,
    was_powered_off: bool = False,
) -> Exit:
    """Return the exit: the guest's own report takes precedence, then how tart's output shows that the run ended.

    Without a report, only a guest that halted by itself has succeeded, not one that the agent shut down or powered off.
    """
    if reported is not None and 0 <= reported <= _MAX_EXIT_CODE:
        phase, reason = (SUCCEEDED, agent.COMPLETED) if reported == 0 else (FAILED, agent.ERROR)
        return Exit(phase, reported, reason)
    if end is not None and end in _BROKEN_RUNS:
        return _BROKEN_RUNS[end]
    if was_powered_off and end is not RunEnd.HALTED:
        return Exit(FAILED, POWERED_OFF_CODE, agent.STOPPED)
    code = None if ended is None else ended.code
    if code == 0 and end is RunEnd.HALTED:
        # Guests of foreign images do that. Of one that the agent shut down, nothing shows that its work was done.
        if was_shut_down:
            return Exit(FAILED, SHUT_DOWN_CODE, agent.STOPPED)
        return Exit(SUCCEEDED, 0, agent.RUN_EXITED)
    if code is None or code == 0:
        return Exit(FAILED, 1, agent.RUN_LOST)
    signal = max(-code, 0)
    return Exit(FAILED, _SIGNALLED + signal if signal else code, agent.RUN_FAILED, signal=signal)


def waiting(
    pod: Pod, facts: Facts, *, reason: str, message: str = "", is_failing: bool = False
) -> PodStatus:
    """Return the status of a VM that does not run yet; a failure is also set on the Pod, where `kubectl describe` begins."""
    state = ContainerState(waiting=ContainerStateWaiting(reason=reason, message=_truncate(message)))
    return _status(
        pod,
        facts,
        phase=PENDING,
        reason=reason if is_failing else "",
        message=message if is_failing else "",
        containers=[_container(pod, facts, state)],
        conditions=_conditions(pod, facts, ready="False", reason="ContainersNotReady"),
    )


def running(
    pod: Pod,
    facts: Facts,
    *,
    started_at: datetime | None,
    ip: str | None = None,
    is_unresponsive: bool = False,
) -> PodStatus:
    """Return the status of a running VM with this address, or the known one; without an address its guest still boots.

    A VM whose guest is unresponsive is Running and not Ready.
    """
    if not ip and not pod.status.pod_ip:
        return waiting(
            pod, facts, reason=agent.BOOTING, message="the VM runs, its guest has no address yet"
        )
    state = ContainerState(running=ContainerStateRunning(started_at=_whole_seconds(started_at)))
    container = msgspec.structs.replace(_container(pod, facts, state), ready=not is_unresponsive)
    ready: ConditionStatus = "False" if is_unresponsive else "True"
    reason = events.GUEST_SILENT if is_unresponsive else ""
    message = unresponsive_message(facts.vm) if is_unresponsive else ""
    return _status(
        pod,
        facts,
        phase=RUNNING,
        ip=ip,
        containers=[container],
        conditions=_conditions(pod, facts, ready=ready, reason=reason, message=message),
    )


def unresponsive_message(vm: str) -> str:
    """Return the message for a guest that no longer responds."""
    return f"VM {vm} runs, but its guest, which has responded before, does not respond any more"


def is_unresponsive(pod: Pod) -> bool:
    """Return whether the published status of a Pod says that its guest does not respond."""
    ready = conditions.find(pod.status.conditions, READY)
    return ready is not None and ready.reason == events.GUEST_SILENT


def terminated(
    pod: Pod,
    facts: Facts,
    *,
    exit: Exit,
    started_at: datetime | None,
    finished_at: datetime,
    reason: str = agent.RUN_EXITED,
    message: str = "",
) -> PodStatus:
    """Return the final status; `reason` and `message` are the Pod's, the container has the reason of the exit."""
    end = ContainerStateTerminated(
        exit_code=exit.code,
        signal=exit.signal,
        reason=exit.reason,
        message=_truncate(message),
        started_at=_whole_seconds(started_at),
        finished_at=_whole_seconds(finished_at),
        container_id=agent.container_id(facts.vm) if facts.vm else "",
    )
    return _status(
        pod,
        facts,
        phase=exit.phase,
        reason=reason,
        message=message,
        containers=[_container(pod, facts, ContainerState(terminated=end))],
        conditions=_final_conditions(pod, facts, exit.phase),
    )


def rejected(pod: Pod, facts: Facts, *, message: str, reason: str = agent.UNSUPPORTED) -> PodStatus:
    """Return the status of a Pod that fails before anything was created for it; its containers have no state."""
    return _status(
        pod,
        facts,
        phase=FAILED,
        reason=reason,
        message=message,
        containers=[],
        conditions=_final_conditions(pod, facts, FAILED),
    )


def body(pod: Pod, status: PodStatus) -> dict[str, Any]:
    """Return the body to apply: the status, with the uid so that it applies to exactly this Pod."""
    wire = msgspec.to_builtins(status)
    if "containerStatuses" in wire:
        wire["containerStatuses"] = [{**_REQUIRED, **each} for each in wire["containerStatuses"]]
    return {"metadata": {"uid": pod.uid}, "status": wire}


def is_published(pod: Pod, status: PodStatus) -> bool:
    """Return whether the Pod as last read already has this status, so that nothing needs to be written."""
    current = [conditions.find(pod.status.conditions, new.type) for new in status.conditions]
    return list(map(_comparable, current)) == list(
        map(_comparable, status.conditions)
    ) and _owned_fields(pod.status) == _owned_fields(status)


class StatusWriter(Protocol):
    """Applies fields to objects; a subset of the client."""

    async def apply(
        self,
        kind: type[K],
        name: str,
        body: Mapping[str, Any],
        *,
        manager: str,
        force: bool = False,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> K:
        """Own exactly these fields of the object and return it as stored."""
        ...


async def publish(kube: StatusWriter, pod: Pod, status: PodStatus) -> Pod | None:
    """Write a status and return the Pod as the server acknowledged it; None if that Pod is gone.

    A status that the Pod already has is not written again. Conflicts are retried; every other error is raised, and the caller
    must keep the status until it is acknowledged.
    """
    if is_published(pod, status):
        return pod
    for _ in range(CONFLICT_RETRIES):
        try:
            return await _apply(kube, pod, status)
        except errors.Conflict:
            await asyncio.sleep(CONFLICT_PAUSE_SECONDS)
    return await _apply(kube, pod, status)


async def _apply(kube: StatusWriter, pod: Pod, status: PodStatus) -> Pod | None:
    try:
        return await kube.apply(
            Pod,
            pod.name,
            body(pod, status),
            manager=agent.NAME,
            force=True,
            namespace=pod.namespace,
            subresource="status",
        )
    except errors.NotFound:
        return None
    except errors.InvalidSpec as error:
        # Another Pod has the name now.
        if any(cause.field == "metadata.uid" for cause in error.causes):
            return None
        raise


def _status(
    pod: Pod,
    facts: Facts,
    *,
    phase: str,
    containers: list[ContainerStatus],
    conditions: list[PodCondition],
    reason: str = "",
    message: str = "",
    ip: str | None = None,
) -> PodStatus:
    address = ip or pod.status.pod_ip
    return PodStatus(
        phase=phase,
        reason=reason,
        message=_truncate(message),
        conditions=conditions,
        host_ip=facts.host,
        # The API validates these as IP addresses; the single field may be a name.
        host_ips=[HostIP(ip=facts.host)] if _is_address(facts.host) else [],
        pod_ip=address,
        pod_ips=[PodIP(ip=address)] if address else [],
        start_time=pod.status.start_time or _whole_seconds(facts.now),
        container_statuses=containers,
    )


def _container(pod: Pod, facts: Facts, state: ContainerState) -> ContainerStatus:
    container = pod.spec.containers[0]
    is_running, has_run = state.running is not None, state.waiting is None
    return ContainerStatus(
        name=container.name,
        image=container.image,
        image_id=facts.digest,
        ready=is_running,
        started=is_running,
        state=state,
        container_id=agent.container_id(facts.vm) if facts.vm and has_run else "",
    )


def _conditions(
    pod: Pod, facts: Facts, *, ready: ConditionStatus, reason: str = "", message: str = ""
) -> list[PodCondition]:
    desired = [
        PodCondition(type=INITIALIZED, status="True"),
        PodCondition(type=CONTAINERS_READY, status=ready, reason=reason, message=message),
        PodCondition(type=READY, status=ready, reason=reason, message=message),
    ]
    return _with_transition_times(pod, facts, desired)


def _final_conditions(pod: Pod, facts: Facts, phase: str) -> list[PodCondition]:
    has_succeeded = phase == SUCCEEDED
    reason = "PodCompleted" if has_succeeded else "PodFailed"
    desired = [
        PodCondition(type=INITIALIZED, status="True", reason=reason if has_succeeded else ""),
        PodCondition(type=CONTAINERS_READY, status="False", reason=reason),
        PodCondition(type=READY, status="False", reason=reason),
    ]
    return _with_transition_times(pod, facts, desired)


def _with_transition_times(
    pod: Pod, facts: Facts, desired: list[PodCondition]
) -> list[PodCondition]:
    """Return the conditions with the times of their last transition."""
    current = pod.status.conditions
    return [
        conditions.put([old for old in current if old.type == new.type], new, now=facts.now)[0]
        for new in desired
    ]


def _comparable(condition: PodCondition | None) -> tuple[Any, ...] | None:
    if condition is None:
        return None
    since = condition.last_transition_time
    return (condition.type, condition.status, condition.reason, condition.message, since)


def _owned_fields(status: PodStatus) -> PodStatus:
    """Return the status without the fields of which the agent does not own all."""
    return msgspec.structs.replace(
        status,
        conditions=[],
        nominated_node_name="",
        init_container_statuses=[],
        qos_class="",
        observed_generation=0,
    )


def _whole_seconds(when: datetime | None) -> datetime | None:
    return None if when is None else when.replace(microsecond=0)


def _truncate(message: str) -> str:
    return (
        message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[: MAX_MESSAGE_LENGTH - 1]}…"
    )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
