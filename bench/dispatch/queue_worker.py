"""One replica in its own process: it stores and processes webhooks, claims their jobs, and runs a bare SKIP LOCKED loop.

Arguments: the kind of database, its file or the file with its URL, the number of this replica and of all, and the jobs. Each phase
begins when the parent process signals it, and ends with a line of JSON.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from bench.streaming.child_process import parent_signal, report
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.dispatch.inbox_worker import InboxWorker
from bramley.dispatch.jobs import Report, State
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.store.postgres import PostgresDatabase
from bramley.dispatch.store.records import Pod
from bramley.dispatch.store.sqlite import SqliteDatabase
from bramley.dispatch.store.store import Store

SQLITE, POSTGRES = "sqlite", "postgres"
POOL = "macos"
ACCOUNTS = 10
# As many connections as a replica has for its operations.
CONNECTIONS = 4
_SENDERS, _POLLS = 32, 16
# About the size of GitHub's.
_PADDING = "x" * 8000
BARE_TABLE = (
    "CREATE TABLE bare (id bigint PRIMARY KEY, state text NOT NULL)",
    "CREATE INDEX bare_queued ON bare (id) WHERE state = 'queued'",
)
_TAKE = b"""UPDATE bare SET state = 'claimed' WHERE id = (
    SELECT id FROM bare WHERE state = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"""


class Unexpected(Exception):
    """A delivery was refused."""


class Counted:
    """The observer of the inbox, which refuses nothing here."""

    def delivered(self, report: Report, route: Route, state: State) -> None:
        """Do nothing."""

    def refused(self, outcome: str) -> None:
        """Fail."""
        raise Unexpected(f"a delivery was refused: {outcome}")


def body(job_id: int) -> bytes:
    """Return the body of the webhook of a queued job."""
    account = f"account-{job_id % ACCOUNTS}"
    repository = {"full_name": f"{account}/app", "owner": {"login": account}}
    job = {"id": job_id, "run_id": job_id, "labels": [POOL], "created_at": datetime.now(UTC)}
    event = {"action": "queued", "workflow_job": job, "repository": repository}
    return msgspec.json.encode({**event, "padding": _PADDING})


def share(jobs: int, replica: int, replicas: int) -> range:
    """Return the ids of the jobs whose webhooks a replica receives; the shares of all replicas are all jobs."""
    return range(1 + replica, jobs + 1, replicas)


async def webhooks(store: Store, ids: Sequence[int]) -> int:
    """Store and process webhooks, as the server does; return when none is pending."""
    inbox = InboxWorker(store, lambda *_: Route(POOL), SystemClock(), Counted())
    left, is_received = iter(ids), False

    async def send() -> None:
        for job_id in left:
            await store.receive(f"guid-{job_id}", "workflow_job", body(job_id), datetime.now(UTC))

    async def process() -> None:
        while not is_received or await store.pending_deliveries(1):
            if not await inbox.process_pending():
                await asyncio.sleep(0.002)

    async with asyncio.TaskGroup() as group:
        group.create_task(process())
        async with asyncio.TaskGroup() as senders:
            for _ in range(_SENDERS):
                senders.create_task(send())
        is_received = True
    return len(ids)


async def claims(store: Store, replica: int) -> int:
    """Claim jobs for new Pods until none is queued; return how many."""
    count = 0

    async def claim(poll: int) -> None:
        nonlocal count
        number = 0
        while True:
            name = f"runner-{replica}-{poll}-{number}"
            pod = Pod(name, f"uid-{name}", "mac-1", "image:1")
            if await store.claim(pod, POOL, datetime.now(UTC)) is None:
                return
            number += 1
            count += 1

    async with asyncio.TaskGroup() as group:
        for poll in range(_POLLS):
            group.create_task(claim(poll))
    return count


async def bare(database: str) -> int:
    """Take rows until none is queued, with one statement each; return how many."""
    count = 0

    async def take() -> None:
        nonlocal count
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            while await (await connection.execute(_TAKE)).fetchone() is not None:
                count += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(take())
    return count


def url(file: Path) -> str:
    """Return the URL of a database."""
    return file.read_text()


@asynccontextmanager
async def _opened(kind: str, place: Path) -> AsyncIterator[Store]:
    if kind == SQLITE:
        store = Store(SqliteDatabase.open(place))
        yield store
        await store.close()
        return
    database = await PostgresDatabase.open(Secret(url(place)))
    async with asyncio.TaskGroup() as group:
        listener = group.create_task(database.run_listener())
        await database.listening.wait()
        yield Store(database)
        listener.cancel()
    await database.close()


async def main(arguments: Sequence[str]) -> None:
    """Run the phases."""
    kind, place = arguments[0], Path(arguments[1])
    replica, replicas, jobs = map(int, arguments[2:])
    async with parent_signal() as signalled, _opened(kind, place) as store:
        phases: list[Callable[[], Any]] = [
            lambda: webhooks(store, share(jobs, replica, replicas)),
            lambda: claims(store, replica),
        ]
        if kind == POSTGRES:
            phases.append(lambda: bare(url(place)))
        report(ready=True)
        for phase in phases:
            await signalled.wait()
            signalled.clear()
            report(count=await phase())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
