"""A roll of twelve real agents: its steps, and what must hold after every change and in every scrape."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.base import errors
from tests.dispatch_peer import Answer, DispatchPeer, Received, job
from tests.process.agent_life.servers import Server
from tests.process.runners.controller import ControllerProcess, Sample, running_controller
from tests.process.runners.fleet import (
    MACS,
    NEW,
    OLD,
    POOL,
    TIMEOUT_SECONDS,
    UNTIL_DELETED_SECONDS,
    RunnerFleet,
    a_fleet,
)
from tests.process.runners.history import History, Moment, is_marked, recorded
from tests.scenarios.runners.invariants import image_of, is_alive, is_claimed

CAP = 2
JOBS, JOB_SECONDS, JOB_INTERVAL = 6, 6.0, 3.0
# How late the controller and this process may learn of a change on a busy machine.
DELAY_SECONDS = 3.0
Holds = Callable[[History], bool]


@dataclass(slots=True)
class Jobs:
    """Gives jobs to Pods that poll, as dispatch does: the owner is stamped before the job is handed out."""

    history: History
    loop: asyncio.AbstractEventLoop
    left: int = 0
    next_at: float = 0.0
    owners: set[str] = field(default_factory=set)

    def is_drained(self, name: str) -> bool:
        """Return whether a Pod is marked and has another image than the target."""
        pod, pool = self.history.pods.get(name), self.history.pool
        return (
            pod is not None
            and pool is not None
            and is_marked(pod)
            and image_of(pod) != (pool.status.target_image or pool.spec.image)
        )

    def answer(self, received: Received) -> Answer | None:
        """Return the next job, or None; called in a thread of the peer."""
        name = received.pod
        if name is None or not self.left or time.monotonic() < self.next_at:
            return None
        if name in self.owners or self.is_drained(name):
            return None
        stamp = asyncio.run_coroutine_threadsafe(self._stamp(name), self.loop)
        if not stamp.result(TIMEOUT_SECONDS):
            return None
        self.left -= 1
        self.next_at = time.monotonic() + JOB_INTERVAL
        self.owners.add(name)
        return job("Y29uZmlndXJhdGlvbg==")

    async def _stamp(self, name: str) -> bool:
        fleet = self.history.fleet
        patch = {"metadata": {"labels": {labels.RUNNER_POOL_OWNER: "acme"}}}
        with suppress(errors.NotFound):
            return not (
                await fleet.kube.merge_patch(Pod, name, patch, namespace=fleet.namespace)
            ).deleting
        return False


@dataclass(slots=True)
class Roll:
    """A fleet during its roll."""

    fleet: RunnerFleet
    controller: ControllerProcess
    history: History
    jobs: Jobs | None = None

    async def run(self, kill_after: Sequence[Holds]) -> None:
        """Roll the pool; kill the controller at each of these moments, and start it again."""
        await self.fleet.roll_to(NEW)
        if self.jobs is not None:
            self.jobs.left = JOBS
        for holds in kill_after:
            await self._until(holds)
            self.controller.restart()
        await self._until(is_done)
        # Until the gauges show the end.
        ended = time.monotonic()
        await self._until(lambda _: time.monotonic() > ended + DELAY_SECONDS)

    async def _until(self, holds: Holds) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not holds(self.history):
            self.fleet.expect_alive()
            self.controller.expect_alive()
            assert time.monotonic() < deadline, f"timed out: {self.history.pool}"
            await asyncio.to_thread(self.controller.scrape)
            await asyncio.sleep(0.1)

    def check(self) -> None:
        """Check every moment of the roll, and every scrape."""
        invariants, moments = self.history.replay()
        invariants.check()
        assert invariants.most_in_flight[POOL] == CAP
        assert len(invariants.marked) >= MACS // 2
        check_samples(self.controller.samples, moments)
        if self.jobs is None:
            stale = [sample.stale for sample in self.controller.samples]
            assert stale == sorted(stale, reverse=True), stale
        else:
            self._check_ends(self.jobs)

    def _check_ends(self, jobs: Jobs) -> None:
        """Check that Pods with a job, and drained ones that had booted, ended by themselves."""
        assert len(jobs.owners) == JOBS
        pods = [each.object for each in self.history.changes if isinstance(each.object, Pod)]
        succeeded = {pod.name for pod in pods if pod.status.phase == "Succeeded"}
        assert jobs.owners <= succeeded
        drained = {pod.name for pod in pods if is_marked(pod) and not is_claimed(pod)}
        assert len(drained & succeeded) >= CAP


def check_samples(samples: Sequence[Sample], moments: Sequence[Moment]) -> None:
    """Check that each scrape shows a state of the pool at that time; where nothing changes, that is exactly one."""
    for sample in samples:
        first, last = sample.began - DELAY_SECONDS, sample.ended + DELAY_SECONDS
        before = [moment for moment in moments if moment.at <= first][-1:]
        near = [*before, *(moment for moment in moments if first < moment.at <= last)]
        assert sample.cap == CAP
        assert sample.rolling <= CAP
        assert sample.stale in {moment.stale for moment in near}, sample
        assert sample.rolling in {
            count for moment in near for count in (moment.in_flight, moment.announced)
        }, sample
    assert (samples[-1].rolling, samples[-1].stale) == (0, 0)
    # The scrapes saw the roll, not only its ends.
    assert len({sample.stale for sample in samples}) > MACS // 3
    assert {sample.rolling for sample in samples} == set(range(CAP + 1))


def has_marks(history: History) -> bool:
    """Return whether a Pod was marked."""
    return any(map(is_marked, history.pods.values()))


def has_new_pods(count: int) -> Holds:
    """Return the predicate whether so many Pods of the new image were created."""
    return lambda history: sum(image_of(pod) == NEW for pod in history.pods.values()) >= count


def is_done(history: History) -> bool:
    """Return whether the roll has ended and the pool is full."""
    pool, alive = history.pool, [pod for pod in history.pods.values() if is_alive(pod)]
    return (
        pool is not None
        and pool.status.last_good_image == NEW
        and pool.status.roll_phase == "Idle"
        and pool.status.ready_replicas == MACS
        and not any(map(is_claimed, alive))
    )


async def check_roll(server: Server, folder: Path) -> None:
    """Roll without dispatch; kill the controller right after a mark, after a successor was created, and in the middle."""
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(a_fleet(server, folder, work=UNTIL_DELETED_SECONDS))
        controller = stack.enter_context(running_controller(fleet, folder / "controller.log"))
        await _fill(fleet)
        history = await stack.enter_async_context(recorded(fleet))
        roll = Roll(fleet, controller, history)
        await roll.run([has_marks, has_new_pods(2), has_new_pods(MACS // 2)])
        roll.check()


async def check_roll_with_dispatch(server: Server, folder: Path) -> None:
    """Roll with dispatch while Pods get jobs; kill the leader in the middle."""
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(a_fleet(server, folder, work=JOB_SECONDS))
        peer = DispatchPeer()
        url = stack.enter_context(peer.serve())
        controller = stack.enter_context(
            running_controller(fleet, folder / "controller.log", url=url, is_elected=True)
        )
        await _fill(fleet)
        history = await stack.enter_async_context(recorded(fleet))
        jobs = Jobs(history, asyncio.get_running_loop())
        peer.is_drained, peer.on_request = jobs.is_drained, jobs.answer
        roll = Roll(fleet, controller, history, jobs)
        await roll.run([has_new_pods(3)])
        roll.check()


async def _fill(fleet: RunnerFleet) -> None:
    await fleet.create_pool()
    await fleet.until(
        lambda pool: pool.status.ready_replicas == MACS and pool.status.last_good_image == OLD,
        what="a full pool",
    )
