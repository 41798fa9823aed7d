"""Lifecycles of Pods on a Mac as a user sees them; they end the same whether or not the agent is killed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from bramley.agent.settings import VM_BOOT_TIMEOUT
from bramley.api.core import Pod, ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.names import agent
from tests.scenarios.agent_life.invariants import FINISHED, vm_of
from tests.scenarios.agent_life.world import IMAGE, NAMESPACE, TAGGED, World

CODE = 3
ACCOUNT = "runner"
TIMEOUT = timedelta(minutes=15)
# Short, so that a lifecycle has few heartbeats; the stages still differ in time.
TIMINGS = {"address": 2.0, "agent": 2.5, "ready": 3.0, "halt": 1.0, "start": 0.3}
WORK = 3.0
GRACE = 20
SIZE = 250_000_000

Action = Callable[[World], Awaitable[None]]


class Point(NamedTuple):
    """A checkpoint of the agent, and how often it was passed before."""

    checkpoint: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """What the guest does, which faults occur, and what the user observes and does; the actions in `on` run at a point."""

    run: Action
    guest: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[tuple[str, str, Mapping[str, Any]], ...] = ()
    on: Mapping[Point, Action] = field(default_factory=dict)
    # The checkpoint from which on it differs from the first lifecycle, where its checkpoints do not show that.
    forks_at: str = ""
    # Only one in so many of its own points is used, for a lifecycle that is long and has few new states.
    every: int = 1
    boot_timeout: timedelta = VM_BOOT_TIMEOUT

    async def set_up(self, world: World) -> None:
        """Prepare the cluster and the Mac."""
        await world.kube.create(
            ServiceAccount(metadata=ObjectMeta(name=ACCOUNT, namespace=NAMESPACE))
        )
        world.boot_timeout = self.boot_timeout
        world.mac.settings.timings(**TIMINGS)
        script = {"code": CODE, "work": WORK, **self.guest}
        world.mac.settings.image(TAGGED, size_bytes=SIZE, guest=script)
        for program, do, details in self.faults:
            world.mac.faults.add(program, do, **details)


async def ended(world: World, name: str = "job") -> Pod:
    """Wait until a Pod has ended, and return it."""

    async def has_ended() -> bool:
        pod = await world.find(name)
        return pod is not None and pod.status.phase in FINISHED

    await world.until(has_ended, within=TIMEOUT, what=f"{name} has ended")
    pod = await world.find(name)
    assert pod is not None
    return pod


async def gone(world: World, name: str = "job") -> None:
    """Wait until a Pod is gone."""

    async def is_gone() -> bool:
        return await world.find(name) is None

    await world.until(is_gone, within=TIMEOUT, what=f"{name} is gone")


async def delete(world: World, name: str = "job") -> None:
    """Delete a Pod, and wait until it is gone."""
    await world.delete(name)
    await gone(world, name)


async def deletion(world: World) -> None:
    """Request a deletion without waiting for it."""
    await world.delete("job")


def works(code: int | None) -> Action:
    """Return a run of a Pod that ends by itself with this code, and is then deleted."""

    async def run(world: World) -> None:
        await job(world)
        expect(world, await ended(world), code)
        await world.until_rest()
        await delete(world)

    return run


async def job(world: World, name: str = "job", **spec: Any) -> Pod:
    """Create a Pod."""
    usual = {
        "terminationGracePeriodSeconds": GRACE,
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": True,
    }
    return await world.pod(name, image=IMAGE, spec=usual | spec)


def expect(world: World, pod: Pod, code: int | None) -> None:
    """Check that a Pod ended with its guest's exit code, unless there was no guest or the Mac was rebooted."""
    terminated = pod.status.container_statuses[0].state.terminated
    assert terminated is not None
    if vm_of(pod) in world.invariants.reports:
        assert terminated.exit_code == world.invariants.reports[vm_of(pod)]
    elif world.mac.boots > 1:
        assert pod.status.reason == agent.HOST_REBOOTED
    elif not world.invariants.has_booted(vm_of(pod)):
        assert terminated.reason == agent.RUN_LOST
    elif code is not None:
        assert terminated.exit_code == code
    assert (pod.status.phase == "Succeeded") == (terminated.exit_code == 0)


async def crashes(world: World) -> None:
    """Run a Pod whose guest crashes without a report: it has failed, although tart exits with 0."""
    await job(world)
    pod = await ended(world)
    terminated = pod.status.container_statuses[0].state.terminated
    assert terminated is not None
    if world.invariants.has_booted(vm_of(pod)):
        end = (pod.status.phase, pod.status.reason, terminated.reason, terminated.exit_code)
        assert end == ("Failed", agent.GUEST_CRASHED, agent.GUEST_CRASHED, 1)
    await world.until_rest()
    await delete(world)


async def addressed_at_the_second_try(world: World) -> None:
    """Run a Pod whose first VM gets no address: it is discarded, and the second one runs the job."""
    await job(world)

    async def is_abandoned() -> bool:
        return bool(world.invariants.abandoned)

    world.mac.settings.guest("*", address=10_000.0)
    await world.until(is_abandoned, within=TIMEOUT, what="a VM is given up")
    world.mac.settings.guest("*", address=TIMINGS["address"])
    expect(world, await ended(world), CODE)
    await world.until_rest()
    await delete(world)


