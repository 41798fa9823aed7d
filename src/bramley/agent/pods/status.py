"""The status of a Pod: what the agent says of it, as typed and pure values, and `publish`, which says it to the server.

Only fields that are ours are applied, so the scheduler's condition, the QOS class and whatever others write stay. All
functions take the Pod as last seen: addresses and times that are known stay, and a condition keeps its transition time
until its status changes.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import msgspec

from bramley.agent.runs import Ended
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
TERMINAL = frozenset({SUCCEEDED, FAILED})
# The condition types that are ours; PodScheduled is the scheduler's.
INITIALIZED, CONTAINERS_READY, READY = "Initialized", "ContainersReady", "Ready"
OWN_CONDITIONS = (INITIALIZED, CONTAINERS_READY, READY)

LONGEST_MESSAGE = 4096
CONFLICT_RETRIES = 5
CONFLICT_PAUSE_SECONDS = 0.05
_HIGHEST_EXIT_CODE = 255
_SIGNALLED = 128
# A server decodes these even when they are empty, and clients print them.
_ALWAYS: Mapping[str, Any] = {
    "image": "",
    "imageID": "",
    "ready": False,
    "restartCount": 0,
    "lastState": {},
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What all statuses of a Pod on this host tell: the host's address or name, and the VM once it has a name."""

    host: str
    now: datetime
    vm: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a VM's work ended: the phase of the Pod, and the exit code with its reason for the container."""

    phase: str
    code: int
    reason: str
    signal: int = 0


def exit_of(reported: int | None, ended: Ended | None) -> Exit:
    """Return what an end means: the guest's own report counts most, then tart's code; a lost run is a failure."""
    if reported is not None and 0 <= reported <= _HIGHEST_EXIT_CODE:
        clean = reported == 0
        return Exit(
            SUCCEEDED if clean else FAILED, reported, agent.COMPLETED if clean else agent.ERROR
        )
    if ended is None or ended.code is None:
        return Exit(FAILED, 1, agent.RUN_LOST)
    if ended.code == 0:
        # The guest halted and said nothing, which guests of other images do.
        return Exit(SUCCEEDED, 0, agent.RUN_EXITED)
    if ended.code < 0:
        return Exit(FAILED, _SIGNALLED - ended.code, agent.RUN_FAILED, signal=-ended.code)
    return Exit(FAILED, ended.code, agent.RUN_FAILED)


def waiting(
    pod: Pod, facts: Facts, *, reason: str, message: str = "", is_failing: bool = False
) -> PodStatus:
    """Say that the VM does not run yet, and why; a failure also stands above the container, where `describe` begins."""
    state = ContainerState(waiting=ContainerStateWaiting(reason=reason, message=_short(message)))
    told = (reason, message) if is_failing else ("", "")
    return _status(
        pod,
        facts,
        phase=PENDING,
        told=told,
        containers=[_container(pod, facts, state)],
        conditions=_conditions(pod, facts, ready="False", reason="ContainersNotReady"),
    )


def running(
    pod: Pod,
    facts: Facts,
    *,
    started_at: datetime | None,
    ip: str | None = None,
    is_silent: bool = False,
) -> PodStatus:
    """Say that the VM runs with this address, or the one it had; before it has one, its guest still boots.

    With a guest that answers no more it runs and is not ready.
    """
    if not ip and not pod.status.pod_ip:
        return waiting(
            pod, facts, reason=agent.BOOTING, message="the VM runs, its guest has no address yet"
        )
    state = ContainerState(running=ContainerStateRunning(started_at=_seconds(started_at)))
    container = msgspec.structs.replace(_container(pod, facts, state), ready=not is_silent)
    told = (events.GUEST_SILENT, silence(facts.vm)) if is_silent else ("", "")
    ready: ConditionStatus = "False" if is_silent else "True"
    return _status(
        pod,
        facts,
        phase=RUNNING,
        ip=ip,
        containers=[container],
        conditions=_conditions(pod, facts, ready=ready, reason=told[0], message=told[1]),
    )


def silence(vm: str) -> str:
    """Return what people are told of a guest that answers no more."""
    return f"VM {vm} runs, but its guest, which has answered before, does not answer any more"


def says_silent(pod: Pod) -> bool:
    """Tell whether a Pod as last seen says that its guest answers no more."""
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
    """Say how the VM ended; `reason` and `message` are the Pod's, the container has those of the exit."""
    end = ContainerStateTerminated(
        exit_code=exit.code,
        signal=exit.signal,
        reason=exit.reason,
        message=_short(message),
        started_at=_seconds(started_at),
        finished_at=_seconds(finished_at),
        container_id=agent.container_id(facts.vm) if facts.vm else "",
    )
    return _status(
        pod,
        facts,
        phase=exit.phase,
        told=(reason, message),
        containers=[_container(pod, facts, ContainerState(terminated=end))],
        conditions=_ended(pod, facts, exit.phase),
    )


