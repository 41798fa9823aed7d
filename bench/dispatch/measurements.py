"""What is measured on the stage: the cost of idle polls, and the time from a webhook to the JIT config."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.dispatch.guests import LONG_POLL, Guest, Guests
from bench.dispatch.stage import DispatchStage
from bench.pools.measurements import cpu_seconds
from tools.kube import processes

TIMEOUT = 120.0
# The jobs of pools with one idle VM overlap, because each would take a second of the 2-second poll.
INTERVAL_SECONDS = 0.1
# Guests connect in steps, so that no connection waits in the server's backlog for its repetition.
_BATCH = 100


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from webhook to JIT config with one way to poll and one latency of GitHub."""

    mode: str
    github_ms: float
    # All VMs in the job's pool, one job at a time.
    shared: Sequence[float]
    # One idle VM in the job's pool, all others in another pool.
    single: Sequence[float]
    idle_cpu_percent: float
    github_calls_per_job: float


@dataclass(frozen=True, slots=True)
class Idle:
    """The dispatch server with held polls: its memory before and with them, and its CPU time."""

    polls: int
    before_bytes: int
    held_bytes: int
    cpu_percent: float
    seconds: float
    connect_seconds: float

    @property
    def bytes_per_poll(self) -> float:
        """Return the memory of one held poll, with what the server caches of its Pod."""
        return (self.held_bytes - self.before_bytes) / self.polls


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that is not exceeded by this share of the values."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return mean, median, 99th percentile and number."""
    return {
        "mean": round(statistics.fmean(values), 2),
        "p50": round(percentile(values, 0.5), 2),
        "p99": round(percentile(values, 0.99), 2),
        "jobs": len(values),
    }


async def measure_idle(on: DispatchStage, guests: Sequence[Guest], seconds: float) -> Idle:
    """Hold a poll of each guest, and measure the server while nothing happens."""
    before = processes.resident_bytes(on.pid)
    async with asyncio.TaskGroup() as group:
        polling = Guests(on.port, LONG_POLL, group)
        started = time.perf_counter()
        await _start(on, polling, guests)
        connect_seconds = time.perf_counter() - started
        cpu, held = await _cpu_percent(on, seconds), processes.resident_bytes(on.pid)
        polling.stop()
    await _until_idle(on)
    return Idle(len(guests), before, held, cpu, seconds, round(connect_seconds, 2))


async def measure_latency(
    on: DispatchStage,
    mode: str,
    github_seconds: float,
    *,
    shared: Sequence[Guest],
    single: Sequence[Guest],
    jobs: int,
) -> tuple[Latency, set[str]]:
    """Measure with these idle VMs; return also the Pods that got a job."""
    on.set_latency(github_seconds)
    async with asyncio.TaskGroup() as group:
        polling = Guests(on.port, mode, group)
        await _start(on, polling, [*shared, *single])
        cpu = await _cpu_percent(on, 3.0)
        # Not counted: connections to GitHub and the token of the installation.
        await _arrived(on, polling, on.queue_job(shared[0].pool))
        calls = on.calls.count
        of_shared = [await _arrived(on, polling, on.queue_job(shared[0].pool)) for _ in range(jobs)]
        of_single = await _spaced(on, polling, [guest.pool for guest in single])
        per_job = (on.calls.count - calls) / (jobs + len(single))
        polling.stop()
    await _until_idle(on)
    latency = Latency(mode, 1000 * github_seconds, of_shared, of_single, cpu, per_job)
    return latency, polling.served


async def _spaced(on: DispatchStage, polling: Guests, pools: Sequence[str]) -> list[float]:
    async with asyncio.TaskGroup() as group:
        tasks = []
        for pool in pools:
            tasks.append(group.create_task(_arrived(on, polling, on.queue_job(pool))))
            await asyncio.sleep(INTERVAL_SECONDS)
    return [task.result() for task in tasks]


async def _arrived(on: DispatchStage, polling: Guests, job_id: int) -> float:
    """Return the milliseconds from the webhook of a job to its arrival at a guest."""
    async with asyncio.timeout(TIMEOUT):
        arrived = await polling.arrival(job_id)
    return 1000 * (arrived - on.webhooks.sent[job_id])


async def _start(on: DispatchStage, polling: Guests, guests: Sequence[Guest]) -> None:
    """Start guests, and wait until the server holds their polls, or has answered each once."""
    is_held = polling.mode == LONG_POLL
    for begin in range(0, len(guests), _BATCH):
        batch = guests[begin : begin + _BATCH]
        polling.start(batch)
        if is_held:
            await asyncio.sleep(0.05)
            await _until_idle(on)
    if not is_held:
        await _until(lambda: polling.polls >= len(guests), "the first polls")


async def _until_idle(on: DispatchStage) -> None:
    """Wait until the server has used no CPU time for a while: nothing is left to do."""
    last, since = cpu_seconds(on.pid), time.monotonic()

    def is_idle() -> bool:
        nonlocal last, since
        found = cpu_seconds(on.pid)
        # A tick is 10 ms; loops of the server use one now and then.
        if found - last > 0.011:
            last, since = found, time.monotonic()
        return time.monotonic() - since >= 0.15

    await _until(is_idle, "an idle server")


async def _until(check: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(TIMEOUT):
            while not check():  # noqa: ASYNC110 - the state of another process
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise TimeoutError(f"timed out waiting for {what}") from None


async def _cpu_percent(on: DispatchStage, seconds: float) -> float:
    before = cpu_seconds(on.pid)
    await asyncio.sleep(seconds)
    return round(100 * (cpu_seconds(on.pid) - before) / seconds, 2)
