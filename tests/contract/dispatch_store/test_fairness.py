from __future__ import annotations

import asyncio
import re
from functools import partial

import pytest

from bramley.dispatch.fair_share import Policy
from bramley.dispatch.jobs import Phase
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.store import sql
from bramley.dispatch.store.operations import rows
from bramley.dispatch.store.sqlite import SqliteDatabase
from bramley.dispatch.store.store import Store
from tests.contract.dispatch_store.builders import (
    NOW,
    POOL,
    SECOND,
    a_pod,
    a_report,
    claimed,
    enqueue,
    minted,
)

pytestmark = pytest.mark.real_time
FLOOD = 5_000


async def flood(store: Store, count: int = FLOOD) -> None:
    for start in range(1, count + 1, 50):
        jobs = range(start, start + 50)
        await asyncio.gather(
            *(store.apply_report(a_report(job, account="flood"), POOL, NOW) for job in jobs)
        )


async def test_the_single_job_of_a_second_account_gets_the_next_pod(store: Store) -> None:
    await flood(store)
    for number in range(5):
        assert (await minted(store, number)).account == "flood"
    late = a_report(90_000, account="single", at=NOW + 3600 * SECOND)
    await store.apply_report(late, POOL, NOW)
    # One of the flood's Pods ends and is replaced: that is the next slot.
    await store.apply_report(a_report(1, Phase.COMPLETED, account="flood"), POOL, NOW)

    assert (await claimed(store, 10)).account == "single"
    assert (await claimed(store, 11)).account == "flood"


@pytest.mark.parametrize("statement", [sql.CANDIDATES, sql.TAKE_JOB])
async def test_a_claim_reads_only_the_first_job_of_each_account(
    store: Store, statement: str
) -> None:
    """The length of the queue does not matter: both databases search its index."""
    await flood(store, 500)
    await enqueue(store, 90_000, account="single")
    is_sqlite = isinstance(store.database, SqliteDatabase)
    prefix = "EXPLAIN QUERY PLAN " if is_sqlite else "EXPLAIN ANALYZE "

    plan = await store.database.run(
        partial(rows, prefix + statement, pool="macos", account="flood", now=0)
    )

    text = "\n".join(str(list(dict(row).values())) for row in plan)
    assert "jobs_queue" in text
    assert "SCAN jobs" not in text
    assert "TEMP B-TREE" not in text
    assert max((int(count) for count in re.findall(r"rows=(\d+) loops", text)), default=0) <= 3


async def test_accounts_without_pods_take_turns(store: Store) -> None:
    for start, account in ((100, "a"), (200, "b"), (300, "c")):
        await enqueue(store, *range(start, start + 4), account=account)

    order = [(await claimed(store, number)).account for number in range(12)]

    assert [sorted(order[start : start + 3]) for start in (0, 3, 6, 9)] == [["a", "b", "c"]] * 4


async def test_weights_decide_how_many_pods_an_account_gets(store: Store) -> None:
    policy = Policy(weights={"large": 3})
    await enqueue(store, *range(100, 140), account="large")
    await enqueue(store, *range(200, 240), account="small")

    order = [(await claimed(store, number, policy=policy)).account for number in range(20)]

    assert order.count("large") == 15


async def test_a_job_of_higher_priority_is_first_within_its_account(store: Store) -> None:
    await enqueue(store, 1)
    await store.apply_report(a_report(2, at=NOW + SECOND), Route("macos", priority=1), NOW)

    assert [(await claimed(store, number)).job_id for number in (1, 2)] == [2, 1]


async def test_a_pool_gets_only_its_own_jobs(store: Store) -> None:
    await store.apply_report(a_report(1), Route("other"), NOW)
    await store.apply_report(a_report(2), Route("", "no label matches"), NOW)

    assert await store.claim(a_pod(1), "macos", NOW) is None
    assert (await store.timeline(2)).job.problem == "no label matches"
