"""`kill -9` of replicas and of PostgreSQL while jobs flow: every job runs exactly once, every acknowledged webhook is processed."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgres_server
from tests.postgres_server import PostgresServer
from tests.process.dispatch.kills import Fleet, a_fleet, run_with_kills
from tests.process.serving.processes import Bramley, held_port, running

REPLICAS = 3


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server.running() as server:
        yield server


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Bramley]:
    with running(tmp_path / "api") as server:
        yield server


@pytest.fixture
def ports() -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(held_port()) for _ in range(REPLICAS)]


async def killed(fleet: Fleet, *, replica_kills: int, postgres_kills: int, least_jobs: int) -> None:
    began = time.monotonic()
    found = await run_with_kills(fleet, replica_kills, postgres_kills)

    print(  # noqa: T201 - the figures of a soak
        f"{len(fleet.jobs)} jobs, {fleet.replica_kills} kills of replicas, "
        f"{fleet.postgres_kills} of PostgreSQL, {len(fleet.guests.idle)} runners without a job, {fleet.proxy.failed_webhooks} webhooks failed, "
        f"{len(fleet.history.acknowledged)} acknowledged, {time.monotonic() - began:.0f} s"
    )
    assert found == []
    assert (fleet.replica_kills, fleet.postgres_kills) == (replica_kills, postgres_kills)
    # Otherwise the kills met an idle server.
    assert len(fleet.jobs) >= least_jobs


async def test_kills_of_replicas_and_postgres_lose_and_double_no_job(
    api: Bramley, postgres: PostgresServer, tmp_path: Path, ports: list[int]
) -> None:
    # The proxy sends a webhook that failed to another replica, so that no sweep has to be awaited.
    rng = random.Random(14)
    async with a_fleet(api, postgres, tmp_path, ports, rng=rng, retries=True) as fleet:
        await killed(fleet, replica_kills=5, postgres_kills=1, least_jobs=20)


@pytest.mark.soak
async def test_thirty_kills_of_replicas_and_five_of_postgres_lose_and_double_no_job(
    api: Bramley, postgres: PostgresServer, tmp_path: Path, ports: list[int]
) -> None:
    """Webhooks to a killed replica fail, and the sweep requests them again."""
    rng = random.Random()
    async with a_fleet(api, postgres, tmp_path, ports, rng=rng, retries=False) as fleet:
        await killed(fleet, replica_kills=30, postgres_kills=5, least_jobs=150)
        assert fleet.proxy.failed_webhooks