def rejected(pod: Pod, facts: Facts, *, message: str, reason: str = agent.UNSUPPORTED) -> PodStatus:
    """Say that this Pod fails before anything was done for it; its containers never had a state."""
    told = (reason, message)
    failed = _ended(pod, facts, FAILED)
    return _status(pod, facts, phase=FAILED, told=told, containers=[], conditions=failed)


def body(pod: Pod, status: PodStatus) -> dict[str, Any]:
    """Return what is applied: the status, for exactly this Pod."""
    said = msgspec.to_builtins(status)
    if "containerStatuses" in said:
        said["containerStatuses"] = [{**_ALWAYS, **one} for one in said["containerStatuses"]]
    return {"metadata": {"uid": pod.uid}, "status": said}


def is_said(pod: Pod, status: PodStatus) -> bool:
    """Tell whether the Pod as last seen says all of this already, so that nothing need be written."""
    seen = [conditions.find(pod.status.conditions, one.type) for one in status.conditions]
    return list(map(_told, seen)) == list(map(_told, status.conditions)) and _without_conditions(
        pod.status
    ) == _without_conditions(status)


class Applies(Protocol):
    """Applies fields to objects, as the client and a reconciler's own client do."""

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


async def publish(kube: Applies, pod: Pod, status: PodStatus) -> Pod | None:
    """Say a status and return the Pod as the server acknowledged it; None if that Pod is gone, so that nobody is left to tell.

    A status that the Pod bears already is not said again. Writers that come between are waited for; every other error is the
    caller's, who must not forget what was to be said.
    """
    if is_said(pod, status):
        return pod
    for _ in range(CONFLICT_RETRIES):
        try:
            return await _apply(kube, pod, status)
        except errors.Conflict:
            await asyncio.sleep(CONFLICT_PAUSE_SECONDS)
    return await _apply(kube, pod, status)


async def _apply(kube: Applies, pod: Pod, status: PodStatus) -> Pod | None:
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
    told: tuple[str, str] = ("", ""),
    ip: str | None = None,
) -> PodStatus:
    reason, message = told
    address = ip or pod.status.pod_ip
    return PodStatus(
        phase=phase,
        reason=reason,
        message=_short(message),
        conditions=conditions,
        host_ip=facts.host,
        # A server checks these to be addresses; the single field may be a name.
        host_ips=[HostIP(ip=facts.host)] if _is_address(facts.host) else [],
        pod_ip=address,
        pod_ips=[PodIP(ip=address)] if address else [],
        start_time=pod.status.start_time or _seconds(facts.now),
        container_statuses=containers,
    )


def _container(pod: Pod, facts: Facts, state: ContainerState) -> ContainerStatus:
    one = pod.spec.containers[0]
    runs, has_run = state.running is not None, state.waiting is None
    return ContainerStatus(
        name=one.name,
        image=one.image,
        image_id=facts.digest,
        ready=runs,
        started=runs,
        state=state,
        container_id=agent.container_id(facts.vm) if facts.vm and has_run else "",
    )


def _conditions(
    pod: Pod, facts: Facts, *, ready: ConditionStatus, reason: str = "", message: str = ""
) -> list[PodCondition]:
    wanted = [
        PodCondition(type=INITIALIZED, status="True"),
        PodCondition(type=CONTAINERS_READY, status=ready, reason=reason, message=message),
        PodCondition(type=READY, status=ready, reason=reason, message=message),
    ]
    return _since(pod, facts, wanted)


def _ended(pod: Pod, facts: Facts, phase: str) -> list[PodCondition]:
    is_good = phase == SUCCEEDED
    reason = "PodCompleted" if is_good else "PodFailed"
    wanted = [
        PodCondition(type=INITIALIZED, status="True", reason=reason if is_good else ""),
        PodCondition(type=CONTAINERS_READY, status="False", reason=reason),
        PodCondition(type=READY, status="False", reason=reason),
    ]
    return _since(pod, facts, wanted)


def _since(pod: Pod, facts: Facts, wanted: list[PodCondition]) -> list[PodCondition]:
    """Return the conditions with the time of their last change."""
    known = pod.status.conditions
    return [conditions.put(known, one, now=facts.now)[_place(known, one)] for one in wanted]


def _place(known: list[PodCondition], wanted: PodCondition) -> int:
    return next((at for at, one in enumerate(known) if one.type == wanted.type), -1)


def _told(condition: PodCondition | None) -> tuple[Any, ...] | None:
    if condition is None:
        return None
    since = condition.last_transition_time
    return (condition.type, condition.status, condition.reason, condition.message, since)


def _without_conditions(status: PodStatus) -> PodStatus:
    """Return the part of a status that is wholly ours."""
    return msgspec.structs.replace(
        status,
        conditions=[],
        nominated_node_name="",
        init_container_statuses=[],
        qos_class="",
        observed_generation=0,
    )


def _seconds(when: datetime | None) -> datetime | None:
    return None if when is None else when.replace(microsecond=0)


def _short(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
