"""A life of a few jobs during which the server is killed before or after one SQL statement, GitHub call or write to the API.

A killed server sends and stores nothing any more: its database refuses every statement, without a commit of what was open, and its
requests never return. Another one starts on the same file a second later.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.base import errors
from bramley.dispatch.jobs import State
from bramley.dispatch.store.records import JobFilter
from bramley.kube.transport import Request, Response
from tests import virtual_time
from tests.dispatch_world import DispatchWorld, a_dispatch_world
from tests.github_peer import APP, DOTFILES
from tests.scenarios.world import NAMESPACE

JOBS = 4
PODS = 2


@dataclass(slots=True)
class Checkpoints:
    """Counts the checkpoints of the first server; `kill_at` is the one at which it dies."""

    kill_at: int | None = None
    count: int = 0
    is_dead: bool = False
    killed: asyncio.Event = field(default_factory=asyncio.Event)
    labels: list[str] = field(default_factory=list)

    def reach(self, label: str) -> bool:
        """Count a checkpoint; return whether the server is dead from now on."""
        if not self.is_dead:
            self.count += 1
            self.labels.append(label)
            if self.count == self.kill_at:
                self.is_dead = True
                self.killed.set()
        return self.is_dead


def dying_connection(checkpoints: Checkpoints) -> type[sqlite3.Connection]:
    """Return the class of a connection that refuses every statement of a dead server."""

    class DyingConnection(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            text = " ".join(str(arguments[0]).split())[:40]
            if checkpoints.reach(f"before {text}"):
                self._die()
            cursor = super().execute(*arguments)
            if checkpoints.reach(f"after {text}"):
                self._die()
            return cursor

        def _die(self) -> None:
            # What was not committed is lost with the process.
            if self.in_transaction:
                self.rollback()
            raise sqlite3.OperationalError("the process is dead")

    return DyingConnection


@dataclass(slots=True)
class DyingTransport:
    """Requests of the server; those of a dead one never return."""

    inner: Any
    checkpoints: Checkpoints
    counts: bool = True

    async def send(self, request: Request) -> Response:
        is_counted = self.counts and (request.method != "GET" or "/actions/" in request.path)
        await self._pass(f"before {request.method} {request.path}", is_counted=is_counted)
        response: Response = await self.inner.send(request)
        await self._pass(f"after {request.method} {request.path}", is_counted=is_counted)
        return response

    def stream(self, request: Request) -> Any:
        return self.inner.stream(request)

    async def close(self) -> None:
        await self.inner.close()

    async def _pass(self, label: str, *, is_counted: bool) -> None:
        if is_counted:
            self.checkpoints.reach(label)
        if self.checkpoints.is_dead:
            await asyncio.get_running_loop().create_future()


def live(folder: Path, kill_at: int | None) -> Checkpoints:
    """Run the life with a kill; raise if a job was lost or ran twice."""
    checkpoints = Checkpoints(kill_at)
    virtual_time.run(_live(folder, checkpoints))
    return checkpoints


async def _live(folder: Path, checkpoints: Checkpoints) -> None:
    async with a_dispatch_world(folder, start=False, picks_randomly=True) as world:
        world.wrap = lambda transport: DyingTransport(transport, checkpoints)
        # A server that dies while it opens its file never starts.
        with contextlib.suppress(errors.BadConfiguration, sqlite3.Error):
            await world.start(factory=dying_connection(checkpoints))
        restarting = world.group.create_task(_restart(world, checkpoints))
        for _ in range(PODS):
            world.boot(await world.a_pod(), replace=True)
        for number in range(JOBS):
            repository = APP if number % 2 else DOTFILES
            world.queue_job(owner=repository.owner, name=repository.name, seconds=20)
            await asyncio.sleep(5)
        await world.until_all_completed()
        await settle(world)
        restarting.cancel()
        await check(world)


async def _restart(world: DispatchWorld, checkpoints: Checkpoints) -> None:
    await checkpoints.killed.wait()
    await world.crash()
    await asyncio.sleep(1)
    world.wrap = lambda transport: transport
    await world.start()


async def settle(world: DispatchWorld) -> None:
    """Wait until the store agrees with GitHub, by webhooks or by the sweep."""
    async with asyncio.timeout(3600):
        while await _differs(world):
            await asyncio.sleep(10)


async def _differs(world: DispatchWorld) -> bool:
    if world.server is None:
        return True
    try:
        jobs = await world.store.jobs(JobFilter())
        live_claims = await world.store.live_claims()
    except errors.Unavailable:
        return True
    is_done = len(jobs) == len(world.github.actions.jobs)
    open_claims = [each for each in live_claims if each.claim.finished_at is None]
    return not is_done or any(job.state != State.COMPLETED for job in jobs) or bool(open_claims)


async def check(world: DispatchWorld) -> None:
    """Check that every job ran exactly once, and that idle Pods have no owner."""
    ran = Counter(job for _, job in world.ran)
    expected = Counter(dict.fromkeys(world.github.actions.jobs, 1))
    assert ran == expected, f"lost {expected - ran}, doubled {ran - expected}"
    assert all(job.conclusion == "success" for job in world.github.actions.jobs.values())
    # The next polls of idle Pods remove labels of claims that ended.
    await asyncio.sleep(120)
    pods = (await world.kube.list(Pod, namespace=NAMESPACE)).items
    owned = [pod.name for pod in pods if pod.metadata.labels.get(labels.RUNNER_POOL_OWNER)]
    assert owned == [], "idle Pods that look claimed"
