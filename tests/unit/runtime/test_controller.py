from __future__ import annotations

import asyncio
import io
import itertools
import json
import logging
import time
from datetime import timedelta

import pytest

from bramley.api.meta import ObjectMeta, OwnerReference
from bramley.base import errors, log
from bramley.runtime.controller import Controller, ControllerSettings, owner_keys
from bramley.runtime.keys import Key
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from tests.unit.runtime.fake_api import FakeApi, Part, Thing, a_thing
from tests.unit.runtime.informer_harness import a_server, value
from tests.unit.runtime.manager_harness import (
    SETTINGS,
    RecordingReconciler,
    a_manager,
    controlled,
    managed,
    outcomes,
)


def a_part(name: str, owner: str) -> Part:
    reference = OwnerReference(
        api_version="test.bramley.dev/v1", kind="Thing", name=owner, uid="u", controller=True
    )
    metadata = ObjectMeta(name=name, namespace="ns", owner_references=[reference])
    return Part(metadata=metadata)


async def test_each_object_is_reconciled_at_start_and_after_its_change() -> None:
    server, reconciler = a_server("a", "b"), RecordingReconciler()
    async with controlled(server, reconciler) as manager:
        await asyncio.sleep(1)
        server.put(a_thing("a", 1))
        await asyncio.sleep(1)

        assert reconciler.names == ["a", "b", "a"]
        assert outcomes(manager, "settled") == 3


async def test_no_object_is_reconciled_before_every_cache_is_filled() -> None:
    server, reconciler = FakeApi(), RecordingReconciler()
    server.put(a_thing("a"))
    server.failures["list"] = [None, errors.ApiUnavailable("parts are away")] * 3
    manager = a_manager(server)
    manager.add(Controller(reconciler, SETTINGS).for_kind(Thing).owns(Part))
    async with managed(manager):
        while not reconciler.calls:
            assert not manager.ready.is_set()
            await asyncio.sleep(0.01)

        assert manager.informer(Part).synced.is_set()


async def test_check_again_is_requeued_after_its_time_without_backoff() -> None:
    async def wait(_thing: Thing) -> Outcome:
        return CheckAgain(timedelta(seconds=10), "booting")

    server, reconciler = a_server("a"), RecordingReconciler(wait)
    async with controlled(server, reconciler) as manager:
        await asyncio.sleep(35)

        gaps = [later - earlier for earlier, later in itertools.pairwise(reconciler.times)]
        assert gaps == pytest.approx([10, 10, 10])
        assert value(manager.metrics, "bramley_queue_retries_total", controller="thing") == 0


async def test_failures_back_off_and_success_resets_them() -> None:
    fates = [errors.ApiUnavailable("away")] * 4

    async def fail(_thing: Thing) -> Outcome:
        if fates:
            raise fates.pop()
        return Settled()

    server, reconciler = a_server("a"), RecordingReconciler(fail)
    async with controlled(server, reconciler) as manager:
        await asyncio.sleep(60)
        gaps = [later - earlier for earlier, later in itertools.pairwise(reconciler.times)]

        assert len(reconciler.calls) == 5
        assert gaps == sorted(gaps)
        assert outcomes(manager, "unavailable", "ApiUnavailable") == 4
        fates.append(errors.ApiUnavailable("again"))
        server.put(a_thing("a", 1))
        await asyncio.sleep(1)
        assert reconciler.times[-1] - reconciler.times[-2] < 0.21


async def test_conflict_is_retried_at_once_from_a_fresh_read() -> None:
    seen: list[int] = []

    async def conflict_once(obj: Thing) -> Outcome:
        seen.append(obj.spec.value)
        if len(seen) == 1:
            # The change is on the server and its event still on the way.
            server.silence()
            server.put(a_thing("a", 7))
            raise errors.Conflict("stale")
        return Settled()

    server = a_server("a")
    reconciler = RecordingReconciler(conflict_once)
    async with controlled(server, reconciler) as manager:
        await asyncio.sleep(1)

        assert seen == [0, 7]
        assert reconciler.times[0] == reconciler.times[1]
        assert value(manager.metrics, "bramley_queue_retries_total", controller="thing") == 0


async def test_repeated_conflicts_back_off() -> None:
    async def conflict(_thing: Thing) -> Outcome:
        raise errors.Conflict("stale")

    server, reconciler = a_server("a"), RecordingReconciler(conflict)
    async with controlled(server, reconciler):
        await asyncio.sleep(60)

        assert 8 < len(reconciler.calls) < 30


