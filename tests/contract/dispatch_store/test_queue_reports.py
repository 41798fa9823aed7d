from __future__ import annotations

import pytest

from bramley.base.errors import NotFound
from bramley.dispatch.fair_share import Policy
from bramley.dispatch.jobs import Phase
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.store.operations import Operation, rows
from bramley.dispatch.store.records import PoolStats, QueuePosition
from bramley.dispatch.store.reports import RETENTION
from bramley.dispatch.store.store import Store
from tests.contract.dispatch_store.builders import (
    NOW,
    POOL,
    SECOND,
    a_report,
    claimed,
    enqueue,
    minted,
)

pytestmark = pytest.mark.real_time
LATER = NOW + 60 * SECOND


async def test_stats_count_the_jobs_of_each_pool(store: Store) -> None:
    await enqueue(store, 1, 2, 3, 4)
    await enqueue(store, 5, 6, account="limited")
    await minted(store, 1)
    await claimed(store, 2)
    await store.apply_report(a_report(1, Phase.IN_PROGRESS, runner_name="gh-1"), POOL, NOW)
    await store.apply_report(a_report(7, Phase.WAITING), Route("waiting"), NOW)
    await store.apply_report(a_report(8), Route("", "no pool"), NOW)
    await store.apply_report(a_report(9, Phase.COMPLETED), Route("ended"), NOW)

    stats = await store.queue_stats(LATER, policy=Policy(limits={"limited": 1}))

    # The second Pod has a job of the limited account, whose other job is withheld.
    macos = PoolStats(
        pool="macos", queued=3, oldest_queued_at=NOW, withheld=1, claimed=1, running=1
    )
    waiting = PoolStats(
        pool="waiting", queued=0, oldest_queued_at=None, withheld=0, claimed=0, running=0
    )
    assert stats == (macos, waiting)


async def test_a_pool_with_an_occupied_pod_has_stats(store: Store) -> None:
    await enqueue(store, 1)
    await minted(store, 1)
    await store.apply_report(a_report(1, Phase.COMPLETED, runner_name="gh-1"), POOL, NOW)

    (stats,) = await store.queue_stats(NOW)

    assert (stats.pool, stats.queued, stats.claimed, stats.running) == ("macos", 0, 0, 0)
    await store.pod_stopped("runner-1", NOW, NOW)
    assert await store.queue_stats(NOW) == ()


async def test_a_job_of_a_clock_that_is_ahead_has_waited_no_time(store: Store) -> None:
    await store.apply_report(a_report(1, at=LATER), POOL, NOW)

    (stats,) = await store.queue_stats(NOW)

    assert stats.oldest_queued_at == NOW


async def test_the_position_counts_jobs_of_the_account_that_are_served_first(store: Store) -> None:
    await enqueue(store, 1, 2, 3)
    await enqueue(store, 4, account="other")
    await store.apply_report(a_report(5), Route("macos", priority=1), NOW)
    await store.apply_report(a_report(6), Route("linux"), NOW)
    await claimed(store, 1)

    # The job of priority 1 was claimed.
    assert await store.queue_position(3) == QueuePosition(
        ahead_of_account=2, queued_in_pool=4, active_of_account=1, active_in_pool=1
    )
    assert (await store.queue_position(1)).ahead_of_account == 0
    assert await store.queue_position(6) == QueuePosition(
        ahead_of_account=0, queued_in_pool=1, active_of_account=1, active_in_pool=0
    )
    with pytest.raises(NotFound, match="404"):
        await store.queue_position(404)


async def test_exported_timelines_equal_those_of_the_jobs(store: Store) -> None:
    await enqueue(store, 1, 2, 3)
    released = await claimed(store, 1)
    await store.release(released.handle, "test", NOW)
    await minted(store, 2)
    finished = a_report(1, Phase.COMPLETED, runner_name="gh-2")
    await store.apply_report(finished, POOL, LATER)

    exported = await store.ended_timelines(NOW)

    assert exported == tuple([await store.timeline(job_id) for job_id in (1, 2, 3)])
    assert len(exported[0].claims) == 2
    assert exported[0].execution is not None
    assert await store.ended_timelines(LATER) == exported[:1]
    assert await store.ended_timelines(NOW, after_id=1, limit=1) == exported[1:2]
    assert await store.ended_timelines(NOW, after_id=3) == ()


async def test_the_log_of_the_newest_pod_of_a_job_is_found(store: Store) -> None:
    await enqueue(store, 1)
    first = await minted(store, 1)
    await store.save_log(first.handle, "first\n", NOW)
    await store.release(first.handle, "test", NOW)
    second = await minted(store, 2)

    assert await store.find_log(1) == "first\n"
    await store.save_log(second.handle, "second\n", NOW)
    await store.save_log(second.handle, "second\nand more\n", LATER)

    assert await store.find_log(1) == "second\nand more\n"
    assert await store.find_log(2) is None


async def test_the_log_follows_the_runner_that_executed_the_job(store: Store) -> None:
    await enqueue(store, 1)
    claim = await minted(store, 1)
    await store.apply_report(a_report(9, Phase.IN_PROGRESS, runner_name="gh-1"), POOL, NOW)

    await store.save_log(claim.handle, "log of job 9", NOW)

    assert await store.find_log(9) == "log of job 9"
    assert await store.find_log(1) is None


async def test_a_log_is_stored_clean_and_only_for_a_claim(store: Store) -> None:
    await enqueue(store, 1)
    claim = await minted(store, 1)

    await store.save_log(claim.handle, "a\x00\x1b[2J\tb\r\n\ud800é\n", NOW)
    await store.save_log(404, "unknown", NOW)

    assert await store.find_log(1) == "a\ufffd\ufffd[2J\tb\n\ufffdé\n"
    assert await count(store, "logs") == 1


async def count(store: Store, table: str) -> int:
    def counting() -> Operation[int]:
        found = yield from rows(f"SELECT COUNT(*) AS number FROM {table}")  # noqa: S608 - our names
        return int(found[0]["number"])

    return await store.database.run(counting)


async def test_what_is_not_used_any_more_is_deleted(store: Store) -> None:
    policy = Policy(limits={"acme": 9})
    await enqueue(store, 1)
    claim = await claimed(store, 1, policy=policy)
    await store.save_log(claim.handle, "log", NOW)
    await store.cancel(1, NOW)
    tables = ("logs", "pools", "shares", "accounts")

    await store.delete_expired(NOW + RETENTION)
    kept = [await count(store, table) for table in tables]
    await store.delete_expired(NOW + RETENTION + SECOND)
    left = [await count(store, table) for table in tables]

    assert kept == [1, 1, 1, 1]
    assert left == [0, 0, 0, 0]


async def test_pools_with_jobs_and_accounts_with_claims_stay(store: Store) -> None:
    policy = Policy(limits={"acme": 9})
    await enqueue(store, 1, 2)
    await claimed(store, 1, policy=policy)

    await store.delete_expired(NOW + RETENTION + SECOND)

    assert [await count(store, table) for table in ("pools", "shares", "accounts")] == [1, 0, 1]
    assert (await claimed(store, 2, policy=policy)).job_id == 2
