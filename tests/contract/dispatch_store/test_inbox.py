from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import pytest

from bramley.base.errors import BadRequest, Unavailable
from bramley.dispatch.jobs import Phase, State
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.store import inbox
from bramley.dispatch.store.store import Store
from bramley.dispatch.webhook_payload import MAX_BODY_BYTES
from tests.contract.dispatch_store.builders import NOW, POOL, a_report, state_of

pytestmark = pytest.mark.real_time


async def test_a_redelivery_is_stored_once(store: Store) -> None:
    assert await store.receive("guid-1", "workflow_job", b"{1}", NOW)
    assert not await store.receive("guid-1", "workflow_job", b"{1}", NOW)

    (delivery,) = await store.pending_deliveries()

    assert (delivery.guid, delivery.event, delivery.body) == ("guid-1", "workflow_job", b"{1}")


async def test_the_same_content_under_another_guid_is_stored_once(store: Store) -> None:
    assert await store.receive("guid-1", "workflow_job", b"{1}", NOW)
    assert not await store.receive("guid-2", "workflow_job", b"{1}", NOW)
    assert await store.receive("guid-3", "workflow_job", b"{2}", NOW)

    assert len(await store.pending_deliveries()) == 2


async def test_concurrent_redeliveries_are_stored_once(store: Store) -> None:
    stored = await asyncio.gather(
        *(store.receive(f"guid-{number % 2}", "workflow_job", b"{}", NOW) for number in range(12))
    )

    assert sum(stored) == 1


async def test_a_delivery_is_processed_exactly_once(store: Store) -> None:
    await store.receive("guid-1", "workflow_job", b"{1}", NOW)
    (delivery,) = await store.pending_deliveries()

    calls = (store.process(delivery.id, a_report(1), POOL, NOW) for _ in range(6))
    states = await asyncio.gather(*calls)

    assert [state for state in states if state] == [State.QUEUED]
    assert await store.pending_deliveries() == ()
    assert not await store.skip(delivery.id, "late", NOW)
    assert not await store.receive("guid-1", "workflow_job", b"{1}", NOW)


async def test_a_skipped_delivery_is_done(store: Store) -> None:
    await store.receive("guid-1", "ping", b"{}", NOW)
    (delivery,) = await store.pending_deliveries()

    assert await store.skip(delivery.id, "not a job", NOW)
    assert await store.pending_deliveries() == ()


async def test_a_full_inbox_refuses_until_deliveries_are_processed(store: Store) -> None:
    await store.receive("guid-1", "ping", b"{1}", NOW)
    receive = partial(inbox.receive, "guid-2", "ping", b"{2}", NOW, max_pending=1)

    with pytest.raises(Unavailable, match="deliver again later"):
        await store.database.run(receive)

    (delivery,) = await store.pending_deliveries()
    await store.skip(delivery.id, "not a job", NOW)
    assert await store.database.run(receive)


async def test_processed_deliveries_behind_one_that_waits_do_not_fill_the_inbox(
    store: Store,
) -> None:
    for number in range(4):
        await store.receive(f"guid-{number}", "ping", str(number).encode(), NOW)
    for delivery in (await store.pending_deliveries())[1:]:
        await store.skip(delivery.id, "not a job", NOW)

    receive = partial(inbox.receive, "guid-9", "ping", b"9", NOW, max_pending=2)
    assert await store.database.run(receive)


@pytest.mark.parametrize(
    ("guid", "event", "body", "named"),
    [
        ("g" * 300, "workflow_job", b"", "delivery guid"),
        ("g\n", "workflow_job", b"", "delivery guid"),
        ("g", "", b"", "event"),
        ("g", "workflow_job", b" " * (MAX_BODY_BYTES + 1), "body"),
    ],
)
async def test_invalid_deliveries_are_refused(
    store: Store, guid: str, event: str, body: bytes, named: str
) -> None:
    with pytest.raises(BadRequest, match=named):
        await store.receive(guid, event, body, NOW)


async def test_every_order_of_a_jobs_events_gives_one_end_state(store: Store) -> None:
    ends = set()
    orders = set(itertools.permutations([*Phase, Phase.QUEUED], 5))
    for job_id, order in enumerate(sorted(orders), start=1):
        for phase in order:
            report = a_report(job_id, phase, runner_name="r" if phase >= 3 else "")
            await store.apply_report(report, POOL, NOW)
        found = await store.timeline(job_id)
        assert found.execution is not None
        ends.add((found.job.state, found.job.facts.phase, found.execution.ended_at is not None))

    assert ends == {(State.COMPLETED, Phase.COMPLETED, True)}


async def test_a_waiting_job_is_not_given_to_a_pod(store: Store) -> None:
    await store.apply_report(a_report(1, Phase.WAITING), POOL, NOW)

    assert await state_of(store, 1) == State.WAITING
    await store.apply_report(a_report(1), POOL, NOW)
    assert await state_of(store, 1) == State.QUEUED


@pytest.mark.parametrize(
    "time",
    [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, 59, tzinfo=UTC),
    ],
)
async def test_a_time_that_github_does_not_have_is_unknown(store: Store, time: datetime) -> None:
    for priority in (1, -1):
        report = a_report(priority + 2, Phase.QUEUED, at=NOW)
        report = replace(report, queued_at=time, started_at=time, completed_at=time)
        assert await store.apply_report(report, Route("macos", priority=priority), NOW)

        facts = (await store.timeline(priority + 2)).job.facts
        assert (facts.queued_at, facts.started_at, facts.completed_at) == (NOW, None, None)


async def test_deliveries_are_read_by_id(store: Store) -> None:
    for number in range(3):
        await store.receive(f"guid-{number}", "ping", str(number).encode(), NOW)
    first, *others = await store.pending_deliveries()

    assert await store.pending_deliveries(after_id=first.id) == tuple(others)
    assert await store.pending_deliveries(after_id=others[-1].id) == ()