async def deleted_at_once(world: World) -> None:
    """Delete a Pod before the agent has seen it."""
    await job(world)
    await delete(world)


async def deleted_at_a_point(world: World) -> None:
    """Run a Pod that is deleted at a point."""
    await job(world)
    await gone(world)


async def deleted_while_it_runs(world: World) -> None:
    """Delete a Pod once it has an address."""
    await job(world)
    await until_running(world)
    await delete(world)


async def until_running(world: World) -> None:
    """Wait until the Pod runs with an address, or has ended before."""

    async def runs() -> bool:
        pod = await world.find("job")
        status = pod.status if pod is not None else None
        return status is not None and (bool(status.pod_ip) or status.phase in FINISHED)

    await world.until(runs, within=TIMEOUT, what="job runs")


async def refused(world: World) -> None:
    """Run a Pod that no VM supports."""
    more: dict[str, Any] = {"initContainers": [{"name": "before", "image": IMAGE}]}
    await job(world, **more)
    assert (await ended(world)).status.reason == agent.UNSUPPORTED
    assert not world.mac.tart.started_vms
    await delete(world)


async def recreated(world: World) -> None:
    """Delete a Pod while it runs, and create another of the same name."""
    await deleted_while_it_runs(world)
    await job(world)
    expect(world, await ended(world), CODE)
    await delete(world)


async def reboots(world: World) -> None:
    """Reboot the Mac while a Pod runs."""
    await job(world)
    await until_running(world)
    was_running = bool(world.mac.tart.guests)
    await world.reboot()
    await asyncio.sleep(5)
    world.ensure_started()
    pod = await ended(world)
    assert pod.status.phase == "Failed"
    assert not was_running or pod.status.reason == agent.HOST_REBOOTED
    await delete(world)


async def two_at_once(world: World) -> None:
    """Run two Pods of the same image at once, one of which is deleted while it runs."""
    await job(world)
    await job(world, "other")
    await until_running(world)
    await world.delete("job")
    expect(world, await ended(world, "other"), CODE)
    await gone(world)
    await delete(world, "other")


JOB = f"/api/v1/namespaces/{NAMESPACE}/pods/job"
FIRST = "ends with 3"
LIFECYCLES: Mapping[str, Lifecycle] = {
    FIRST: Lifecycle(works(CODE)),
    "ends with 0": Lifecycle(works(0), {"code": 0}, forks_at="after run"),
    "crashes without an exit code": Lifecycle(
        crashes, {"code": None, "then": "crash"}, forks_at="after run"
    ),
    "deleted before it is seen": Lifecycle(deleted_at_once),
    "deleted when it has its finalizer": Lifecycle(
        deleted_at_a_point, on={Point(f"after PATCH {JOB}"): deletion}
    ),
    "deleted while it is pulled": Lifecycle(
        deleted_at_a_point, on={Point("before tart pull"): deletion}
    ),
    "deleted while it is cloned": Lifecycle(
        deleted_at_a_point, on={Point("before tart clone"): deletion}
    ),
    "deleted while it is cloned slowly": Lifecycle(
        deleted_at_a_point,
        faults=(("tart clone", "slow", {"seconds": 40.0, "target": f"{NAMESPACE}-job-*"}),),
        on={Point("within tart clone", 1): deletion},
    ),
    "deleted when it is cloned": Lifecycle(
        deleted_at_a_point, on={Point("after writing cloned"): deletion}
    ),
    "deleted when it is started": Lifecycle(
        deleted_at_a_point, on={Point("after writing started"): deletion}
    ),
    "deleted while it runs": Lifecycle(deleted_while_it_runs, {"work": 60.0}),
    "deleted and ignores the shutdown": Lifecycle(
        deleted_while_it_runs, {"work": 90.0, "ignores_shutdown": True}
    ),
    "deleted when its end is reported": Lifecycle(
        deleted_at_a_point, on={Point("after writing reported"): deletion}
    ),
    "deleted while its VM is deleted": Lifecycle(
        deleted_at_a_point, on={Point("before tart delete"): deletion}
    ),
    "deleted when it has ended": Lifecycle(
        deleted_at_a_point, on={Point("after writing ended"): deletion}
    ),
    "pulled at the third try": Lifecycle(
        works(CODE), faults=(("tart pull", "status", {"code": 503, "times": 2}),)
    ),
    "started at the second try": Lifecycle(
        works(CODE), faults=(("tart run", "nvram_locked", {"times": 1}),)
    ),
    "without an address at the first try": Lifecycle(
        addressed_at_the_second_try, {"work": 5.0}, boot_timeout=timedelta(seconds=12)
    ),
    "refused": Lifecycle(refused),
    "recreated": Lifecycle(recreated),
    "rebooted": Lifecycle(reboots, {"work": 600.0}),
    "two at once": Lifecycle(two_at_once, {"work": 8.0}, every=2),
}