async def test_refused_object_is_left_alone_until_it_changes() -> None:
    async def refuse(_thing: Thing) -> Outcome:
        raise errors.InvalidSpec("no such image")

    server, reconciler = a_server("a"), RecordingReconciler(refuse)
    async with controlled(server, reconciler) as manager:
        await asyncio.sleep(3600)
        assert len(reconciler.calls) == 1
        server.put(a_thing("a", 1))
        await asyncio.sleep(1)

        assert len(reconciler.calls) == 2
        assert outcomes(manager, "refused", "InvalidSpec") == 2


async def test_rate_limited_object_waits_for_retry_after() -> None:
    async def limited(_thing: Thing) -> Outcome:
        raise errors.RateLimited("slow down", after=timedelta(seconds=90))

    server, reconciler = a_server("a"), RecordingReconciler(limited)
    async with controlled(server, reconciler):
        await asyncio.sleep(100)

        assert reconciler.times[1] - reconciler.times[0] == pytest.approx(90)


async def test_bug_is_logged_with_its_trace_counted_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail_if_bad(obj: Thing) -> Outcome:
        if obj.name == "bad":
            raise ZeroDivisionError
        return Settled()

    server, reconciler = a_server("bad", "good"), RecordingReconciler(fail_if_bad)
    with caplog.at_level(logging.ERROR):
        async with controlled(server, reconciler) as manager:
            await asyncio.sleep(10)

            assert "good" in reconciler.names
            assert reconciler.names.count("bad") > 3
            assert outcomes(manager, "bug", "ZeroDivisionError") == reconciler.names.count("bad")
    record = caplog.records[0]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_log_lines_of_a_reconcile_name_the_object() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(log.JsonLines())
    root = logging.getLogger()
    root.addHandler(handler)

    async def log_value(obj: Thing) -> Outcome:
        await asyncio.sleep(1)
        log.get("test").warning("Working", value=obj.spec.value)
        return Settled()

    server = a_server("a", "b", "c")
    async with controlled(server, RecordingReconciler(log_value)):
        await asyncio.sleep(5)
    root.removeHandler(handler)

    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    working = [line for line in lines if line["message"] == "Working"]
    assert sorted(line["object"] for line in working) == ["ns/a", "ns/b", "ns/c"]
    assert {line["controller"] for line in working} == {"thing"}
    assert len({line["reconcile"] for line in working}) == 3


async def test_bug_in_a_task_group_counts_as_a_bug() -> None:
    async def concurrently(_thing: Thing) -> Outcome:
        async with asyncio.TaskGroup() as group:
            group.create_task(_fail())
        return Settled()

    async def _fail() -> None:
        raise errors.ApiUnavailable("away")

    server, reconciler = a_server("a"), RecordingReconciler(concurrently)
    async with controlled(server, reconciler) as manager:
        await asyncio.sleep(1)

        assert outcomes(manager, "unavailable", "ApiUnavailable") > 0


async def test_reconcile_past_its_deadline_is_cancelled_and_retried() -> None:
    async def hang(_thing: Thing) -> Outcome:
        await asyncio.sleep(1e6)
        return Settled()

    server, reconciler = a_server("a"), RecordingReconciler(hang)
    settings = ControllerSettings(deadline=timedelta(seconds=30))
    async with controlled(server, reconciler, settings) as manager:
        await asyncio.sleep(40)

        assert outcomes(manager, "unavailable", "TimedOut") == 1
        assert len(reconciler.calls) == 2


async def test_blocked_object_does_not_block_the_others() -> None:
    async def block_one(obj: Thing) -> Outcome:
        if obj.name == "blocked":
            await asyncio.sleep(100)
        return Settled()

    server, reconciler = a_server("blocked"), RecordingReconciler(block_one)
    async with controlled(server, reconciler):
        await asyncio.sleep(1)
        for number in range(20):
            server.put(a_thing(f"free-{number}"))
        await asyncio.sleep(1)

        assert len(reconciler.calls) == 21


async def test_change_during_a_reconcile_is_reconciled_afterwards() -> None:
    seen: list[int] = []

    async def slow(obj: Thing) -> Outcome:
        seen.append(obj.spec.value)
        await asyncio.sleep(5)
        return Settled()

    server, reconciler = a_server("a"), RecordingReconciler(slow)
    async with controlled(server, reconciler):
        await asyncio.sleep(1)
        server.put(a_thing("a", 1))
        server.put(a_thing("a", 2))
        await asyncio.sleep(1)
        assert seen == [0]
        await asyncio.sleep(20)

        assert seen == [0, 2]


