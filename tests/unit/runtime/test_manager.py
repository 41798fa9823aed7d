from __future__ import annotations

import asyncio
from datetime import timedelta

import aiohttp
import pytest

from bramley.api.coordination import Lease
from bramley.api.core import Event
from bramley.base import errors
from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.probes import ProbeSettings
from tests.unit.runtime.fake_api import FakeApi, Thing, a_thing
from tests.unit.runtime.informer_harness import a_server, running, until, value
from tests.unit.runtime.manager_harness import SETTINGS, RecordingReconciler, a_manager, managed
from tests.virtual_time import RefusedUnderVirtualTime


def an_election(identity: str = "me") -> LeaderElectionSettings:
    return LeaderElectionSettings("ns", "controllers", identity)


def elected(server: FakeApi, reconciler: RecordingReconciler, identity: str = "me") -> Manager:
    manager = a_manager(server, ManagerSettings(election=an_election(identity)))
    manager.add(Controller(reconciler, SETTINGS).for_kind(Thing))
    return manager


def holder(server: FakeApi) -> str | None:
    lease = server.things[Lease, Key("ns", "controllers")]
    assert isinstance(lease, Lease)
    return lease.spec.holder_identity


def slow(seconds: float, log: list[str]) -> RecordingReconciler:
    async def act(obj: Thing) -> Outcome:
        log.append(f"begin {obj.name}")
        await asyncio.sleep(seconds)
        log.append(f"end {obj.name}")
        return Settled()

    return RecordingReconciler(act)


async def test_only_the_leader_reconciles_and_both_are_ready() -> None:
    server, first, second = a_server("a"), RecordingReconciler(), RecordingReconciler()
    one, two = elected(server, first, "one"), elected(server, second, "two")
    async with managed(one), managed(two):
        await asyncio.sleep(60)

        assert len(first.calls) + len(second.calls) == 1
        assert one.ready.is_set()
        assert two.ready.is_set()
        assert one.leading.is_set() != two.leading.is_set()


async def test_stop_drains_running_reconciles_and_takes_no_new_keys() -> None:
    server, log = a_server("a"), list[str]()
    manager = a_manager(server)
    manager.add(Controller(slow(5, log), SETTINGS).for_kind(Thing))
    async with managed(manager):
        await asyncio.sleep(1)
        server.put(a_thing("b"))
        await asyncio.sleep(1)
        manager.stop()
        server.put(a_thing("c"))

    assert log == ["begin a", "begin b", "end a", "end b"]
    assert asyncio.get_running_loop().time() < 8


async def test_stop_cancels_reconciles_past_the_drain_deadline() -> None:
    server, log = a_server("a"), list[str]()
    manager = a_manager(server, ManagerSettings(drain=timedelta(seconds=10)))
    manager.add(Controller(slow(60, log), SETTINGS).for_kind(Thing))
    async with managed(manager):
        await asyncio.sleep(1)
        manager.stop()

    assert log == ["begin a"]
    assert asyncio.get_running_loop().time() == pytest.approx(11, abs=0.5)


async def test_lease_is_held_while_draining_and_released_last() -> None:
    server, log = a_server("a"), list[str]()
    manager = elected(server, slow(20, log))
    async with managed(manager):
        await until(lambda: log)
        manager.stop()
        for _ in range(15):
            await asyncio.sleep(1)
            assert holder(server) == "me"
            manager.check()

    assert log == ["begin a", "end a"]
    assert holder(server) is None
    assert value(manager.metrics, "bramley_leader", lease="controllers") == 0


async def test_hand_over_takes_less_than_two_seconds() -> None:
    server = a_server("a")
    one, two = (elected(server, RecordingReconciler(), name) for name in ("one", "two"))
    async with managed(one):
        await one.leading.wait()
        async with managed(two):
            await asyncio.sleep(30)
            one.stop()
            began = asyncio.get_running_loop().time()
            await until(two.leading.is_set, within=10)

            assert asyncio.get_running_loop().time() - began < 2
            assert two.leadership is not None
            assert two.leadership.epoch == 2


async def test_lost_lease_cancels_reconciles_and_ends_the_run() -> None:
    server, log = a_server("a"), list[str]()
    manager = elected(server, slow(1000, log))

    async def steal() -> None:
        await until(lambda: log)
        thief = {"spec": {"holderIdentity": "thief", "leaseTransitions": 9}}
        await server.merge_patch(Lease, "controllers", thief, namespace="ns")

    async with running(steal()):
        with pytest.raises(errors.LeaseLost):
            await manager.run()

    assert asyncio.get_running_loop().time() < 5
    assert log == ["begin a"]
    assert holder(server) == "thief"
    with pytest.raises(errors.LeaseLost):
        manager.check()


