from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bramley.agent.dhcp_leases import LeaseUsage
from bramley.agent.host import Space, SystemInfo
from bramley.agent.ledger import ImageRecord
from bramley.agent.node import status
from bramley.agent.node.status import Check, Facts
from bramley.agent.settings import NodeSettings
from bramley.agent.slots import TakenSlots
from bramley.api import conditions
from bramley.api.core import NodeCondition, NodeStatus, NodeSystemInfo

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
    facts = Facts(slots=TakenSlots(leaks=("process 7 runs a VM",)))

    leaked = condition(facts, "SlotLeaked")

    assert (leaked.status, leaked.message) == ("True", "process 7 runs a VM")
    assert (node_status(facts).capacity["pods"], node_status(facts).allocatable["pods"]) == (
        "2",
        "1",
    )


def test_vm_under_a_lease_is_named_and_is_no_leak() -> None:
    facts = Facts(slots=TakenSlots(leased=("bake",)))

    leaked = condition(facts, "SlotLeaked")

    assert (leaked.status, leaked.reason) == ("False", "TartKubeletNoLeakedSlot")
    assert "bake" in leaked.message


@pytest.mark.parametrize(
    ("max_pods", "leaks", "leased", "expected"),
    [
        (2, 0, 0, "2"),
        (2, 1, 0, "1"),
        (2, 0, 1, "1"),
        (2, 1, 1, "0"),
        (2, 2, 1, "0"),
        # macOS has a slot more than the Node advertises.
        (1, 0, 1, "1"),
        (1, 1, 0, "1"),
        (1, 1, 1, "0"),
        (3, 0, 1, "2"),
    ],
)
def test_allocatable_pods_are_those_that_macos_has_slots_for(
    max_pods: int, leaks: int, leased: int, expected: str
) -> None:
    facts = Facts(slots=TakenSlots(leaks=("evidence",) * leaks, leased=("bake",) * leased))

    assert node_status(facts, max_pods=max_pods).allocatable["pods"] == expected


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
        "DHCPPressure",
    }


@pytest.mark.parametrize(
    ("used", "expected", "reason"),
    [
        (0, "False", "TartKubeletHasSufficientLeases"),
        (227, "False", "TartKubeletHasSufficientLeases"),
        (228, "True", "TartKubeletHasDHCPPressure"),
        (253, "True", "TartKubeletHasDHCPPressure"),
    ],
)
def test_dhcp_pressure_is_true_from_90_percent_of_the_leases(
    used: int, expected: str, reason: str
) -> None:
    facts = Facts(dhcp_leases=LeaseUsage(used, network="192.168.64.0/24"))

    found = condition(facts, "DHCPPressure")

    assert (found.status, found.reason) == (expected, reason)
    assert f"{used} of 253" in found.message
    assert ("bramley host apply" in found.message) == (expected == "True")


def test_dhcp_pressure_is_kept_while_the_leases_are_unknown() -> None:
    before = NodeStatus(
        conditions=[NodeCondition(type="DHCPPressure", status="True", reason="x", message="y")]
    )

    kept = condition(Facts(), "DHCPPressure", before)

    assert (kept.status, kept.reason, kept.message) == ("True", "x", "y")
    assert condition(Facts(), "DHCPPressure").status == "False"


MAC = SystemInfo(
    os_image="macOS 26.3 (25D125)",
    kernel_version="25.3.0",
    machine_id="0b2b1f3c00004000800000000000cafe",
    system_uuid="0B2B1F3C-0000-4000-8000-00000000CAFE",
)


def test_node_info_names_the_system_and_the_version_of_tart() -> None:
    facts = Facts(system=MAC, tart_version="2.32.1", boot_id="boot")

    assert node_status(facts).node_info == NodeSystemInfo(
        machine_id=MAC.machine_id,
        system_uuid=MAC.system_uuid,
        boot_id="boot",
        kernel_version="25.3.0",
        os_image="macOS 26.3 (25D125)",
        container_runtime_version="tart://2.32.1",
        kubelet_version="tart-kubelet-v0",
        operating_system="darwin",
        architecture="arm64",
    )


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.32.1", "tart://2.32.1"),
        ("SNAPSHOT", "tart://SNAPSHOT"),
        ("", "tart://2.0.0"),
        ("warning: x\n2.32.1", "tart://2.0.0"),
        ("2.32.1 beta", "tart://2.0.0"),
        ("\x1b[31m2.32.1", "tart://2.0.0"),
        ("9" * 65, "tart://2.0.0"),
    ],
)
def test_version_of_tart_is_kept_unless_it_is_one(version: str, expected: str) -> None:
    before = NodeStatus(node_info=NodeSystemInfo(container_runtime_version="tart://2.0.0"))

    info = node_status(Facts(tart_version=version), before).node_info
    assert info.container_runtime_version == expected
    assert node_status(Facts()).node_info.container_runtime_version == "tart"


@pytest.mark.parametrize("bad", ["", "a\nb", "\x1b[31mred", "\u202eabc", "x" * 129])
def test_unknown_or_invalid_info_keeps_its_published_value(bad: str) -> None:
    before = node_status(Facts(system=MAC, tart_version="2.32.1", boot_id="old"))
    system = SystemInfo(os_image=bad, kernel_version=bad, machine_id=bad, system_uuid=bad)

    after = node_status(Facts(system=system, boot_id="new"), before).node_info

    assert after == msgspec.structs.replace(before.node_info, boot_id="new")


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
