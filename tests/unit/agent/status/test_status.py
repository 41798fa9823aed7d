"""The status that the agent publishes for a Pod."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bramley.agent.pods import status
from bramley.agent.pods.status import Exit, Facts
from bramley.agent.runs import RunExit
from bramley.agent.tart.failures import RunEnd
from bramley.api import conditions
from bramley.api.pod import Pod, PodStatus

Json = dict[str, Any]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)
VM = "ns-build-0123456789ab"
FACTS = Facts(host="10.0.0.7", now=NOON, vm=VM, digest="sha256:abc")
SUCCESS = Exit("Succeeded", 0, "Completed")


def a_pod(**pod_status: Any) -> Pod:
    body = {
        "metadata": {"name": "build", "namespace": "ns", "uid": "u-1"},
        "spec": {"nodeName": "mac", "containers": [{"name": "vm", "image": "macos"}]},
        "status": pod_status,
    }
    return msgspec.convert(body, Pod)


def with_status(pod: Pod, pod_status: PodStatus) -> Pod:
    return msgspec.structs.replace(pod, status=pod_status)


def at(when: datetime) -> Facts:
    return Facts("10.0.0.7", when, VM, "sha256:abc")


def conditions_of(pod_status: PodStatus) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in pod_status.conditions}


def wire(pod_status: PodStatus) -> Json:
    found: Json = status.body(a_pod(), pod_status)["status"]
    return found


HALTED, CRASHED, DISCONNECTED, STOPPED, SUSPENDED = RunEnd


@pytest.mark.parametrize(
    ("reported", "ended", "end", "exit"),
    [
        (0, RunExit(0, NOON), HALTED, Exit("Succeeded", 0, "Completed")),
        (3, RunExit(0, NOON), HALTED, Exit("Failed", 3, "Error")),
        (143, RunExit(-15, NOON), None, Exit("Failed", 143, "Error")),
        (0, RunExit(1, NOON), None, Exit("Succeeded", 0, "Completed")),
        (0, None, None, Exit("Succeeded", 0, "Completed")),
        # A guest that has reported may be stopped, or crash, when it halts.
        *((0, RunExit(0, NOON), each, Exit("Succeeded", 0, "Completed")) for each in RunEnd),
        (None, RunExit(0, NOON), HALTED, Exit("Succeeded", 0, "TartRunExited")),
        (None, RunExit(0, NOON), None, Exit("Failed", 1, "TartRunLost")),
        (None, RunExit(0, NOON), CRASHED, Exit("Failed", 1, "GuestCrashed")),
        (None, RunExit(0, NOON), DISCONNECTED, Exit("Failed", 1, "NetworkLost")),
        (None, RunExit(0, NOON), STOPPED, Exit("Failed", 137, "Stopped")),
        (None, RunExit(0, NOON), SUSPENDED, Exit("Failed", 137, "Stopped")),
        (None, RunExit(-9, NOON), STOPPED, Exit("Failed", 137, "Stopped")),
        (None, RunExit(2, NOON), None, Exit("Failed", 2, "TartRunFailed")),
        (None, RunExit(-9, NOON), None, Exit("Failed", 137, "TartRunFailed", signal=9)),
        (None, RunExit(None, None), None, Exit("Failed", 1, "TartRunLost")),
        # Without the supervisor's record not even a clean end is one.
        (None, RunExit(None, None), HALTED, Exit("Failed", 1, "TartRunLost")),
        (None, RunExit(None, None), CRASHED, Exit("Failed", 1, "GuestCrashed")),
        (None, None, None, Exit("Failed", 1, "TartRunLost")),
        (256, RunExit(0, NOON), HALTED, Exit("Succeeded", 0, "TartRunExited")),
        (-1, RunExit(0, NOON), HALTED, Exit("Succeeded", 0, "TartRunExited")),
        (256, RunExit(0, NOON), CRASHED, Exit("Failed", 1, "GuestCrashed")),
    ],
)
def test_exit_of_report_and_run(
    reported: int | None, ended: RunExit | None, end: RunEnd | None, exit: Exit
) -> None:
    assert status.exit_of(reported, ended, end) == exit


POWERED_OFF = Exit("Failed", 137, "Stopped")
SHUT_DOWN = Exit("Failed", 143, "Stopped")


@pytest.mark.parametrize(
    ("reported", "code", "end", "exit"),
    [
        pytest.param(None, 0, STOPPED, POWERED_OFF, id="by tart"),
        pytest.param(None, -9, None, POWERED_OFF, id="by a kill of tart"),
        pytest.param(None, -9, STOPPED, POWERED_OFF, id="by a kill of a hung tart"),
        pytest.param(None, 0, None, POWERED_OFF, id="without a log"),
        pytest.param(None, None, None, POWERED_OFF, id="without a supervisor"),
        pytest.param(None, 0, HALTED, SHUT_DOWN, id="the guest was faster"),
        pytest.param(None, 0, CRASHED, Exit("Failed", 1, "GuestCrashed"), id="a crash was faster"),
        pytest.param(143, 0, STOPPED, Exit("Failed", 143, "Error"), id="the guest has reported"),
        pytest.param(0, -9, None, SUCCESS, id="the guest has reported success"),
    ],
)
def test_exit_of_a_vm_that_the_agent_powered_off(
    reported: int | None, code: int | None, end: RunEnd | None, exit: Exit
) -> None:
    ended = RunExit(code, NOON)

    found = status.exit_of(reported, ended, end, was_shut_down=True, was_powered_off=True)

    assert found == exit


@pytest.mark.parametrize(
    ("reported", "end", "exit"),
    [
        (None, HALTED, SHUT_DOWN),
        (143, HALTED, Exit("Failed", 143, "Error")),
        (0, HALTED, SUCCESS),
        (None, None, Exit("Failed", 1, "TartRunLost")),
        (None, STOPPED, POWERED_OFF),
    ],
)
def test_exit_of_a_guest_that_the_agent_shut_down(
    reported: int | None, end: RunEnd | None, exit: Exit
) -> None:
    assert status.exit_of(reported, RunExit(0, NOON), end, was_shut_down=True) == exit


def test_waiting_pod_has_a_reason() -> None:
    pod_status = status.waiting(a_pod(), FACTS, reason="PullingImage", message="40 %")

    assert wire(pod_status) == {
        "phase": "Pending",
        "hostIP": "10.0.0.7",
        "hostIPs": [{"ip": "10.0.0.7"}],
        "startTime": "2026-03-01T12:00:00Z",
        "conditions": [
            {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-03-01T12:00:00Z"},
            {
                "type": "ContainersReady",
                "status": "False",
                "reason": "ContainersNotReady",
                "lastTransitionTime": "2026-03-01T12:00:00Z",
            },
            {
                "type": "Ready",
                "status": "False",
                "reason": "ContainersNotReady",
                "lastTransitionTime": "2026-03-01T12:00:00Z",
            },
        ],
        "containerStatuses": [
            {
                "name": "vm",
                "image": "macos",
                "imageID": "sha256:abc",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "lastState": {},
                "state": {"waiting": {"reason": "PullingImage", "message": "40 %"}},
            }
        ],
    }


def test_waiting_failure_is_also_the_reason_of_the_pod() -> None:
    pod_status = status.waiting(
        a_pod(), FACTS, reason="TartCreateFailed", message="no space", is_failing=True
    )

    assert (pod_status.phase, pod_status.reason, pod_status.message) == (
        "Pending",
        "TartCreateFailed",
        "no space",
    )


def test_vm_with_an_address_is_ready() -> None:
    pod_status = status.running(a_pod(), FACTS, started_at=NOON, ip="192.168.64.9")

    (container,) = pod_status.container_statuses
    assert (pod_status.phase, pod_status.pod_ip, pod_status.pod_ips[0].ip) == (
        "Running",
        "192.168.64.9",
        "192.168.64.9",
    )
    assert (container.ready, container.started, container.container_id) == (
        True,
        True,
        f"tart://{VM}",
    )
    assert container.state.running is not None
    assert container.state.running.started_at == NOON
    assert conditions_of(pod_status) == {
        "Initialized": ("True", ""),
        "ContainersReady": ("True", ""),
        "Ready": ("True", ""),
    }


def test_vm_without_an_address_is_pending() -> None:
    pod_status = status.running(a_pod(), FACTS, started_at=NOON)

    (container,) = pod_status.container_statuses
    assert pod_status.phase == "Pending"
    assert container.state.waiting is not None
    assert container.state.waiting.reason == "BootingVM"


def test_known_address_is_kept() -> None:
    pod = a_pod(podIP="192.168.64.9", podIPs=[{"ip": "192.168.64.9"}])

    assert status.running(pod, FACTS, started_at=NOON).phase == "Running"
    ended = status.terminated(pod, FACTS, exit=SUCCESS, started_at=NOON, finished_at=LATER)
    assert ended.pod_ip == "192.168.64.9"


def test_start_time_is_set_once() -> None:
    pod = a_pod(startTime="2026-03-01T11:00:00Z")

    pod_status = status.running(pod, FACTS, started_at=NOON, ip="192.168.64.9")

    assert pod_status.start_time == NOON - timedelta(hours=1)


def test_ended_vm_has_exit_code_and_times() -> None:
    exit = Exit("Failed", 137, "TartRunFailed", signal=9)

    pod_status = status.terminated(
        a_pod(), FACTS, exit=exit, started_at=NOON, finished_at=LATER, message="see the log"
    )

    (container,) = pod_status.container_statuses
    end = container.state.terminated
    assert end is not None
    assert (end.exit_code, end.signal, end.reason) == (137, 9, "TartRunFailed")
    assert (end.started_at, end.finished_at, end.container_id) == (NOON, LATER, f"tart://{VM}")
    assert (pod_status.phase, pod_status.reason, pod_status.message) == (
        "Failed",
        "TartRunExited",
        "see the log",
    )
    assert not container.ready
    assert conditions_of(pod_status)["Ready"] == ("False", "PodFailed")


def test_pod_that_succeeded_is_complete() -> None:
    pod_status = status.terminated(a_pod(), FACTS, exit=SUCCESS, started_at=NOON, finished_at=LATER)

    assert pod_status.phase == "Succeeded"
    assert conditions_of(pod_status) == {
        "Initialized": ("True", "PodCompleted"),
        "ContainersReady": ("False", "PodCompleted"),
        "Ready": ("False", "PodCompleted"),
    }


def test_exit_code_of_zero_is_written_out() -> None:
    pod_status = status.terminated(a_pod(), FACTS, exit=SUCCESS, started_at=NOON, finished_at=LATER)

    assert wire(pod_status)["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


def test_rejected_pod_has_no_container_statuses() -> None:
    pod_status = status.rejected(a_pod(), FACTS, message="initContainers are not supported for VMs")

    assert (pod_status.phase, pod_status.reason) == ("Failed", "UnsupportedPod")
    assert pod_status.container_statuses == []


def test_host_that_has_only_a_name_has_no_addresses() -> None:
    pod_status = status.waiting(a_pod(), Facts(host="mac", now=NOON), reason="CreatingVM")

    assert (pod_status.host_ip, pod_status.host_ips) == ("mac", [])


def test_condition_keeps_its_time_until_its_status_changes() -> None:
    pod = a_pod()
    first = status.waiting(pod, at(NOON), reason="CreatingVM")
    second = status.waiting(with_status(pod, first), at(LATER), reason="PullingImage")
    third = status.running(with_status(pod, second), at(LATER), started_at=LATER, ip="192.168.64.9")

    def since(pod_status: PodStatus, type: str) -> datetime | None:
        found = conditions.find(pod_status.conditions, type)
        return None if found is None else found.last_transition_time

    assert [since(pod_status, "Ready") for pod_status in (first, second, third)] == [
        NOON,
        NOON,
        LATER,
    ]
    assert [since(pod_status, "Initialized") for pod_status in (first, second, third)] == [NOON] * 3


def test_only_our_own_conditions_and_fields_are_applied() -> None:
    pod = a_pod(
        qosClass="Burstable",
        nominatedNodeName="mac",
        observedGeneration=3,
        conditions=[{"type": "PodScheduled", "status": "True"}],
    )

    applied = status.body(pod, status.running(pod, FACTS, started_at=NOON, ip="192.168.64.9"))

    assert applied["metadata"] == {"uid": "u-1"}
    assert not {"qosClass", "nominatedNodeName", "observedGeneration"} & applied["status"].keys()
    assert [one["type"] for one in applied["status"]["conditions"]] == [
        status.INITIALIZED,
        status.CONTAINERS_READY,
        status.READY,
    ]


def test_long_message_is_cut() -> None:
    pod_status = status.waiting(a_pod(), FACTS, reason="TartCreateFailed", message="x" * 9000)

    (container,) = pod_status.container_statuses
    assert container.state.waiting is not None
    assert len(container.state.waiting.message) == status.MAX_MESSAGE_LENGTH


def test_times_are_whole_seconds() -> None:
    """A server keeps no more, so a status would never be found published."""
    odd = NOON + timedelta(microseconds=123456)
    pod = a_pod()
    pod_status = status.running(pod, at(odd), started_at=odd, ip="192.168.64.9")

    seen = msgspec.convert({"spec": msgspec.to_builtins(pod.spec), "status": wire(pod_status)}, Pod)

    assert pod_status.start_time == NOON
    assert status.is_published(seen, pod_status)


def test_published_status_is_recognised() -> None:
    pod = a_pod(qosClass="Burstable", conditions=[{"type": "PodScheduled", "status": "True"}])
    pod_status = status.running(pod, at(NOON), started_at=NOON, ip="192.168.64.9")
    everything = msgspec.structs.replace(
        pod_status,
        qos_class="Burstable",
        conditions=[*pod.status.conditions, *pod_status.conditions],
    )
    seen = with_status(pod, everything)

    assert not status.is_published(pod, pod_status)
    assert status.is_published(seen, pod_status)
    assert status.is_published(
        seen, status.running(seen, at(LATER), started_at=NOON, ip="192.168.64.9")
    )


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Failed"},
        {"reason": "Evicted"},
        {"pod_ip": "192.168.64.10"},
        {"conditions": []},
        {"container_statuses": []},
    ],
)
def test_status_that_others_changed_is_published_again(change: Json) -> None:
    pod = a_pod()
    pod_status = status.running(pod, FACTS, started_at=NOON, ip="192.168.64.9")

    assert not status.is_published(
        with_status(pod, msgspec.structs.replace(pod_status, **change)), pod_status
    )