async def test_port_in_use_ends_the_run_with_a_plain_error() -> None:
    """Sockets are refused under virtual time, which is as good as a port in use."""
    manager = a_manager(a_server(), ManagerSettings(probes=(ProbeSettings(),)))

    with pytest.raises(RefusedUnderVirtualTime):
        await manager.run()


async def test_paused_leader_writes_nothing_after_it_wakes() -> None:
    """The reconcile continues, and its first write is refused."""
    server = a_server("a")
    manager = elected(server, RecordingReconciler())
    refused: list[str] = []

    async def act(obj: Thing) -> Outcome:
        # Sixty seconds pass without any of this process's code being run.
        clock_of(manager).skip(60)
        try:
            await manager.kube.merge_patch(Thing, obj.name, {"spec": {"value": 1}}, namespace="ns")
        except errors.LeaseLost as error:
            refused.append(error.reason)
            raise
        return Settled()

    manager = elected(server, RecordingReconciler(act))
    with pytest.raises(errors.LeaseLost):
        async with asyncio.timeout(20):
            await manager.run()

    assert refused == ["LeaseLost"]
    assert server.calls.count("patch") == 0


class Jumping:
    """A clock whose process can be stopped for a while."""

    def __init__(self, manager: Manager) -> None:
        self._clock = manager._clock
        self._skipped = 0.0

    def skip(self, seconds: float) -> None:
        self._skipped += seconds

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._skipped


def clock_of(manager: Manager) -> Jumping:
    assert manager.leadership is not None
    jumping = Jumping(manager)
    manager.leadership._clock = jumping  # type: ignore[assignment]
    return jumping


async def test_stop_while_waiting_for_the_lease_ends_at_once() -> None:
    server = a_server("a")
    one, two = (elected(server, RecordingReconciler(), name) for name in ("one", "two"))
    async with managed(one):
        await one.leading.wait()
        async with managed(two):
            await asyncio.sleep(5)
            two.stop()
            began = asyncio.get_running_loop().time()

        assert asyncio.get_running_loop().time() - began < 0.1
        assert holder(server) == "one"


async def test_stop_while_the_caches_fill_ends_at_once() -> None:
    server = a_server("a")
    server.unavailable = True
    manager = a_manager(server)
    manager.add(Controller(RecordingReconciler(), SETTINGS).for_kind(Thing))
    async with managed(manager):
        await asyncio.sleep(5)
        assert not manager.ready.is_set()

    assert asyncio.get_running_loop().time() == pytest.approx(5, abs=0.1)


async def test_events_recorded_before_the_stop_are_written() -> None:
    server = a_server("a")
    manager = a_manager(server)
    recorder = manager.recorder("test")

    async def act(obj: Thing) -> Outcome:
        await asyncio.sleep(5)
        recorder.event(obj, "Done", "at last")
        return Settled()

    manager.add(Controller(RecordingReconciler(act), SETTINGS).for_kind(Thing))
    async with managed(manager):
        await asyncio.sleep(1)
        manager.stop()

    assert [event.reason for event in server.all(Event)] == ["Done"]
    assert manager.recorder("test") is recorder


@pytest.mark.real_time
async def test_readiness_follows_the_caches_and_the_stop() -> None:
    server, log = a_server("a"), list[str]()
    server.unavailable = True
    manager = a_manager(server, ManagerSettings(probes=(ProbeSettings(),)))
    manager.add(Controller(slow(0.5, log), SETTINGS).for_kind(Thing))
    [probes] = manager.probes
    async with managed(manager), aiohttp.ClientSession() as session:
        await asyncio.wait_for(probes.ready.wait(), 10)
        url = f"http://127.0.0.1:{probes.port}/readyz"
        async with session.get(url) as response:
            assert response.status == 503
            assert "[-]cache/things failed: not synced yet" in await response.text()
        server.unavailable = False
        await asyncio.wait_for(manager.ready.wait(), 10)
        async with session.get(url) as response:
            assert response.status == 200
        await until(lambda: log, within=10)
        manager.stop()
        async with session.get(url) as response:
            assert "[-]manager failed: stopping" in await response.text()


async def test_runnable_runs_until_the_manager_stops() -> None:
    calls: list[str] = []

    async def runnable() -> None:
        calls.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            calls.append("ended")

    manager = a_manager(FakeApi())
    manager.add_runnable(runnable)
    async with managed(manager):
        await asyncio.sleep(1)
        assert calls == ["started"]

    assert calls == ["started", "ended"]
