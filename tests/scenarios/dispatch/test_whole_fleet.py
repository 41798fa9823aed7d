"""A thousand jobs through the real pool controller, the real dispatch server and modelled Macs, while an image roll runs and one
account floods the queue: none lost, none run twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from bramley.api.runner_pool import Rollout
from bramley.sim.fleet.hosts import FleetSettings
from bramley.sim.fleet.vms import ModelledVm
from bramley.sim.github.records import Refusal
from tests import virtual_time
from tests.dispatch_world import LABEL, LONG_POLL, DispatchWorld, Relay, a_github
from tests.scenarios.runners import world as fleet
from tests.scenarios.runners.world import NEW, OLD

HOSTS = 10
JOBS = 1000


@dataclass(slots=True)
class PollingGuests:
    """The guests of modelled VMs: each polls the dispatch server with its Pod's token and runs its job at GitHub."""

    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    dispatch: DispatchWorld | None = None

    def guest_polls(self, vm: ModelledVm) -> None:
        assert self.dispatch is not None
        self.tasks[vm.pod.uid] = self.dispatch.group.create_task(self._guest(vm, self.dispatch))

    def guest_changed(self, vm: ModelledVm) -> None:
        pass

    def guest_gone(self, vm: ModelledVm) -> None:
        if task := self.tasks.pop(vm.pod.uid, None):
            task.cancel()

    async def _guest(self, vm: ModelledVm, dispatch: DispatchWorld) -> None:
        token = await dispatch.a_token(vm.pod)
        jit = await dispatch.wait_for_job(token, LONG_POLL)
        code = 0
        if jit:
            try:
                job = await dispatch.github.actions.run_runner(jit)
            except Refusal:
                code, job = 1, None
            if job is not None:
                dispatch.ran.append((vm.pod.name, job.id))
        self.tasks.pop(vm.pod.uid, None)
        vm.exit(code)


@dataclass(slots=True)
class Sessions:
    """The pool controller's reports, sent to the dispatch server."""

    dispatch: DispatchWorld | None = None

    async def pod_stopped(self, pod_name: str, ended_at: datetime) -> None:
        assert self.dispatch is not None
        await self.dispatch.report_stopped(pod_name, ended_at)


@asynccontextmanager
async def a_whole_fleet(folder: Path) -> AsyncIterator[tuple[fleet.World, DispatchWorld]]:
    guests, sessions = PollingGuests(), Sessions()
    settings = FleetSettings(hosts=HOSTS, on_disk=(OLD,))
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(
            fleet.a_world(settings, guests=guests, sessions=sessions)
        )
        relay = Relay()
        github = a_github(relay, picks_randomly=True)
        await stack.enter_async_context(github.running())
        dispatch = DispatchWorld(
            world, github, relay, folder / "jobs.sqlite", virtual_time.clock(), world.group
        )
        guests.dispatch = sessions.dispatch = dispatch
        await dispatch.start()
        try:
            yield world, dispatch
        finally:
            for task in guests.tasks.values():
                task.cancel()
            await dispatch.crash()
            world.cancel()


@pytest.mark.long
async def test_thousand_jobs_run_once_each_during_a_roll_and_a_flood(tmp_path: Path) -> None:
    async with a_whole_fleet(tmp_path) as (world, dispatch):
        world.start_controller()
        await world.create_pool(
            dispatch_label=LABEL,
            runner_labels=["self-hosted", "macOS", "ARM64"],
            rollout=Rollout(max_concurrent_percent=20),
        )
        await world.until_ready(HOSTS)
        # One account floods; the other queues a job now and then.
        for _ in range(JOBS * 9 // 10):
            dispatch.queue_job(seconds=60)
        await world.patch({"image": NEW})
        waits: list[timedelta] = []
        for _ in range(JOBS // 10):
            job = dispatch.queue_job(owner="jane", name="dotfiles", seconds=60)
            await asyncio.sleep(60)
            if job.started_at is not None:
                waits.append(job.started_at - job.created_at)
        await dispatch.until_all_completed(timedelta(hours=12))
        await world.until_rolled(NEW)

        expected = Counter(dict.fromkeys(dispatch.github.actions.jobs, 1))
        assert Counter(job for _, job in dispatch.ran) == expected
        conclusions = {job.conclusion for job in dispatch.github.actions.jobs.values()}
        assert conclusions == {"success"}
        assert len(waits) > JOBS // 20, "the second account waited behind the flood"
