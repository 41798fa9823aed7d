"""The Pods of a pool outside rolls: deletion, cordoned and dead hosts, races with claims, failures, reports."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest

from bramley.api import conditions
from bramley.api.core import Node
from bramley.api.meta import ObjectMeta
from bramley.api.names import conditions as types
from bramley.api.names import labels
from bramley.api.pod import Container, Pod, PodSpec
from bramley.api.runner_pool import RunnerPool
from bramley.base import errors
from bramley.runners.pods import pod_name
from bramley.sim.fleet.hosts import FleetSettings
from bramley.sim.fleet.images import ImageModel
from bramley.sim.fleet.jobs import Job
from tests import virtual_time
from tests.scenarios.runners.existing_objects import patch_labels
from tests.scenarios.runners.invariants import is_claimed, is_ready
from tests.scenarios.runners.world import IMAGES, NAMESPACE, NEW, OLD, POOL, World, a_world


class FakeSessions:
    """Records reports, or fails."""

    def __init__(self, world: list[World], *, is_away: bool = False) -> None:
        self.world, self.is_away = world, is_away
        self.reported: dict[str, int] = {}

    async def pod_stopped(self, pod_name: str, ended_at: datetime) -> None:  # noqa: ARG002
        """Record after how many writes the report came."""
        if self.is_away:
            await asyncio.sleep(5)
            raise errors.Unavailable("no answer")
        self.reported.setdefault(pod_name, len(self.world[0].checkpoints.writes))


async def _running_job(world: World, minutes: int = 10) -> Job:
    assert world.dispatch is not None
    job = Job(POOL, timedelta(minutes=minutes), virtual_time.clock().now())
    world.dispatch.enqueue(job)
    while job.started_at is None:
        await asyncio.sleep(1)
    return job


def _created(world: World) -> int:
    return sum(write.startswith("POST") and "/pods" in write for write in world.checkpoints.writes)


async def _cordon(world: World, name: str, *, value: bool) -> None:
    await world.kube.merge_patch(Node, name, {"spec": {"unschedulable": value}})


async def _started(world: World, **spec: Any) -> None:
    world.start_controller()
    await world.create_pool(**spec)
    await world.until_settled(OLD)


async def test_deleted_pool_ends_once_its_jobs_have_finished() -> None:
    async with a_world() as world:
        await _started(world)
        job = await _running_job(world, minutes=30)

        await world.kube.delete(RunnerPool, POOL, namespace=NAMESPACE)
        await asyncio.sleep(600)
        assert [is_claimed(pod) for pod in await world.alive()] == [True]
        await asyncio.sleep(1800)

        assert (job.lost, job.finished_at is not None) == (0, True)
        assert await world.pods() == []
        assert await world.accounts() == []
        assert (await world.kube.list(RunnerPool, namespace=NAMESPACE)).items == []


async def test_idle_pods_leave_a_cordoned_host_and_jobs_finish_there() -> None:
    async with a_world() as world:
        await _started(world, replicas=3)
        job = await _running_job(world)
        idle = next(pod for pod in await world.alive() if not is_claimed(pod))
        busy = next(pod for pod in await world.alive() if is_claimed(pod))

        for pod in (idle, busy):
            await _cordon(world, pod.spec.node_name, value=True)
        await asyncio.sleep(120)

        hosts = {pod.spec.node_name: is_claimed(pod) for pod in await world.alive()}
        assert idle.spec.node_name not in hosts
        assert hosts[busy.spec.node_name]
        await asyncio.sleep(1200)
        assert (job.lost, job.finished_at is not None) == (0, True)


async def test_pod_that_stays_terminating_blocks_no_slot() -> None:
    async with a_world() as world:
        await _started(world, replicas=3)
        victim = (await world.alive())[0]

        await world.hosts.kill_host(victim.spec.node_name)
        await asyncio.sleep(900)

        assert sum(is_ready(pod) for pod in await world.alive()) == 3
        assert [pod.name for pod in await world.pods() if pod.deleting] == [victim.name]
        assert victim.name not in {each.name for each in await world.accounts()}
        age = world.metric("tuist_runners_pool_oldest_terminating_pod_age_seconds")
        assert age is not None
        assert age > 300
        await world.hosts.revive_host(victim.spec.node_name)
        await world.until_settled(OLD)


@pytest.mark.parametrize("seed", range(4))
async def test_claimed_pod_survives_a_scale_down_that_did_not_see_the_claim(seed: int) -> None:
    async with a_world(seed=seed, dispatch=False) as world:
        world.start_controller(delay=5)
        await world.create_pool()
        await world.until_settled(OLD)

        for pod in await world.pods():
            await patch_labels(world, pod, {labels.RUNNER_POOL_OWNER: "acme"})
        await world.patch({"replicas": 0})
        await asyncio.sleep(60)

        assert len(await world.alive()) == 4


async def test_name_that_another_pod_has_is_skipped() -> None:
    async with a_world() as world:
        pool = await world.create_pool()
        taken = ObjectMeta(name=pod_name(pool, 0, 1), namespace=NAMESPACE)
        spec = PodSpec(containers=[Container(name="other", image="example")])
        foreign = await world.kube.create(Pod(metadata=taken, spec=spec))

        world.start_controller()
        await world.until_ready(4)

        assert len(await world.alive()) == 4
        kept = await world.kube.get(Pod, foreign.name, namespace=NAMESPACE)
        assert kept.uid == foreign.uid


async def test_pods_that_cannot_start_are_replaced_ever_less_often() -> None:
    async with a_world(images={**IMAGES, NEW: ImageModel(exists=False)}) as world:
        world.start_controller()
        await world.create_pool(image=NEW)
        await asyncio.sleep(240)
        pool = await world.pool()
        condition = conditions.find(pool.status.conditions, types.PODS_FAILING)
        assert condition is not None
        assert "registry has no image" in condition.message

        await asyncio.sleep(3600)
        # Four slots; each Pod is given up after five minutes, and its successor waits ever longer.
        assert 4 * 3 < _created(world) <= 4 * 11


@pytest.mark.parametrize("delay", [0, 3])
async def test_pods_that_end_at_once_are_replaced_ever_less_often(delay: float) -> None:
    async with a_world(images={**IMAGES, NEW: ImageModel(exits_after=1)}) as world:
        world.start_controller(delay=delay)
        await world.create_pool(image=NEW)
        await asyncio.sleep(3600)

        pool = await world.pool()
        condition = conditions.find(pool.status.conditions, types.PODS_FAILING)
        assert condition is not None
        assert condition.reason == "PodsEnd"
        assert 4 * 8 < _created(world) <= 4 * 17


@pytest.mark.parametrize(("hosts", "is_avoided"), [(4, True), (2, False)])
async def test_host_on_which_pods_keep_failing_is_avoided_if_there_are_others(
    hosts: int, *, is_avoided: bool
) -> None:
    async with a_world(FleetSettings(hosts=hosts, on_disk=(OLD,))) as world:
        bad = world.hosts.hosts["mac-1"]
        bad.images.models = MappingProxyType({OLD: ImageModel(exits_after=1)})
        world.start_controller()
        await world.create_pool(replicas=hosts)
        await asyncio.sleep(1500)

        pods = await world.alive()
        assert sum(is_ready(pod) for pod in pods) == hosts - 1
        created, avoids = _created(world), set[bool]()
        for _ in range(600):
            await asyncio.sleep(1)
            avoids |= {"mac-1" in _avoided(pod) for pod in await world.pods() if not is_ready(pod)}
        assert avoids == {is_avoided}
        assert _created(world) - created <= 3


def _avoided(pod: Pod) -> list[str]:
    affinity = pod.spec.affinity
    node = affinity.node_affinity if affinity is not None else None
    required = node.required if node is not None else None
    terms = (required.node_selector_terms if required is not None else None) or []
    found = [each for term in terms for each in term.match_expressions]
    return [host for each in found if each.operator == "NotIn" for host in each.values]


async def test_stopped_session_is_reported_before_its_pod_is_deleted() -> None:
    worlds: list[World] = []
    sessions = FakeSessions(worlds)
    async with a_world(sessions=sessions) as world:
        worlds.append(world)
        await _started(world)
        job = await _running_job(world)
        await asyncio.sleep(1200)

        deletion = next(
            number
            for number, write in enumerate(world.checkpoints.writes)
            if write.startswith("DELETE") and f"/pods/{job.pod} " in write
        )
        assert sessions.reported[job.pod] <= deletion


async def test_sessions_endpoint_that_is_away_delays_no_pool() -> None:
    async with a_world(sessions=FakeSessions([], is_away=True)) as world:
        await _started(world)
        await world.patch({"image": NEW})
        began = asyncio.get_running_loop().time()

        await world.until_rolled(NEW)

        assert asyncio.get_running_loop().time() - began < 600
        # Not reported, and in the end deleted all the same.
        await world.until_settled(NEW)
