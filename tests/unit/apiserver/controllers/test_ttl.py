"""Events live for an hour after their last update."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bramley.api.core import Event
from bramley.apiserver.controllers import ttl
from bramley.apiserver.controllers.ttl import EventTimes
from tests import virtual_time
from tests.unit.apiserver.controllers.controller_world import World, a_world, a_world_with, running

NOW = datetime(2026, 6, 19, 12, tzinfo=UTC)
TEXT = "2026-06-19T11:{:02}:00.000000Z"


@pytest.mark.parametrize(
    ("fields", "minutes"),
    [
        ({}, 60),
        ({"lastTimestamp": NOW - timedelta(minutes=20)}, 20),
        ({"eventTime": TEXT.format(45)}, 15),
        ({"eventTime": TEXT.format(45), "series": {"lastObservedTime": TEXT.format(55)}}, 5),
        ({"lastTimestamp": NOW + timedelta(days=900)}, 60),
        ({"lastTimestamp": None, "eventTime": None, "series": None}, 60),
    ],
)
def test_last_update_of_an_event(fields: dict[str, Any], minutes: int) -> None:
    body = {"metadata": {"creationTimestamp": NOW - timedelta(hours=1)}, **fields}

    found = ttl.updated_at(msgspec.convert(body, EventTimes), now=NOW)

    assert NOW - found == timedelta(minutes=minutes)


async def create_event(world: World, name: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "lastTimestamp": f"{virtual_time.clock().now():%Y-%m-%dT%H:%M:%SZ}",
    }
    await world.kube.create_wire(Event.resource, body, namespace="default")


async def names(world: World) -> list[str]:
    return [event.name for event in (await world.kube.list(Event)).items]


async def test_event_is_deleted_an_hour_after_its_last_update() -> None:
    async with a_world_with(ttl.add_event_ttl) as world:
        await create_event(world, "a")
        await create_event(world, "b")
        await asyncio.sleep(1800)
        stamp = f"{virtual_time.clock().now():%Y-%m-%dT%H:%M:%SZ}"
        await world.kube.merge_patch(Event, "b", {"lastTimestamp": stamp}, namespace="default")

        await asyncio.sleep(1790)
        assert await names(world) == ["a", "b"]

        await asyncio.sleep(80)
        assert await names(world) == ["b"]

        await asyncio.sleep(1800)
        assert await names(world) == []


async def test_old_events_are_deleted_in_batches() -> None:
    async with a_world() as world:
        for number in range(250):
            await create_event(world, f"e{number}")
        await asyncio.sleep(3700)

        async with running(world.manager(ttl.add_event_ttl)):
            await asyncio.sleep(0.5)
            assert len(await names(world)) == 150
            await asyncio.sleep(2)
            assert await names(world) == []


async def test_nothing_is_listed_before_an_event_can_expire() -> None:
    async with a_world_with(ttl.add_event_ttl) as world:
        await create_event(world, "a")
        await asyncio.sleep(70)
        listed: list[str] = []
        pages = world.kube.pages

        def counted(kind: type[EventTimes]) -> Any:
            listed.append(kind.resource.plural)
            return pages(kind)

        world.kube.pages = counted  # type: ignore[assignment,method-assign]
        await asyncio.sleep(3000)
        assert listed == []

        await asyncio.sleep(600)
        assert listed == ["events"]
