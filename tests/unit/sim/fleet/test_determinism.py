from __future__ import annotations

import asyncio

from bramley.api.pod import Pod
from bramley.sim.fleet.hosts import FleetSettings
from bramley.sim.fleet.images import ImageModel
from bramley.sim.fleet.jobs import JobSource
from tests import virtual_time
from tests.unit.sim.fleet.fleets import NAMESPACE, OLD, POOL, a_fleet


async def _history(seed: int) -> list[tuple[str, str, str, str]]:
    images = {OLD: ImageModel(size_bytes=1000, boot_noise=0.5)}
    settings = FleetSettings(hosts=8, uplink_bytes_per_second=20, seed=seed)
    async with a_fleet(settings, images, seed=seed) as fleet:
        clock = fleet.dispatch.clock
        jobs = JobSource(fleet.dispatch, POOL, clock=clock, per_hour=120, seed=seed)
        task = asyncio.create_task(jobs.run())
        for number in range(8):
            await fleet.create_pod(f"runner-{number}")
            await asyncio.sleep(20)
        await asyncio.sleep(1200)
        task.cancel()
        pods = (await fleet.kube.list(Pod, namespace=NAMESPACE)).items
        return [
            (pod.name, pod.spec.node_name, pod.status.phase, pod.metadata.resource_version)
            for pod in pods
        ] + [(job.pod, job.image, str(job.started_at), str(job.finished_at)) for job in jobs.jobs]


def test_equal_seeds_give_equal_runs() -> None:
    assert virtual_time.run(_history(3), seed=3) == virtual_time.run(_history(3), seed=3)


def test_another_seed_gives_another_run() -> None:
    assert virtual_time.run(_history(3), seed=3) != virtual_time.run(_history(4), seed=4)
