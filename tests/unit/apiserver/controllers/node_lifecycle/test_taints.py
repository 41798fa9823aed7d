"""Taints as tables: which follow from conditions, how lists of them change, and for how long Pods tolerate them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from bramley.api.core import Node, Pod, Taint
from bramley.apiserver.controllers import node_lifecycle
from bramley.apiserver.controllers.node_lifecycle import taints
from bramley.apiserver.controllers.node_lifecycle.zones import (
    DisruptionChange,
    Zones,
    ZoneState,
    zone_state,
)
from bramley.apiserver.controllers.timings import Timings
from tests.unit.apiserver.controllers.controller_world import a_world_with

TODAY = datetime(2026, 6, 19, tzinfo=UTC)


def a_node(
    conditions: dict[str, str], *given: tuple[str, str], unschedulable: bool = False
) -> Node:
    body = {
        "metadata": {"name": "n"},
        "spec": {
            "unschedulable": unschedulable,
            "taints": [{"key": key, "effect": effect} for key, effect in given],
        },
        "status": {
            "conditions": [{"type": type, "status": status} for type, status in conditions.items()]
        },
    }
    return msgspec.convert(body, Node)


def pairs(found: list[Taint]) -> list[tuple[str, str]]:
    return [(each.key.removeprefix("node.kubernetes.io/"), each.effect) for each in found]


MINE = ("mine", "NoSchedule")
STALE = ("node.kubernetes.io/disk-pressure", "NoSchedule")
NO_SCHEDULE = {
    "well": (a_node({"Ready": "True"}), []),
    "no conditions": (a_node({}), []),
    "not ready": (a_node({"Ready": "False"}), [("not-ready", "NoSchedule")]),
    "silent": (a_node({"Ready": "Unknown"}), [("unreachable", "NoSchedule")]),
    "short of everything": (
        a_node(dict.fromkeys(["MemoryPressure", "DiskPressure", "PIDPressure"], "True")),
        [
            ("memory-pressure", "NoSchedule"),
            ("disk-pressure", "NoSchedule"),
            ("pid-pressure", "NoSchedule"),
        ],
    ),
    "memory pressure unknown": (a_node({"MemoryPressure": "Unknown"}), []),
    "without a network": (
        a_node({"NetworkUnavailable": "True"}),
        [("network-unavailable", "NoSchedule")],
    ),
    "cordoned": (a_node({"Ready": "True"}, unschedulable=True), [("unschedulable", "NoSchedule")]),
    "well again": (a_node({"DiskPressure": "False"}, STALE), []),
    "other taints stay": (a_node({"Ready": "True"}, MINE), [("mine", "NoSchedule")]),
    "those that evict stay": (
        a_node({"Ready": "True"}, ("node.kubernetes.io/not-ready", "NoExecute")),
        [("not-ready", "NoExecute")],
    ),
    "what is there is not added again": (
        a_node({"DiskPressure": "True"}, STALE, MINE),
        [("disk-pressure", "NoSchedule"), ("mine", "NoSchedule")],
    ),
}


@pytest.mark.parametrize("case", NO_SCHEDULE)
def test_taints_follow_from_conditions(case: str) -> None:
    node, expected = NO_SCHEDULE[case]

    assert pairs(taints.with_no_schedule_taints(node, now_utc=TODAY)) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (taints.UNREACHABLE, [("unreachable", "NoExecute")]),
        (taints.NOT_READY, [("not-ready", "NoExecute")]),
        (None, []),
    ],
)
@pytest.mark.parametrize("before", [taints.UNREACHABLE, taints.NOT_READY, None])
def test_at_most_one_eviction_taint_is_set(
    before: str | None, key: str | None, expected: list[tuple[str, str]]
) -> None:
    first = taints.with_no_execute_taint([], before, now_utc=TODAY)

    assert pairs(taints.with_no_execute_taint(first, key, now_utc=TODAY)) == expected


K, L = Taint(key="k", effect="NoExecute"), Taint(key="l", effect="NoExecute")
TOLERATED: dict[str, tuple[list[dict[str, Any]], list[Taint], int | None]] = {
    "not at all": ([], [K], 0),
    "for ever": ([{"key": "k", "operator": "Exists"}], [K], None),
    "for a while": ([{"key": "k", "operator": "Exists", "tolerationSeconds": 9}], [K], 9),
    "only one of two": ([{"key": "k", "operator": "Exists"}], [K, L], 0),
    "the shorter of two": (
        [
            {"key": "k", "operator": "Exists", "tolerationSeconds": 9},
            {"key": "l", "operator": "Exists", "tolerationSeconds": 3},
        ],
        [K, L],
        3,
    ),
    "one for ever and one for a while": (
        [
            {"key": "k", "operator": "Exists"},
            {"key": "l", "operator": "Exists", "tolerationSeconds": 3},
        ],
        [K, L],
        3,
    ),
    "a negative while": ([{"operator": "Exists", "tolerationSeconds": -1}], [K], 0),
    "only what keeps new ones away": (
        [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
        [K],
        0,
    ),
}


@pytest.mark.parametrize("case", TOLERATED)
def test_toleration_limit(case: str) -> None:
    tolerations, given, expected = TOLERATED[case]
    pod = msgspec.convert({"spec": {"tolerations": tolerations}}, Pod)

    assert taints.toleration_limit(pod, given) == expected


@pytest.mark.parametrize(
    ("ready", "silent", "expected"),
    [
        (1, 0, ZoneState.NORMAL),
        (0, 1, ZoneState.FULL),
        (1, 2, ZoneState.NORMAL),
        (1, 3, ZoneState.PARTIAL),
        (10, 9, ZoneState.NORMAL),
        (45, 55, ZoneState.PARTIAL),
        (46, 54, ZoneState.NORMAL),
    ],
)
def test_zone_state(ready: int, silent: int, expected: ZoneState) -> None:
    assert zone_state([True] * ready + [False] * silent, share=0.55) is expected


def test_missing_heartbeats_right_after_a_start_are_not_a_change() -> None:
    zones = Zones(Timings())

    first = zones.update({"": [False, False]})
    was_any_ready = zones.was_any_ready
    zones.update({"": [True, False]})
    later = zones.update({"": [False, False]})

    assert (first, was_any_ready) == (DisruptionChange.ALL_DISRUPTED, False)
    assert (later, zones.was_any_ready) == (DisruptionChange.ALL_DISRUPTED, True)


async def test_cordon_sets_a_taint_and_uncordon_removes_it() -> None:
    async with a_world_with(node_lifecycle.add) as world:
        await world.node("mac-1")

        await world.kube.merge_patch(Node, "mac-1", {"spec": {"unschedulable": True}})
        await asyncio.sleep(1)
        assert await world.taints("mac-1") == {("unschedulable", "NoSchedule")}

        await world.kube.merge_patch(Node, "mac-1", {"spec": {"unschedulable": None}})
        await asyncio.sleep(1)
        assert await world.taints("mac-1") == set()


async def test_new_node_loses_its_taint_when_it_is_ready() -> None:
    async with a_world_with(node_lifecycle.add) as world:
        await world.node("other")
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        await world.node("mac-1", ready="False", spec={"taints": [taint]})
        await asyncio.sleep(6)
        assert ("not-ready", "NoSchedule") in await world.taints("mac-1")

        await world.status("mac-1", ready="True")
        await asyncio.sleep(6)

        assert await world.taints("mac-1") == set()


async def test_a_taint_evicts_pods_without_toleration_at_once() -> None:
    async with a_world_with(node_lifecycle.add) as world:
        await world.node("mac-1")
        await world.pod("goes", node="mac-1")
        await world.pod("stays", node="mac-1", tolerations=[{"key": "k", "operator": "Exists"}])
        await asyncio.sleep(1)

        taint = {"key": "k", "effect": "NoExecute"}
        await world.kube.merge_patch(Node, "mac-1", {"spec": {"taints": [taint]}})
        await asyncio.sleep(2)

        goes, stays = await world.find("goes"), await world.find("stays")
        assert goes is not None
        assert stays is not None
        assert (goes.deleting, stays.deleting) == (True, False)
        event = ("TaintManagerEviction", "Marking for deletion Pod default/goes")
        assert event in await world.events("goes")
