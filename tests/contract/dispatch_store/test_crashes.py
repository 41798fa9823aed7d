"""A crash before or after any statement neither loses a job nor gives it to two Pods."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from bramley.base.errors import Gone
from bramley.base.secret import Secret
from bramley.dispatch import webhook_payload
from bramley.dispatch.jobs import Phase, State
from bramley.dispatch.store.records import Claim, JobFilter
from bramley.dispatch.store.sqlite import SqliteDatabase
from bramley.dispatch.store.store import Store
from tests.contract.dispatch_store.builders import NOW, POOL, a_pod, a_report
from tests.unit.dispatch.test_webhook_payload import a_body

pytestmark = pytest.mark.real_time
JOBS = (1, 2)


class Crash(BaseException):
    """The process ends here."""


class CrashingConnection(sqlite3.Connection):
    """A connection that ends the process before or after the statement with a given number."""

    executed = 0
    crash_at: int | None = None
    after = False

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        kind = type(self)
        number, kind.executed = kind.executed, kind.executed + 1
        if number == kind.crash_at and not kind.after:
            raise Crash
        cursor = super().execute(*arguments)
        if number == kind.crash_at:
            raise Crash
        return cursor


def crashing(at: int | None, *, after: bool) -> type[CrashingConnection]:
    return type("Crashing", (CrashingConnection,), {"crash_at": at, "after": after, "executed": 0})


async def run_life(store: Store, handed_out: dict[str, set[int | None]]) -> None:
    """Do what GitHub, the Pods and the server do, each of whom repeats what was not acknowledged."""
    for job_id in JOBS:
        await store.receive(f"guid-{job_id}", "workflow_job", a_body(id=job_id), NOW)
    for delivery in await store.pending_deliveries():
        await store.process(delivery.id, webhook_payload.decode(delivery.body), POOL, NOW)
    for number in JOBS:
        await poll(store, number, handed_out)


async def poll(store: Store, number: int, handed_out: dict[str, set[int | None]]) -> None:
    try:
        claim = await store.claim(a_pod(number), "macos", NOW)
    except Gone:
        # Its runner was online, and runs its job whatever happens to the server.
        online = await store.find_claim(a_pod(number).uid)
        assert online is not None
        if online.ended_at is None:
            await run_job(store, online)
        return
    if claim is None:
        return
    if number == 2 and claim.generation == 1 and claim.stamped_at is None:
        # The stamp of this Pod fails: its job goes back, and the Pod asks again.
        await store.release(claim.handle, "stamp failed", NOW)
        await poll(store, number, handed_out)
        return
    await serve(store, claim)
    handed_out.setdefault(claim.pod.uid, set()).add(claim.job_id)
    await run_job(store, claim)


async def serve(store: Store, claim: Claim) -> None:
    if claim.stamped_at is None:
        assert await store.stamp(claim.handle, f"gh-{claim.pod.name}", NOW)
    if claim.minted_at is None:
        assert await store.mint(claim.handle, f"gh-{claim.pod.name}", Secret("jit"), 1, NOW)


async def run_job(store: Store, claim: Claim) -> None:
    await store.runner_online(claim.handle, NOW)
    for phase in (Phase.IN_PROGRESS, Phase.COMPLETED):
        assert claim.job_id is not None
        report = a_report(claim.job_id, phase, runner_name=f"gh-{claim.pod.name}")
        await store.apply_report(report, POOL, NOW)
    await store.pod_stopped(claim.pod.name, NOW, NOW)


async def run_until_crash(path: Path, kind: type[CrashingConnection], handed: Any) -> None:
    database = None
    try:
        database = SqliteDatabase.open(path, threaded=False, factory=kind)
        await run_life(Store(database), handed)
    except Crash:
        pass
    if database is not None:
        # Closing undoes what was not committed, as the next start does after a kill.
        database._connection.close()


async def check(path: Path, handed_out: dict[str, set[int | None]]) -> None:
    store = Store(SqliteDatabase.open(path, threaded=False))
    await run_life(store, handed_out)
    jobs = await store.jobs(JobFilter())
    executed = [(await store.timeline(job.id)).claims[-1].pod.uid for job in jobs]
    await store.close()

    assert {job.id: job.state for job in jobs} == dict.fromkeys(JOBS, State.COMPLETED)
    assert len(set(executed)) == len(JOBS)
    # Each Pod was handed one job, and each job to one Pod.
    assert sorted(job for given in handed_out.values() for job in given if job) == [*JOBS]
    assert all(len(given) == 1 for given in handed_out.values())


async def count_statements(path: Path) -> int:
    kind = crashing(None, after=False)
    await run_until_crash(path, kind, {})
    return kind.executed


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_at_any_statement_loses_and_doubles_no_job(
    tmp_path: Path, *, after: bool
) -> None:
    count = await count_statements(tmp_path / "count.sqlite")
    assert count > 120

    for number in range(count):
        path = tmp_path / f"{number}.sqlite"
        handed_out: dict[str, set[int | None]] = {}
        await run_until_crash(path, crashing(number, after=after), handed_out)
        await check(path, handed_out)
