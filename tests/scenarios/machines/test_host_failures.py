"""Hosts on which several machines have failed are put in quarantine, until a person lifts it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry

from bramley.api.core import ConfigMap
from bramley.api.meta import ObjectMeta
from bramley.api.names import machines
from bramley.api.names import metrics as names
from bramley.base import errors
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response
from bramley.machines.host_failures import MAX_ENTRIES, REMEMBERED_FOR, HostFailures
from bramley.machines.host_leases import Holder
from bramley.machines.host_metrics import HostMetrics
from bramley.providers.provider import HostRef
from bramley.runtime.writes import FencedKube, ReadYourWrites
from tests import virtual_time
from tests.scenarios.world import World, a_world

NAMESPACE = "default"
NAME = machines.HOST_FAILURES
A, B = HostRef("fr-par-1", "host-a"), HostRef("fr-par-1", "host-b")
ONE, TWO = Holder(NAMESPACE, "m1", "u1"), Holder(NAMESPACE, "m2", "u2")


@dataclass(slots=True)
class SlowTransport:
    """Lets others run before each request, and counts the requests."""

    inner: object
    requests: int = 0

    async def send(self, request: Request) -> Response:
        self.requests += 1
        await asyncio.sleep(0.01)
        response: Response = await self.inner.send(request)  # type: ignore[attr-defined]
        return response

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


@dataclass(slots=True)
class Process:
    """One manager process."""

    world: World
    threshold: int = 2
    is_leader: bool = True
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    transport: SlowTransport = field(init=False)
    failures: HostFailures = field(init=False)

    def __post_init__(self) -> None:
        self.transport = SlowTransport(self.world.api.transport(self.world.token))
        client = Client(self.transport, clock=virtual_time.clock())  # type: ignore[arg-type]
        self.failures = HostFailures(
            reader=client,
            kube=FencedKube(client, writes=ReadYourWrites(), check=self.check),
            namespace=NAMESPACE,
            clock=virtual_time.clock(),
            metrics=HostMetrics(self.registry),
            threshold=self.threshold,
        )

    def check(self) -> None:
        if not self.is_leader:
            raise errors.LeaseLost("not the leader")

    @property
    def gauge(self) -> float | None:
        return self.registry.get_sample_value(names.QUARANTINED_HOSTS.name)


@asynccontextmanager
async def processes(threshold: int = 2) -> AsyncIterator[tuple[World, Process, Process]]:
    async with a_world() as world:
        yield world, Process(world, threshold), Process(world, threshold)


async def stored(world: World) -> dict[str, str]:
    return (await world.kube.get(ConfigMap, NAME, namespace=NAMESPACE)).data


async def edit(world: World, data: dict[str, str | None]) -> None:
    await world.kube.merge_patch(ConfigMap, NAME, {"data": data}, namespace=NAMESPACE)


async def forgotten() -> None:
    """Wait until what was read is read again."""
    await asyncio.sleep(REMEMBERED_FOR.total_seconds())


async def test_host_is_quarantined_after_failures_under_two_machines() -> None:
    async with processes() as (world, first, second):
        assert await first.failures.quarantined() == frozenset()
        assert await first.failures.record(A, ONE, "no ssh") is False
        # The same machine, as after a lost response.
        assert await first.failures.record(A, ONE, "no ssh") is False
        assert await first.failures.record(B, TWO, "no ssh") is False
        assert await first.failures.quarantined() == frozenset()

        assert await first.failures.record(A, TWO, "no disk") is True
        assert await first.failures.record(A, TWO, "no disk") is True
        assert await first.failures.quarantined() == {A.id}
        assert first.gauge == 1
        assert await second.failures.quarantined() == {A.id}
        entry = json.loads((await stored(world))[A.id])
        assert entry["machines"] == [{"uid": "u1", "name": "m1"}, {"uid": "u2", "name": "m2"}]
        assert entry["reason"] == "no disk"


@pytest.mark.parametrize(("threshold", "expected"), [(0, False), (1, True), (3, False)])
async def test_threshold_is_configurable(threshold: int, expected: bool) -> None:
    async with processes(threshold) as (_, first, _second):
        await first.failures.record(A, ONE, "no ssh")
        assert await first.failures.record(A, TWO, "no ssh") is expected
        assert (A.id in await first.failures.quarantined()) is expected


async def test_two_managers_that_record_at_once_lose_no_failure() -> None:
    async with processes() as (world, first, second):
        # Both create the ConfigMap.
        answers = await asyncio.gather(
            first.failures.record(A, ONE, "no ssh"), second.failures.record(A, TWO, "no ssh")
        )
        assert sorted(answers) == [False, True]
        # Both patch it.
        await asyncio.gather(
            *(first.failures.record(HostRef("z", f"h{each}"), ONE, "x") for each in range(5)),
            second.failures.quarantine(B, "loud fan"),
        )
        assert set(await stored(world)) == {A.id, B.id, *(f"h{each}" for each in range(5))}
        await asyncio.gather(
            first.failures.record(B, ONE, "no ssh"), second.failures.record(B, TWO, "no ssh")
        )
        assert len(json.loads((await stored(world))[B.id])["machines"]) == 2
        await forgotten()
        assert await first.failures.quarantined() == {A.id, B.id}


async def test_manager_that_does_not_lead_writes_nothing() -> None:
    async with processes() as (world, first, second):
        second.is_leader = False
        with pytest.raises(errors.LeaseLost):
            await second.failures.record(A, ONE, "no ssh")
        await first.failures.record(A, ONE, "no ssh")
        with pytest.raises(errors.LeaseLost):
            await second.failures.record(A, TWO, "no ssh")
        assert "u2" not in (await stored(world))[A.id]


async def test_bootstrap_that_succeeds_clears_failures_and_no_quarantine_of_a_person() -> None:
    async with processes() as (world, first, _):
        await first.failures.forget(A)
        for holder in (ONE, TWO):
            await first.failures.record(A, holder, "no ssh")
            await first.failures.record(B, holder, "no ssh")
        await first.failures.quarantine(B, "loud fan")
        await first.failures.quarantine(B, "loud fan")
        for ref in (A, B):
            await first.failures.forget(ref)

        assert await first.failures.quarantined() == {B.id}
        data = await stored(world)
        assert list(data) == [B.id]
        assert json.loads(data[B.id])["quarantine"] == "loud fan"
        assert "machines" not in json.loads(data[B.id])


async def test_person_lifts_a_quarantine_by_removing_the_key() -> None:
    async with processes() as (world, first, _):
        await first.failures.quarantine(A, "")
        assert await first.failures.quarantined() == {A.id}
        await edit(world, {A.id: None})
        await forgotten()
        assert await first.failures.quarantined() == frozenset()
        assert first.gauge == 0

        await edit(world, {A.id: '{"quarantine": "by hand"}'})
        await forgotten()
        assert await first.failures.quarantined() == {A.id}
        await world.kube.delete(ConfigMap, NAME, namespace=NAMESPACE)
        await forgotten()
        assert await first.failures.quarantined() == frozenset()
        assert await first.failures.record(A, ONE, "no ssh") is False


async def test_many_machines_cost_one_read() -> None:
    async with processes() as (_, first, _second):
        await asyncio.gather(*(first.failures.quarantined() for _ in range(50)))
        assert first.transport.requests == 1


async def test_unreadable_entries_are_ignored_and_stay() -> None:
    async with processes() as (world, first, _):
        metadata = ObjectMeta(name=NAME, namespace=NAMESPACE)
        damaged = {A.id: "{", "notes": "see the wiki"}
        await world.kube.create(ConfigMap(metadata=metadata, data=damaged))
        assert await first.failures.quarantined() == frozenset()
        assert await first.failures.record(A, ONE, "no ssh") is False
        await first.failures.forget(A)
        await first.failures.record(B, ONE, "no ssh")
        assert (await stored(world)).items() > damaged.items()

        await first.failures.quarantine(A, "loud fan")
        assert await first.failures.quarantined() == {A.id}


async def test_entries_are_bounded() -> None:
    async with processes() as (world, first, _):
        for number in range(MAX_ENTRIES + 5):
            await asyncio.sleep(1)
            await first.failures.record(HostRef("z", f"h{number}"), ONE, "no ssh")
        data = await stored(world)
        assert len(data) == MAX_ENTRIES
        assert "h4" not in data
        assert "h5" in data
