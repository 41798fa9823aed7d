from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bramley.agent.host import Space
from bramley.agent.ledger import ImageRecord
from bramley.agent.node import status
from bramley.agent.node.status import Check, Facts
from bramley.agent.settings import NodeSettings
from bramley.api import conditions
from bramley.api.core import NodeCondition, NodeStatus

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
WELL = Check("")
ROOM = Space(total=1000, free=500)


def node_status(facts: Facts, before: NodeStatus | None = None, **settings: Any) -> NodeStatus:
    chosen = NodeSettings("mac-1", **settings)
    return status.status(chosen, facts, before or NodeStatus(), now=NOW)


def condition(facts: Facts, kind: str, before: NodeStatus | None = None) -> NodeCondition:
    found = conditions.find(node_status(facts, before).conditions, kind)
    assert found
    return found


@pytest.mark.parametrize(
    ("tart", "session", "expected"),
    [
        (WELL, WELL, ("True", "TartKubeletReady")),
        (WELL, None, ("True", "TartKubeletReady")),
        (Check("it hangs"), WELL, ("False", "TartNotAnswering")),
        (Check("it hangs"), Check("gone"), ("False", "TartNotAnswering")),
        (WELL, Check("gone"), ("False", "NoGuiSession")),
        (Check(), WELL, ("False", "TartKubeletStarting")),
        (WELL, Check(), ("False", "TartKubeletStarting")),
    ],
)
def test_ready_means_tart_answers_and_the_session_is_alive(
    tart: Check, session: Check | None, expected: tuple[str, str]
) -> None:
    ready = condition(Facts(tart=tart, session=session), "Ready")

    assert (ready.status, ready.reason) == expected


def test_message_names_the_failed_probe() -> None:
    assert (
        condition(Facts(tart=Check("tart --version hangs")), "Ready").message
        == "tart --version hangs"
    )


@pytest.mark.parametrize(
    ("space", "guests", "expected"),
    [
        (ROOM, {}, "False"),
        (Space(total=1000, free=100), {}, "False"),
        (Space(total=1000, free=99), {}, "True"),
        (Space(total=0, free=0), {}, "False"),
        (ROOM, {"a": 89.0}, "False"),
        (ROOM, {"a": 10.0, "b": 90.0}, "True"),
    ],
)
def test_disk_pressure_is_of_host_and_guests(
    space: Space, guests: dict[str, float], expected: str
) -> None:
    assert condition(Facts(space=space, guest_disks=guests), "DiskPressure").status == expected


def test_disk_pressure_is_unchanged_while_the_disk_is_unknown() -> None:
    before = NodeStatus(
        conditions=[NodeCondition(type="DiskPressure", status="True", reason="x", message="y")]
    )

    kept = condition(Facts(space=None), "DiskPressure", before)

    assert (kept.status, kept.reason, kept.message) == ("True", "x", "y")


def test_disk_pressure_begins_as_false() -> None:
    assert condition(Facts(space=None), "DiskPressure").status == "False"


def test_leaked_slot_is_reported_with_its_evidence_and_not_allocatable() -> None:
    facts = Facts(leaks=["process 7 runs a VM"])

    leaked = condition(facts, "SlotLeaked")

    assert (leaked.status, leaked.message) == ("True", "process 7 runs a VM")
    assert (node_status(facts).capacity["pods"], node_status(facts).allocatable["pods"]) == (
        "2",
        "1",
    )


def test_transition_time_moves_only_with_the_status() -> None:
    since = NOW - timedelta(hours=1)
    before = NodeStatus(
        conditions=[
            NodeCondition(type="Ready", status="True", last_transition_time=since),
            NodeCondition(type="SlotLeaked", status="True", last_transition_time=since),
        ]
    )
    facts = Facts(tart=WELL)

    assert condition(facts, "Ready", before).last_transition_time == since
    assert condition(facts, "SlotLeaked", before).last_transition_time == NOW
    assert condition(facts, "Ready", before).last_heartbeat_time == NOW


def test_foreign_conditions_are_not_in_our_status() -> None:
    before = NodeStatus(conditions=[NodeCondition(type="NetworkUnavailable", status="False")])

    assert {one.type for one in node_status(Facts(), before).conditions} == {
        "Ready",
        "DiskPressure",
        "SlotLeaked",
    }


def test_capacity_is_the_settings_and_the_size_of_the_disk() -> None:
    facts = Facts(space=ROOM)

    capacity = node_status(facts, cpu=10, memory_mb=32768, max_pods=3).capacity

    assert capacity == {"cpu": "10", "memory": "32768Mi", "pods": "3", "ephemeral-storage": "1000"}


def test_addresses_are_in_the_status_only_when_known() -> None:
    assert node_status(Facts()).addresses == []
    addresses = node_status(Facts(), address="10.0.0.7").addresses
    assert [(one.type, one.address) for one in addresses] == [
        ("InternalIP", "10.0.0.7"),
        ("Hostname", "mac-1"),
    ]


def test_images_come_largest_first_and_bounded() -> None:
    images = [
        ImageRecord(digest=f"sha256:{size}", references=(f"i:{size}",), size_bytes=size)
        for size in range(60)
    ]

    published = node_status(Facts(images=images)).images

    assert [one.size_bytes for one in published] == list(range(59, 9, -1))


def test_kubelet_port_is_in_the_status_once_it_listens() -> None:
    assert status.body(node_status(Facts()))["daemonEndpoints"] == {}
    body = status.body(node_status(Facts(kubelet_port=10250)))
    assert body["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}


def test_node_info_has_the_required_fields() -> None:
    info = status.body(node_status(Facts(boot_id="b")))["nodeInfo"]

    assert info["operatingSystem"] == "darwin"
    assert info["kubeletVersion"] == "tart-kubelet-v0"
    assert (info["bootID"], info["machineID"]) == ("b", "")
