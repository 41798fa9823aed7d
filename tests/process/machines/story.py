"""The life of a fleet from the first `kubectl scale` to the last: Macs from the pool, jobs, a builder, and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from bramley.api import conditions, core
from bramley.api.cluster_api import Machine
from bramley.api.coordination import Lease
from bramley.api.core import Node, ServiceAccount
from bramley.api.meta import Object
from bramley.api.names import access, agent, cluster_api, events, host, labels, launchd, secrets
from bramley.api.names import annotations as annotation_names
from bramley.api.names import conditions as types
from bramley.api.names import machines as names
from bramley.api.pod import Pod
from bramley.api.rbac import ClusterRole, ClusterRoleBinding
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.base import errors
from bramley.sim.github.records import Job
from bramley.sim.scaleway.records import Status
from tests.github_peer import APP
from tests.process.machines import manifests
from tests.process.machines.fleet import Fleet
from tests.process.machines.manifests import BUILDERS, FLEET, NAMESPACE, RUNNERS_NAMESPACE

Machines = dict[str, ScalewayAppleSiliconMachine]
# The phases of a Pod, each with whether it was being deleted, in their order.
History = list[tuple[str, bool]]
LEFT_OVER = "/Users/m1/left-over"
JOBS = 2
TART = f"{host.TART_BUNDLE}/{host.TART_IN_BUNDLE}"
# Longer than the test: each job is ended by it.
ENDLESS = timedelta(hours=1)


async def live_and_die(fleet: Fleet, *, loses_node: bool = False) -> None:
    """Scale a fleet up, down while jobs run, and to nothing; the Node of a busy Mac may be lost meanwhile."""
    await fleet.kubectl.apply(
        manifests.pool(3), *manifests.fleet(FLEET, replicas=0), *manifests.builders()
    )
    await scale(fleet, FLEET, 3)
    machines = await until_ready(fleet, FLEET, 3)
    [builder] = (await until_ready(fleet, BUILDERS, 1)).values()
    check_adopted(fleet, {**machines, builder.name: builder})
    await check_nodes(fleet, machines)
    await check_builder(fleet, builder)
    staying = await scale_down_during_jobs(fleet, machines, loses_node=loses_node)
    for name in (FLEET, BUILDERS):
        await scale(fleet, name, 0)
    for machine in (staying, builder):
        await check_released(fleet, machine)
    assert fleet.scaleway.servers.keys() == fleet.pool.keys()
    assert not fleet.github.actions.runners
    assert not fleet.problems()


async def scale(fleet: Fleet, name: str, replicas: int) -> None:
    """Scale a MachineDeployment."""
    words = ("scale", "machinedeployment", name, f"--replicas={replicas}")
    await fleet.kubectl(*words, "--namespace", NAMESPACE)


async def until_ready(fleet: Fleet, name: str, count: int) -> Machines:
    """Wait until exactly this number of machines of a fleet exist, are ready, and run in the eyes of Cluster API."""

    async def are_ready() -> Machines | None:
        found, owners = await fleet.machines(name), await fleet.owners()
        is_ready = all(
            each.status.phase == "Ready"
            and conditions.is_true(each.status.conditions, types.UP_TO_DATE)
            and owners[each.name].status.phase == "Running"
            for each in found.values()
        )
        return found if len(found) == count and is_ready else None

    return await fleet.until(are_ready, what=f"{count} machines of {name}")


def check_adopted(fleet: Fleet, machines: Machines) -> None:
    """Check that each machine has a rented Mac of the pool for itself, which has its name and was not reinstalled."""
    hosts = [fleet.rented(machine) for machine in machines.values()]
    assert [each.name for each in hosts] == [*machines]
    assert len({each.id for each in hosts}) == len(machines)
    for each in hosts:
        pooled, claimed, *own = [name for _, name in each.names]
        assert pooled == fleet.pool[each.id]
        assert pooled.startswith(names.POOL_PREFIX)
        assert claimed.startswith(names.CLAIM_PREFIX)
        assert own == [each.name]
    assert not any(path.endswith("/reinstall") for path in fleet.scaleway.calls)


async def check_nodes(fleet: Fleet, machines: Machines) -> None:
    """Check that Nodes are Ready and were proven by a VM, and that no runner came to one before."""
    nodes = await fleet.nodes()
    for name, machine in machines.items():
        node = nodes[name]
        assert serves(node)
        assert node.spec.provider_id == machine.spec.provider_id
        expected = [events.BOOTSTRAPPING, events.BOOTSTRAPPED, events.PROVEN]
        assert [each for each in await fleet.reasons(name) if each in expected] == expected

    async def has_runners() -> list[Pod] | None:
        found = list((await fleet.pods()).values())
        are_ready = [conditions.is_true(each.status.conditions, types.READY) for each in found]
        return found if are_ready == [True] * len(machines) else None

    for pod in await fleet.until(has_runners, what="a runner on each Mac"):
        proven = conditions.find(machines[pod.spec.node_name].status.conditions, types.PROVEN)
        bound = conditions.find(pod.status.conditions, "PodScheduled")
        assert proven is not None
        assert proven.last_transition_time is not None
        assert bound is not None
        assert bound.last_transition_time is not None
        assert bound.last_transition_time >= proven.last_transition_time


def serves(node: Node) -> bool:
    """Return whether a Node is Ready, and takes every Pod that is meant for a Mac."""
    is_ready = conditions.is_true(node.status.conditions, types.READY)
    return is_ready and [each.key for each in node.spec.taints] == [labels.MACOS_TAINT]


async def check_builder(fleet: Fleet, machine: ScalewayAppleSiliconMachine) -> None:
    """Check that the runner is online at GitHub, and that only the agent of the builder leaves VMs of bakes alone."""
    [runner] = fleet.github.actions.runners.values()
    assert (runner.name, runner.owner) == (machine.name, f"/orgs/{APP.owner}")
    assert runner.is_online
    assert "vm-image-builder" in runner.labels
    for each in (machine, *(await fleet.machines(FLEET)).values()):
        plist = fleet.mac(each).files.text(launchd.daemon_plist(launchd.AGENT))
        assert ("--disable-vm-gc" in plist) == (each.name == machine.name)


async def lose_node(fleet: Fleet, machine: ScalewayAppleSiliconMachine, pod: Pod) -> None:
    """Delete the Node of a healthy Mac whose VM has a job, and wait until it is proven again and serves as before."""
    served = fleet.host(fleet.rented(machine))
    before, boot = len(served.commands), served.mac.state["boot"]
    signature = served.mac.files.digest(TART)
    node = (await fleet.nodes())[machine.name]
    await fleet.kubectl("delete", "node", machine.name)

    async def is_back() -> bool:
        found = (await fleet.nodes()).get(machine.name)
        return found is not None and found.uid != node.uid and serves(found)

    await fleet.until(is_back, what="the new Node")

    async def is_proven_again() -> bool:
        return (await fleet.reasons(machine.name)).count(events.PROVEN) == 2

    await fleet.until(is_proven_again, what="the proof of the new Node")
    [running] = [each for each in (await fleet.pods()).values() if each.uid == pod.uid]
    assert (running.status.phase, running.deleting) == ("Running", False)
    assert served.mac.state["boot"] == boot
    assert served.mac.files.digest(TART) == signature
    assert not [each for each in served.commands[before:] if launchd.LOGINWINDOW in each]


async def scale_down_during_jobs(
    fleet: Fleet, machines: Machines, *, loses_node: bool
) -> ScalewayAppleSiliconMachine:
    """Scale three machines to one while two of them have jobs; return the one that stays."""
    for machine in machines.values():
        fleet.mac(machine).files.write(LEFT_OVER, b"of the last user")
    async with histories(fleet) as seen:
        repository = fleet.github.accounts[APP.owner].repositories[APP.name]
        jobs = [
            fleet.github.actions.queue_job(
                repository, labels=[manifests.DISPATCH_LABEL], duration=ENDLESS
            )
            for _ in range(JOBS)
        ]
        pods = await fleet.until(lambda: pods_of(fleet, jobs), what="the start of the jobs")
        busy = {pod.spec.node_name for pod in pods}
        [idle] = machines.keys() - busy
        await fleet.until(lambda: has_mark(fleet, idle), what="the mark of the idle machine only")
        if loses_node:
            await lose_node(fleet, machines[pods[0].spec.node_name], pods[0])
        await scale(fleet, FLEET, 1)
        await check_released(fleet, machines[idle])
        leaving = await fleet.until(lambda: draining(fleet), what="the drain of a busy Mac")
        assert leaving in busy
        assert [job.status for job in jobs] == ["in_progress"] * JOBS
        assert fleet.rented(machines[leaving]).name == leaving
        for job in jobs:
            fleet.github.actions.end_job(job)
        await check_released(fleet, machines[leaving])
    assert [job.conclusion for job in jobs] == ["success"] * JOBS
    for pod in pods:
        # Neither evicted nor deleted before its VM had ended.
        assert ("Succeeded", False) in seen[pod.uid]
        assert ("Running", True) not in seen[pod.uid]
    [staying] = busy - {leaving}
    assert [*await fleet.machines(FLEET)] == [staying]
    return machines[staying]


async def pods_of(fleet: Fleet, jobs: list[Job]) -> list[Pod] | None:
    """Return the Pods that run the jobs, once all of them run."""
    if any(job.status != "in_progress" for job in jobs):
        return None
    pods = await fleet.pods()
    return [pods[(job.runner_name or "").rpartition("-")[0]] for job in jobs]


async def has_mark(fleet: Fleet, idle: str) -> bool:
    """Return whether Cluster API will delete one machine of the fleet before all others."""
    owners, machines = await fleet.owners(), await fleet.machines(FLEET)
    marks = {
        name: owners[name].metadata.annotations.get(cluster_api.DELETE_MACHINE) for name in machines
    }
    return marks == {name: annotation_names.IDLE if name == idle else None for name in machines}


async def draining(fleet: Fleet) -> str | None:
    """Return the name of the machine that is to be deleted, once its Node is drained."""
    machines, nodes = await fleet.owners(), await fleet.nodes()
    found = [
        name
        for name, machine in machines.items()
        if machine.deleting and nodes[name].spec.unschedulable
    ]
    return found[0] if found else None


@asynccontextmanager
async def histories(fleet: Fleet) -> AsyncIterator[dict[str, History]]:
    """Record the phases of all Pods of runners by uid until the block ends."""
    seen: dict[str, History] = {}
    found = await fleet.kube.list(Pod, namespace=RUNNERS_NAMESPACE)

    async def follow() -> None:
        async with fleet.kube.watch(
            Pod,
            namespace=RUNNERS_NAMESPACE,
            resource_version=found.resource_version,
            bookmarks=False,
            timeout=ENDLESS,
        ) as watch:
            async for event in watch:
                pod = event.object
                seen.setdefault(pod.uid, []).append((pod.status.phase, pod.deleting))

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow())
        yield seen
        assert not following.done(), "the watch has ended"
        following.cancel()


async def check_released(fleet: Fleet, machine: ScalewayAppleSiliconMachine) -> None:
    """Wait until a Mac is back in the pool, wiped, and nothing of its machine is left in the cluster."""
    server = fleet.rented(machine)

    async def is_free() -> bool:
        is_installed = (
            server.status is Status.READY and server.password != fleet.passwords[server.id]
        )
        return is_installed and server.name.startswith(names.POOL_PREFIX)

    await fleet.until(is_free, what=f"the release of {machine.name}")
    assert not fleet.host(server).mac.files.exists(LEFT_OVER)

    async def is_forgotten() -> bool:
        return not [each async for each in remains(fleet, machine)]

    await fleet.until(is_forgotten, what=f"the removal of all objects of {machine.name}")


async def remains(fleet: Fleet, machine: ScalewayAppleSiliconMachine) -> AsyncIterator[Object]:
    """Yield what is left of a machine in the cluster."""
    name = machine.name
    places: list[tuple[type[Object], str, str | None]] = [
        (ScalewayAppleSiliconMachine, name, NAMESPACE),
        (Machine, name, NAMESPACE),
        (Node, name, None),
        (Lease, name, "kube-node-lease"),
        (ServiceAccount, agent.service_account(name), access.NAMESPACE),
        (ClusterRole, access.role(name), None),
        (ClusterRoleBinding, access.role(name), None),
        (ClusterRoleBinding, access.enrolment(name), None),
        (core.Secret, secrets.machine_bootstrap(name), NAMESPACE),
        (Lease, f"{names.HOST_LEASE_PREFIX}{machine.status.server_id}", NAMESPACE),
    ]
    for kind, each, namespace in places:
        try:
            yield await fleet.kube.get(kind, each, namespace=namespace)
        except errors.NotFound:
            continue
