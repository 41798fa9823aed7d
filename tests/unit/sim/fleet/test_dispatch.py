from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.api.names import labels
from bramley.sim.fleet.hosts import FleetSettings
from bramley.sim.fleet.images import ImageModel
from bramley.sim.fleet.jobs import Job, JobSource, delayed
from tests import virtual_time
from tests.unit.sim.fleet.fleets import NEW, OLD, POOL, Fleet, a_fleet, has_phase, is_ready


async def _idle_pod(fleet: Fleet, name: str, image: str = OLD) -> None:
    await fleet.create_pod(name, image)
    await fleet.seconds_until(name, is_ready)
    await asyncio.sleep(30)


async def test_idle_guest_claims_a_job_and_ends_after_it() -> None:
    async with a_fleet() as fleet:
        await _idle_pod(fleet, "runner")
        job = fleet.job(minutes=10)

        fleet.dispatch.enqueue(job)
        await asyncio.sleep(3)

        claimed = await fleet.pod("runner")
        assert claimed.metadata.labels[labels.RUNNER_POOL_OWNER] == "acme"
        assert claimed.status.phase == "Running"
        assert 595 <= await fleet.seconds_until("runner", has_phase("Succeeded")) <= 602
        assert job.started_at is not None
        assert job.finished_at is not None
        assert job.finished_at - job.started_at == timedelta(minutes=10)
        assert job.delay(job.finished_at) <= timedelta(seconds=2)


async def test_job_waits_until_a_guest_polls() -> None:
    async with a_fleet() as fleet:
        job = fleet.job()
        fleet.dispatch.enqueue(job)
        await fleet.create_pod("runner")

        await fleet.seconds_until("runner", is_ready)
        assert fleet.dispatch.queued(POOL) == 1
        await asyncio.sleep(26)

        assert job.started_at is not None
        assert fleet.dispatch.first_polls.keys() == {"runner"}


async def test_each_job_gets_a_guest_of_its_own() -> None:
    async with a_fleet() as fleet:
        for number in range(3):
            await _idle_pod(fleet, f"runner-{number}")
        jobs = [fleet.job() for _ in range(4)]

        for job in jobs:
            fleet.dispatch.enqueue(job)
        await asyncio.sleep(5)

        assert {job.pod for job in jobs[:3]} == {"runner-0", "runner-1", "runner-2"}
        assert jobs[3].started_at is None
        assert fleet.dispatch.queued(POOL) == 1


async def test_marked_stale_guest_leaves_without_a_job() -> None:
    async with a_fleet() as fleet:
        await _idle_pod(fleet, "runner")
        fleet.dispatch.set_pool(POOL, label=POOL, image=NEW)
        await asyncio.sleep(60)
        assert (await fleet.pod("runner")).status.phase == "Running"

        await fleet.mark("runner")
        job = fleet.job()
        fleet.dispatch.enqueue(job)
        await asyncio.sleep(4)

        assert (await fleet.pod("runner")).status.phase == "Succeeded"
        assert job.started_at is None


async def test_mark_without_a_stale_image_drains_nothing() -> None:
    async with a_fleet() as fleet:
        await _idle_pod(fleet, "runner")

        await fleet.mark("runner")
        await asyncio.sleep(60)
        assert (await fleet.pod("runner")).status.phase == "Running"
        fleet.dispatch.set_pool(POOL, label=POOL, image=NEW)
        await asyncio.sleep(4)

        assert (await fleet.pod("runner")).status.phase == "Succeeded"


async def test_marked_guest_with_a_job_finishes_it() -> None:
    async with a_fleet() as fleet:
        await _idle_pod(fleet, "runner")
        job = fleet.job(minutes=10)
        fleet.dispatch.enqueue(job)
        await asyncio.sleep(3)

        fleet.dispatch.set_pool(POOL, label=POOL, image=NEW)
        await fleet.mark("runner")
        await asyncio.sleep(300)
        assert (await fleet.pod("runner")).status.phase == "Running"
        await asyncio.sleep(310)

        assert job.finished_at is not None
        assert job.lost == 0


async def test_operator_can_drain_a_guest() -> None:
    async with a_fleet() as fleet:
        await _idle_pod(fleet, "runner")

        await fleet.mark("runner", labels.OPERATOR_DRAIN)

        assert await fleet.seconds_until("runner", has_phase("Succeeded")) <= 4


async def test_job_of_a_deleted_pod_is_lost_and_queued_again() -> None:
    async with a_fleet() as fleet:
        await _idle_pod(fleet, "first")
        job = fleet.job()
        fleet.dispatch.enqueue(job)
        await asyncio.sleep(3)

        await fleet.delete_pod("first")
        await asyncio.sleep(10)
        assert (job.lost, job.started_at) == (1, None)
        await _idle_pod(fleet, "second")

        assert job.pod == "second"


async def test_guest_that_never_polls_gets_no_job() -> None:
    async with a_fleet(images={OLD: ImageModel(polls=False)}) as fleet:
        await _idle_pod(fleet, "runner")
        job = fleet.job()

        fleet.dispatch.enqueue(job)
        await asyncio.sleep(600)

        assert job.started_at is None
        assert fleet.dispatch.first_polls == {}


async def test_signals_count_finished_and_failed_jobs_per_image() -> None:
    images = {OLD: ImageModel(), NEW: ImageModel(job_failure_rate=1.0)}
    settings = FleetSettings(hosts=2, on_disk=(OLD, NEW))
    async with a_fleet(settings, images) as fleet:
        await _idle_pod(fleet, "old", OLD)
        await _idle_pod(fleet, "new", NEW)
        for _ in range(2):
            fleet.dispatch.enqueue(fleet.job(minutes=1))
        await asyncio.sleep(120)

        signals = await fleet.dispatch.roll_signals(POOL)
        later = await fleet.dispatch.roll_signals(POOL, fleet.dispatch.clock.now())

        assert signals.first_polls.keys() == {"old", "new"}
        assert (signals.images[OLD].finished, signals.images[OLD].failed) == (1, 0)
        assert (signals.images[NEW].finished, signals.images[NEW].failed) == (1, 1)
        assert later.images == {}
        assert (await fleet.dispatch.roll_signals("other")).first_polls == {}


@dataclass(slots=True)
class Queue:
    jobs: list[Job] = field(default_factory=list)

    def enqueue(self, job: Job) -> None:
        self.jobs.append(job)


async def test_seeded_jobs_arrive_at_the_same_times() -> None:
    async def arrivals() -> list[tuple[float, float]]:
        clock, queue = virtual_time.clock(), Queue()
        began = clock.now()
        source = JobSource(queue, POOL, clock=clock, per_hour=60, seed=7)
        task = asyncio.create_task(source.run())
        await asyncio.sleep(36_000)
        task.cancel()
        return [
            (
                round((job.queued_at - began).total_seconds(), 3),
                round(job.duration.total_seconds(), 3),
            )
            for job in queue.jobs
        ]

    first = await arrivals()

    assert 500 <= len(first) <= 700
    assert await arrivals() == first


async def test_waiting_job_counts_as_delayed() -> None:
    async with a_fleet(FleetSettings(hosts=1)) as fleet:
        now = fleet.dispatch.clock.now()
        job = Job(POOL, timedelta(minutes=1), now)
        started = Job(POOL, timedelta(minutes=1), now, started_at=now + timedelta(seconds=30))

        found = delayed(
            [job, started], beyond=timedelta(seconds=60), now=now + timedelta(seconds=61)
        )

        assert found == [job]
