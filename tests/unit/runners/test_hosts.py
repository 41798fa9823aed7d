from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from bramley.api.core import Node, NodeCondition, NodeSpec, NodeStatus
from bramley.api.meta import ObjectMeta
from bramley.api.names import labels
from bramley.runners import hosts
from tests.unit.runners.builders import NEW, NOW, OLD, a_host


def a_node(
    *, unschedulable: bool = False, deleted_at: datetime | None = None, **conditions: Any
) -> Node:
    found = {"Ready": "True", **conditions}
    return Node(
        metadata=ObjectMeta(
            name="mac-1",
            labels={labels.golden(OLD): "true", labels.FLEET: "demo"},
            annotations={"tuist.dev/stage-images": f'{{"images":["{NEW}"]}}'},
            deletion_timestamp=deleted_at,
        ),
        spec=NodeSpec(unschedulable=unschedulable),
        status=NodeStatus(
            allocatable={"pods": "2", "cpu": "16", "memory": "32Gi"},
            conditions=[NodeCondition(type=type, status=status) for type, status in found.items()],
        ),
    )


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (a_node(), ""),
        (a_node(unschedulable=True), "unschedulable"),
        (a_node(deleted_at=NOW), "unschedulable"),
        (a_node(Ready="False"), "not_ready"),
        (a_node(Ready="Unknown"), "not_ready"),
        (a_node(DiskPressure="True"), "disk_pressure"),
        (a_node(MemoryPressure="True"), "memory_pressure"),
        (a_node(PIDPressure="True"), "pid_pressure"),
        (a_node(DiskPressure="False"), ""),
    ],
)
def test_reason_why_a_host_takes_no_pods(node: Node, reason: str) -> None:
    host = hosts.host_of(node)

    assert host.unusable == reason
    assert host.is_usable == (not reason)
    assert host.is_draining == (reason == "unschedulable")


MAC = {labels.OS: "darwin", labels.RUNTIME: "tart", labels.FLEET: "demo"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (MAC, "demo"),
        ({**MAC, labels.OS: "linux"}, None),
        ({**MAC, labels.RUNTIME: "docker"}, None),
        ({labels.FLEET: "demo"}, None),
        ({key: value for key, value in MAC.items() if key != labels.FLEET}, None),
    ],
)
def test_node_belongs_to_a_fleet_only_if_its_pods_can_run_there(
    found: dict[str, str], expected: str | None
) -> None:
    node = Node(metadata=ObjectMeta(name="mac-1", labels=found))

    assert hosts.fleet_of(node) == expected


def test_host_knows_its_images_its_request_and_its_size() -> None:
    host = hosts.host_of(a_node())

    assert (host.has_image(OLD), host.has_image(NEW)) == (True, False)
    assert (host.is_requested(OLD), host.is_requested(NEW)) == (False, True)
    assert (host.pods, host.cpu_milli, host.memory_mb) == (2, 16000, 32768)


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [(8000, 14336, 2), (16000, 14336, 1), (8000, 20000, 1), (0, 0, 2), (32000, 1, 0)],
)
def test_slots_of_a_host(cpu: int, memory: int, expected: int) -> None:
    assert hosts.host_of(a_node()).slots(cpu_milli=cpu, memory_mb=memory) == expected


def test_capacity_is_that_of_usable_hosts() -> None:
    fleet = [a_host("a"), a_host("b", unusable="not_ready"), a_host("c", pods=0)]

    assert hosts.capacity(fleet, cpu_milli=8000, memory_mb=14336) == 1
