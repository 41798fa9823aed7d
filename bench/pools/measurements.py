"""What is measured: the creation of Pods, and a controller at rest with many of them."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime

from bench.pools.stage import NAMESPACE, Stage, all_of, is_of_pool, running_status
from bramley.api.core import ServiceAccount
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from tools.kube import processes

CREATED = 100
POOLS_PER_FLEET = 10
PODS_PER_POOL = 50
PODS_PER_HOST = 2
# Nothing was written for so long: the controller is at rest.
QUIET_SECONDS = 5.0
LEASES = "leases"


@dataclass(frozen=True, slots=True)
class Rest:
    """A controller at rest: its memory, right after the Pods were created and after a restart, its CPU time and its writes."""

    pools: int
    pods: int
    resident_bytes: int
    restarted_bytes: int
    cpu_percent: float
    seconds: float
    writes: int
    lease_writes: int


async def measure_creation(on: Stage, pool: str, fleet: str) -> float:
    """Scale a pool from nothing, and return the seconds until its last Pod is stored."""
    await on.create_pool(pool, fleet, replicas=0)
    # Until the images of the hosts are requested, too.
    await _until_quiet(on, seconds=1.0)
    async with on.kube.watch(
        Pod, namespace=NAMESPACE, labels=f"{labels.RUNNER_POOL}={pool}", resource_version="0"
    ) as watch:
        started, seen = time.perf_counter(), set[str]()
        await on.scale(pool, CREATED)
        async for event in watch:
            if event.type == "ADDED" and is_of_pool(event.object, pool):
                seen.add(event.object.name)
                if len(seen) == CREATED:
                    break
        seconds = time.perf_counter() - started
    await remove(on, pool)
    return seconds


async def remove(on: Stage, pool: str) -> None:
    """Delete a pool, and wait until nothing of it is left."""
    await on.scale(pool, 0)
    await on.kube.delete(RunnerPool, pool, namespace=NAMESPACE)

    async def is_gone() -> bool:
        counts = [await on.count(kind) for kind in (RunnerPool, Pod, ServiceAccount)]
        return not any(counts)

    await on.until(is_gone, what=f"the deletion of pool {pool}", every=0.2)


def resident_bytes(on: Stage) -> int:
    """Return the memory of the controller."""
    return processes.resident_bytes(on.pid)


async def measure_rest(on: Stage, pools: int, seconds: float) -> Rest:
    """Fill pools, and measure the controller while nothing happens."""
    fleets = -(-pools // POOLS_PER_FLEET)
    for number in range(fleets):
        hosts = POOLS_PER_FLEET * PODS_PER_POOL // PODS_PER_HOST
        await on.create_nodes(f"fleet-{number:02d}", hosts, pods=PODS_PER_HOST)
    for number in range(pools):
        fleet = f"fleet-{number // POOLS_PER_FLEET:02d}"
        await on.create_pool(f"pool-{number:03d}", fleet, replicas=PODS_PER_POOL)
    pods = pools * PODS_PER_POOL

    async def is_full() -> bool:
        return await on.count(Pod) == pods

    await on.until(is_full, what=f"{pods} Pods", every=1.0)
    await _run_pods(on)
    await _until_quiet(on)
    resident = resident_bytes(on)
    on.stop_controller()
    await on.start_controller()
    await _until_quiet(on)
    before, cpu_before = await on.write_counts(), cpu_seconds(on.pid)
    await asyncio.sleep(seconds)
    after, cpu_after = await on.write_counts(), cpu_seconds(on.pid)
    leases = after.get(LEASES, 0) - before.get(LEASES, 0)
    return Rest(
        pools=pools,
        pods=pods,
        resident_bytes=resident,
        restarted_bytes=resident_bytes(on),
        cpu_percent=100 * (cpu_after - cpu_before) / seconds,
        seconds=seconds,
        writes=sum(after.values()) - sum(before.values()) - leases,
        lease_writes=leases,
    )


async def _run_pods(on: Stage) -> None:
    """Bind all Pods to the hosts of their fleets and report them Ready, as scheduler and agents do."""
    places: dict[str, int] = defaultdict(int)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def run(pod: Pod) -> None:
        fleet = pod.spec.node_selector[labels.FLEET]
        place = places[fleet]
        places[fleet] += 1
        await on.kube.bind(pod, f"{fleet}-{place // PODS_PER_HOST:03d}")
        status = {"status": running_status(now)}
        await on.kube.merge_patch(Pod, pod.name, status, namespace=NAMESPACE, subresource="status")

    await all_of(run(pod) for pod in (await on.kube.list(Pod, namespace=NAMESPACE)).items)


async def _until_quiet(on: Stage, seconds: float = QUIET_SECONDS) -> None:
    last, since = await _written(on), time.monotonic()

    async def is_quiet() -> bool:
        nonlocal last, since
        count = await _written(on)
        if count != last:
            last, since = count, time.monotonic()
        return time.monotonic() - since >= seconds

    await on.until(is_quiet, what="a controller at rest", every=0.25)


async def _written(on: Stage) -> int:
    counts = await on.write_counts()
    return sum(counts.values()) - counts.get(LEASES, 0)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - one read
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
