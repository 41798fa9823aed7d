"""Rates of the queue: webhooks and claims per second of one or several replicas, beside a bare SKIP LOCKED loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.apiserver.servers import ProcessFolder
from bench.dispatch import postgres, queue_worker
from bench.dispatch.queue_worker import POSTGRES, SQLITE
from bench.streaming import child_process
from bench.streaming.child_process import Child
from tests.postgres_server import PostgresServer

REPLICAS = (1, 3)


class WrongCount(Exception):
    """Jobs were lost or claimed twice."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates per second of one database and number of replicas; `bare` is that of the loop, 0 on SQLite."""

    database: str
    replicas: int
    webhooks: float
    claims: float
    bare: float = 0.0


async def measure(folder: ProcessFolder, jobs: int) -> list[Rates]:
    """Measure both databases."""
    found = [await _measure(SQLITE, folder.folder / "queue.sqlite", replicas=1, jobs=jobs)]
    with postgres.running(folder) as server:
        for replicas in REPLICAS:
            url_file = folder.folder / f"database-url-{replicas}"
            await asyncio.to_thread(_prepare, server, url_file, jobs)
            found.append(await _measure(POSTGRES, url_file, replicas=replicas, jobs=jobs))
    return found


def _prepare(server: PostgresServer, url_file: Path, jobs: int) -> None:
    url = server.new_database()
    url_file.write_text(url)
    with psycopg.connect(url) as connection:
        for statement in queue_worker.BARE_TABLE:
            connection.execute(statement.encode())
        connection.execute(
            "INSERT INTO bare SELECT id, 'queued' FROM generate_series(1, %s) AS id", [jobs]
        )


async def _measure(kind: str, place: Path, *, replicas: int, jobs: int) -> Rates:
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(
                child_process.started(
                    "bench.dispatch.queue_worker", kind, place, number, replicas, jobs
                )
            )
            for number in range(replicas)
        ]
        for worker in workers:
            await worker.read("ready")
        phases = 3 if kind == POSTGRES else 2
        rates = [await _phase(workers, jobs) for _ in range(phases)]
    return Rates(kind, replicas, *rates)


async def _phase(workers: Sequence[Child], jobs: int) -> float:
    started = time.perf_counter()
    for worker in workers:
        worker.proceed()
    counts = [await worker.read("count") for worker in workers]
    if sum(counts) != jobs:
        raise WrongCount(f"the replicas handled {counts} of {jobs} jobs")
    return round(jobs / (time.perf_counter() - started), 1)
