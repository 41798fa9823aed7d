"""The row of a Pod: the states of its containers summarized in a reason and three numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bramley.apiserver.tables import cells
from bramley.apiserver.tables.cells import (
    NONE,
    Json,
    age,
    find,
    is_condition_true,
    is_terminating,
    name,
)

_ENDED = frozenset({"Succeeded", "Failed"})
_CONDITIONS = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}


@dataclass(slots=True)
class _PodSummary:
    """The summary of the containers so far."""

    reason: str
    ready: int = 0
    restarts: int = 0
    restarted_at: datetime | None = None

    def add_restarts(self, container: Json) -> None:
        self.restarts += container.get("restartCount") or 0
        ended_at = cells.parse_time(find(container, "lastState.terminated.finishedAt"))
        if ended_at and (self.restarted_at is None or ended_at > self.restarted_at):
            self.restarted_at = ended_at

    def restarts_text(self, now: datetime) -> str:
        if not self.restarts or self.restarted_at is None:
            return str(self.restarts)
        ago = cells.human_duration((now - self.restarted_at).total_seconds())
        return f"{self.restarts} ({ago} ago)"


def row(pod: Json, now: datetime) -> list[Any]:
    """Return a Pod's cells."""
    summary = _summarize(pod)
    sidecars = _sidecars(pod)
    total = len(find(pod, "spec.containers") or ()) + len(sidecars)
    return [
        name(pod, now),
        f"{summary.ready}/{total}",
        summary.reason,
        summary.restarts_text(now),
        age(pod, now),
        _address(pod),
        find(pod, "spec.nodeName") or NONE,
        find(pod, "status.nominatedNodeName") or NONE,
        _gates(pod),
    ]


def row_conditions(pod: Json) -> list[Json]:
    """Return the conditions of the whole row: that the Pod has ended."""
    phase = find(pod, "status.phase")
    if phase not in _CONDITIONS:
        return []
    message = _CONDITIONS[phase]
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}]


def _summarize(pod: Json) -> _PodSummary:
    summary = _PodSummary(_first_reason(pod))
    status = pod.get("status") or {}
    sidecars = _sidecars(pod)
    restarted = _PodSummary("")
    is_starting = False
    for index, each in enumerate(status.get("initContainerStatuses") or ()):
        summary.add_restarts(each)
        if each.get("name") in sidecars:
            restarted.add_restarts(each)
        reason = _init_reason(pod, each, index, is_sidecar=each.get("name") in sidecars)
        if reason:
            summary.reason, is_starting = reason, True
            break
        summary.ready += _is_serving_sidecar(each, sidecars) and bool(each.get("ready"))
    if not is_starting or is_condition_true(pod, "Initialized"):
        summary.restarts, summary.restarted_at = restarted.restarts, restarted.restarted_at
        _count_containers(pod, summary)
    if is_terminating(pod):
        summary.reason = _reason_of_going(status, summary.reason)
    return summary


def _first_reason(pod: Json) -> str:
    status = pod.get("status") or {}
    scheduled = [
        each
        for each in status.get("conditions") or ()
        if each.get("type") == "PodScheduled" and each.get("reason") == "SchedulingGated"
    ]
    if scheduled:
        return "SchedulingGated"
    return status.get("reason") or status.get("phase") or ""


def _sidecars(pod: Json) -> set[str]:
    init_containers = find(pod, "spec.initContainers") or ()
    return {each["name"] for each in init_containers if each.get("restartPolicy") == "Always"}


def _is_serving_sidecar(container: Json, sidecars: set[str]) -> bool:
    state = container.get("state") or {}
    ended_well = "terminated" in state and not state["terminated"].get("exitCode")
    return not ended_well and container.get("name") in sidecars and bool(container.get("started"))


def _init_reason(pod: Json, container: Json, index: int, *, is_sidecar: bool) -> str:
    """Return why an init container keeps the Pod from starting, or an empty text if it does not."""
    state = container.get("state") or {}
    terminated, waiting = state.get("terminated"), state.get("waiting") or {}
    if terminated is not None and not terminated.get("exitCode"):
        return ""
    if is_sidecar and container.get("started"):
        return ""
    if terminated is not None:
        return f"Init:{_ended_reason(terminated)}"
    if waiting.get("reason") and waiting["reason"] != "PodInitializing":
        return f"Init:{waiting['reason']}"
    return f"Init:{index}/{len(find(pod, 'spec.initContainers') or ())}"


def _ended_reason(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _count_containers(pod: Json, summary: _PodSummary) -> None:
    is_running = False
    for each in reversed(find(pod, "status.containerStatuses") or ()):
        summary.add_restarts(each)
        state = each.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            summary.reason = waiting["reason"]
        elif terminated is not None:
            summary.reason = _ended_reason(terminated)
        elif each.get("ready") and state.get("running") is not None:
            is_running = True
            summary.ready += 1
    if summary.reason == "Completed" and is_running:
        summary.reason = "Running" if is_condition_true(pod, "Ready") else "NotReady"


def _reason_of_going(status: Json, reason: str) -> str:
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return reason if status.get("phase") in _ENDED else "Terminating"


def _address(pod: Json) -> str:
    addresses = find(pod, "status.podIPs") or ()
    address = addresses[0].get("ip") if addresses else find(pod, "status.podIP")
    return address or NONE


def _gates(pod: Json) -> str:
    gates = find(pod, "spec.readinessGates") or ()
    if not gates:
        return NONE
    met = [each for each in gates if is_condition_true(pod, each.get("conditionType", ""))]
    return f"{len(met)}/{len(gates)}"