async def test_gone_object_is_forgotten() -> None:
    server, reconciler = a_server("a"), RecordingReconciler()
    async with controlled(server, reconciler):
        await asyncio.sleep(1)
        server.remove(Thing, Key("ns", "a"))
        await asyncio.sleep(1)

        assert reconciler.forgotten == [Key("ns", "a")]
        assert reconciler.names == ["a"]


async def test_owner_is_enqueued_when_its_parts_change_are_deleted_or_change_owner() -> None:
    server, reconciler = a_server("a", "b"), RecordingReconciler()
    manager = a_manager(server)
    manager.add(Controller(reconciler, SETTINGS).for_kind(Thing).owns(Part))
    async with managed(manager):
        await asyncio.sleep(1)
        reconciler.calls.clear()
        server.put(a_part("p", "a"))
        await asyncio.sleep(1)
        assert reconciler.names == ["a"]
        server.put(a_part("p", "b"))
        await asyncio.sleep(1)
        assert sorted(reconciler.names) == ["a", "a", "b"]
        server.remove(Part, Key("ns", "p"))
        await asyncio.sleep(1)

        assert reconciler.names.count("b") == 2


def test_only_the_controlling_owner_of_the_right_kind_counts() -> None:
    def reference(**changes: object) -> OwnerReference:
        fields: dict[str, object] = {
            "api_version": "test.bramley.dev/v2",
            "kind": "Thing",
            "name": "owner",
            "uid": "u",
            "controller": True,
        }
        return OwnerReference(**(fields | changes))  # type: ignore[arg-type]

    def keys(*references: OwnerReference) -> list[Key]:
        metadata = ObjectMeta(name="p", namespace="ns", owner_references=list(references))
        return owner_keys(Thing)(Part(metadata=metadata))

    assert keys(reference()) == [Key("ns", "owner")]
    assert keys(reference(controller=False)) == []
    assert keys(reference(kind="Other")) == []
    assert keys(reference(api_version="other.dev/v1")) == []
    assert keys(reference(api_version="v1")) == []
    assert keys() == []


async def test_mapping_with_a_bug_enqueues_every_object() -> None:
    def broken(_part: Part) -> list[Key]:
        raise ZeroDivisionError

    server, reconciler = a_server("a", "b"), RecordingReconciler()
    manager = a_manager(server)
    manager.add(Controller(reconciler, SETTINGS).for_kind(Thing).watches(Part, to=broken))
    async with managed(manager):
        await asyncio.sleep(1)
        reconciler.calls.clear()
        server.put(a_part("p", "a"))
        await asyncio.sleep(1)

        assert sorted(reconciler.names) == ["a", "b"]
        assert value(manager.metrics, "bramley_wake_bugs_total", controller="thing") == 1


async def test_every_object_is_resynced() -> None:
    server, reconciler = a_server("a", "b"), RecordingReconciler()
    settings = ControllerSettings(resync=timedelta(minutes=10))
    async with controlled(server, reconciler, settings):
        await asyncio.sleep(3600)

        assert 5 <= reconciler.names.count("a") <= 8
        assert reconciler.names.count("a") == reconciler.names.count("b")


@pytest.mark.real_time
async def test_reconciles_without_waits_yield_to_other_tasks() -> None:
    async def compute(_thing: Thing) -> Outcome:
        began = time.perf_counter()
        while time.perf_counter() - began < 0.0005:
            pass
        return Settled()

    server, reconciler = FakeApi(), RecordingReconciler(compute)
    for number in range(100):
        server.put(a_thing(f"t{number}"))
    async with controlled(server, reconciler) as manager:
        await manager.leading.wait()
        turns = 0
        while len(reconciler.calls) < 100:
            turns += 1
            await asyncio.sleep(0)

    assert turns > 3


def test_controller_without_a_kind_is_rejected() -> None:
    with pytest.raises(errors.BadConfiguration, match="for_kind"):
        Controller(RecordingReconciler()).owns(Part)


async def test_informer_of_a_kind_is_shared() -> None:
    server = a_server("a")
    manager = a_manager(server)
    manager.add(Controller(RecordingReconciler(), SETTINGS).for_kind(Thing).owns(Part))
    manager.add(Controller(RecordingReconciler(), SETTINGS, name="second").for_kind(Thing))
    async with managed(manager):
        await asyncio.sleep(1)

        assert server.calls.count("list") == 2
