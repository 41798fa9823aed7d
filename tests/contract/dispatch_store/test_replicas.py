"""What only PostgreSQL has: several replicas, and a server that restarts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from bramley.base.errors import BadConfiguration, Unavailable
from bramley.base.secret import Secret
from bramley.dispatch.store.operations import rows
from bramley.dispatch.store.postgres import PostgresDatabase, Settings
from tests.contract.dispatch_store.builders import NOW, a_pod, claimed, enqueue
from tests.contract.dispatch_store.conftest import in_postgres
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.real_time


async def test_replicas_start_together_and_share_the_jobs(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    async with in_postgres(url) as one, in_postgres(url) as two, in_postgres(url) as three:
        await enqueue(one, *range(1, 31))
        polls = [
            replica.claim(a_pod(number), "macos", NOW)
            for number in range(40)
            for replica in (one, two, three)
        ]

        claims = [claim for claim in await asyncio.gather(*polls) if claim]

        pairs = {(claim.pod.uid, claim.job_id) for claim in claims}
        assert len(pairs) == len({uid for uid, _ in pairs}) == len({job for _, job in pairs}) == 30


async def test_a_job_queued_at_one_replica_wakes_a_poll_at_another(
    postgres: PostgresServer,
) -> None:
    url = postgres.new_database()
    async with in_postgres(url) as one, in_postgres(url) as two:
        with two.wakeups.waiting("macos") as waiter:
            waiter.reset()
            await enqueue(one, 1)
            await asyncio.wait_for(waiter.wait(), 10)


async def test_a_store_continues_after_a_crash_of_postgresql(postgres: PostgresServer) -> None:
    async with in_postgres(postgres.new_database()) as store:
        await enqueue(store, 1, 2)
        first = await claimed(store, 1)
        with store.wakeups.waiting("macos") as waiter:
            # Before the restart: the listener may connect again before the command that restarts the server returns.
            waiter.reset()
            await asyncio.to_thread(postgres.restart)
            # The listener connects again and wakes all polls, since notifications may have been lost.
            await asyncio.wait_for(waiter.wait(), 20)

        # The connections of before the restart are lost, which costs no operation.
        assert (await claimed(store, 1)).handle == first.handle
        assert (await claimed(store, 2)).job_id == 2


async def test_a_statement_has_a_timeout(postgres: PostgresServer) -> None:
    settings = Settings(statement_timeout=timedelta(milliseconds=100))
    database = await PostgresDatabase.open(Secret(postgres.new_database()), settings)

    with pytest.raises(Unavailable, match="QueryCanceled"):
        await database.run(lambda: rows("SELECT pg_sleep(30)"))

    assert await database.run(lambda: rows("SELECT 1 AS one")) == [{"one": 1}]
    await database.close()


async def test_operations_get_a_connection_in_their_order(postgres: PostgresServer) -> None:
    settings = Settings(connections=1)
    database = await PostgresDatabase.open(Secret(postgres.new_database()), settings)
    ended = []

    async def run(name: str) -> None:
        await database.run(lambda: rows("SELECT pg_sleep(0.05)"))
        ended.append(name)

    async def run_twice() -> None:
        await run("first")
        await run("third")

    await asyncio.gather(run_twice(), run("second"))
    await database.close()

    assert ended == ["first", "second", "third"]


async def test_an_unreachable_server_is_reported_without_the_password() -> None:
    settings = Settings(attempts=2)
    url = Secret("host=/nonexistent user=bramley password=canary-password")

    with pytest.raises(Unavailable, match="not reachable") as caught:
        await PostgresDatabase.open(url, settings)

    assert "canary" not in f"{caught.value!r} {caught.value.__cause__!r}"


async def test_an_invalid_url_is_refused_without_the_password() -> None:
    with pytest.raises(BadConfiguration, match="invalid") as caught:
        await PostgresDatabase.open(Secret("password=canary-password nonsense"))

    assert "canary" not in repr(caught.value)


async def test_a_newer_schema_is_refused(postgres: PostgresServer) -> None:
    url = Secret(postgres.new_database())
    database = await PostgresDatabase.open(url)
    await database.run(lambda: rows("INSERT INTO schema_version (version) VALUES (99)"))
    await database.close()

    with pytest.raises(BadConfiguration, match="newer Bramley"):
        await PostgresDatabase.open(url)
