"""Deliveries whose processing fails stay stored and do not keep others from being processed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from bramley.base import errors
from bramley.dispatch.inbox_worker import InboxWorker
from bramley.dispatch.jobs import Report, State
from bramley.dispatch.pool_matching import Route
from tests.unit.dispatch.recovery_world import POOL, World, a_world


class Uncounted:
    def delivered(self, report: Report, route: Route, state: State) -> None:
        pass

    def refused(self, outcome: str) -> None:
        pass


async def receive(world: World, number: int, account: str) -> None:
    body = {
        "action": "queued",
        "workflow_job": {"id": number, "run_id": 1, "labels": ["macos"]},
        "repository": {"full_name": f"{account}/app", "owner": {"login": account}},
    }
    content = msgspec.json.encode(body)
    assert await world.store.receive(f"guid-{number}", "workflow_job", content, world.now)


@pytest.mark.parametrize("error", [ValueError("a bug"), errors.Unavailable("the database failed")])
async def test_deliveries_that_fail_do_not_stop_those_after_them(
    tmp_path: Path, error: Exception
) -> None:
    def routing(_labels: Sequence[str], account: str) -> Route:
        if account == "bad":
            raise error
        return Route(POOL)

    async with a_world(tmp_path) as world:
        worker = InboxWorker(world.store, routing, world.recovery.clock, Uncounted())
        # More than one page.
        for number in range(1, 121):
            await receive(world, number, "bad")
        await receive(world, 121, "good")

        with errors.Captured() as captured:
            assert await worker.process_pending() == 1

        # The database may be unavailable, so the caller waits before the next pass.
        assert captured.error is (error if isinstance(error, errors.Unavailable) else None)
        assert await world.job_state(121) == State.QUEUED
        assert len(await world.store.pending_deliveries(1000)) == 120
