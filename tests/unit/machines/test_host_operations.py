"""Operations on hosts under virtual time: how many run at once, how they end, and what the metrics show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from bramley.api.names import metrics
from bramley.base import errors
from bramley.host.progress import Report
from bramley.machines.host_operations import (
    DEADLINE,
    HostOperations,
    Kind,
    OnStep,
    Operation,
    Result,
    Unprepared,
    Work,
)
from bramley.machines.metrics import MachineMetrics
from tests import virtual_time
from tests.unit.machines.macs import minutes, seconds

REPORT = Report("m")


@dataclass
class Hosts:
    """Operations that run, and in which order they began, changed and ended."""

    registry: CollectorRegistry
    operations: HostOperations
    begun: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def start(
        self,
        uid: str,
        work: Callable[[OnStep], object] | None = None,
        *,
        kind: Kind = Kind.BOOTSTRAP,
        takes: float = 60.0,
    ) -> None:
        """Start an operation that sleeps, and then does this work."""

        async def run(on_step: OnStep) -> Report:
            self.begun.append(uid)
            await asyncio.sleep(takes)
            if work is not None:
                work(on_step)
            return REPORT

        self.start_work(uid, run, kind)

    def start_work(self, uid: str, work: Work, kind: Kind = Kind.BOOTSTRAP) -> None:
        self.operations.start(uid, Operation(kind), work, lambda: self.changes.append(uid))

    def result(self, uid: str) -> Result:
        state = self.operations.find(uid)
        assert state is not None
        assert state.result is not None
        return state.result

    def error(self, uid: str) -> Exception | None:
        return self.result(uid).error

    def count(self, state: str, kind: Kind = Kind.BOOTSTRAP) -> float:
        labels = {"operation": kind.value, "state": state}
        return self.registry.get_sample_value(metrics.HOST_OPERATIONS.name, labels) or 0.0

    def ended(self, result: str, kind: Kind = Kind.BOOTSTRAP) -> tuple[float, float]:
        """Return how many operations have ended so, and how many seconds they took."""
        labels, name = {"operation": kind.value, "result": result}, metrics.HOST_OPERATION_DURATION
        found = (
            self.registry.get_sample_value(f"{name.name}_{each}", labels)
            for each in ("count", "sum")
        )
        count, total = (each or 0.0 for each in found)
        return count, total


@asynccontextmanager
async def some_hosts(limit: int = 2) -> AsyncIterator[Hosts]:
    registry = CollectorRegistry()
    operations = HostOperations(limit, virtual_time.clock(), MachineMetrics(registry))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(operations.run())
        await asyncio.sleep(0)
        yield Hosts(registry, operations)
        task.cancel()


def fail(error: Exception) -> Callable[[OnStep], None]:
    def work(_: OnStep) -> None:
        raise error

    return work


async def test_operation_shows_its_steps_and_its_result_stays() -> None:
    async with some_hosts() as hosts:

        async def work(on_step: OnStep) -> Report:
            for step in ("sudo (2/26)", "sudo (2/26)", "agent (20/26)"):
                on_step(step)
                await asyncio.sleep(1)
            return REPORT

        hosts.start_work("a", work)
        await asyncio.sleep(2.5)
        state = hosts.operations.find("a")
        assert state is not None
        assert (state.step, state.is_active) == ("agent (20/26)", True)
        # A step that is reported twice is no change.
        assert hosts.changes == ["a", "a"]
        await asyncio.sleep(1)

        assert hosts.changes == ["a", "a", "a"]
        assert (hosts.result("a").report, hosts.error("a")) == (REPORT, None)
        assert not hosts.operations.is_active("a")
        hosts.operations.acknowledge("a", hosts.result("a"))
        assert hosts.operations.find("a") is None


async def test_limited_number_runs_at_once_in_order() -> None:
    async with some_hosts(limit=2) as hosts:
        for uid in "abcde":
            hosts.start(uid)
        await asyncio.sleep(30)
        assert hosts.begun == ["a", "b"]
        assert (hosts.count("running"), hosts.count("waiting")) == (2, 3)
        assert hosts.operations.is_active("e")
        await asyncio.sleep(60)
        assert hosts.begun == ["a", "b", "c", "d"]
        await asyncio.sleep(120)

        assert (hosts.count("running"), hosts.count("waiting")) == (0, 0)
        assert hosts.ended("succeeded") == (5, 300)


async def test_cleanups_do_not_wait_for_bootstraps_and_are_limited_too() -> None:
    async with some_hosts(limit=1) as hosts:
        hosts.start("a")
        hosts.start("b", kind=Kind.UPDATE)
        for uid in "cd":
            hosts.start(uid, kind=Kind.CLEANUP)
        await asyncio.sleep(30)

        assert hosts.begun == ["a", "c"]
        assert hosts.count("waiting", Kind.UPDATE) == 1
        assert hosts.count("waiting", Kind.CLEANUP) == 1


async def test_machine_has_one_operation_at_once() -> None:
    async with some_hosts() as hosts:
        hosts.start("a")
        await asyncio.sleep(30)
        hosts.start("a", fail(errors.CommandFailed("of the second")))
        await asyncio.sleep(90)

        assert hosts.begun == ["a"]
        assert hosts.error("a") is None


async def test_bug_in_one_operation_ends_no_other() -> None:
    async with some_hosts() as hosts:
        hosts.start("a", fail(ZeroDivisionError("bug")), takes=10)
        hosts.start("b", takes=20)
        hosts.start("c", fail(errors.CommandFailed("exit 1")), takes=10)
        await asyncio.sleep(60)

        assert isinstance(hosts.error("a"), ZeroDivisionError)
        assert isinstance(hosts.error("c"), errors.CommandFailed)
        assert hosts.error("b") is None
        assert hosts.changes == ["a", "b", "c"]
        assert hosts.ended("failed") == (2, 20)


async def test_cancelled_operation_ends_before_anything_else_happens() -> None:
    async with some_hosts(limit=1) as hosts:
        ended: list[str] = []

        async def work(_: OnStep) -> Report:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(5)
                ended.append("a")
            return REPORT

        hosts.start_work("a", work)
        hosts.start("b")
        await asyncio.sleep(1)
        await hosts.operations.cancel("a")

        assert ended == ["a"]
        assert hosts.operations.find("a") is None
        await asyncio.sleep(1)
        assert hosts.begun == ["b"]
        assert (hosts.count("running"), hosts.count("waiting")) == (1, 0)
        assert hosts.changes == []


async def test_waiting_operation_is_cancelled_and_leaves_its_place() -> None:
    async with some_hosts(limit=1) as hosts:
        for uid in "abc":
            hosts.start(uid)
        await asyncio.sleep(1)
        await hosts.operations.cancel("b")
        assert hosts.count("waiting") == 1
        await asyncio.sleep(60)

        assert hosts.begun == ["a", "c"]


async def test_cancel_drops_a_result_and_ignores_unknown_machines() -> None:
    async with some_hosts() as hosts:
        hosts.start("a")
        await asyncio.sleep(90)
        await hosts.operations.cancel("a")
        await hosts.operations.cancel("nobody")

        assert hosts.operations.find("a") is None


async def test_only_the_result_that_was_written_is_acknowledged() -> None:
    async with some_hosts() as hosts:
        hosts.start("a", takes=1)
        await asyncio.sleep(2)
        first = hosts.result("a")
        hosts.start("a", takes=1)
        hosts.operations.acknowledge("a", first)
        assert hosts.operations.is_active("a")
        await asyncio.sleep(2)
        hosts.operations.acknowledge("a", first)

        assert hosts.result("a").number == first.number + 1


async def test_next_operation_waits_after_one_that_could_not_begin() -> None:
    async with some_hosts() as hosts:
        assert hosts.operations.postponed("a") == seconds(0)
        hosts.start("a", fail(Unprepared("Reason", "text", after=minutes(5))), takes=1)
        await asyncio.sleep(2)
        assert hosts.operations.postponed("a") == seconds(0)
        hosts.operations.acknowledge("a", hosts.result("a"))

        assert hosts.operations.postponed("a") == minutes(5)
        await asyncio.sleep(299)
        assert hosts.operations.postponed("a") == seconds(1)
        await asyncio.sleep(9)
        assert hosts.operations.postponed("a") == seconds(0)
        hosts.operations.postpone("a", minutes(1))
        hosts.operations.forget("a")
        assert hosts.operations.postponed("a") == seconds(0)


async def test_operation_that_failed_postpones_nothing() -> None:
    async with some_hosts() as hosts:
        hosts.start("a", fail(errors.CommandFailed("exit 1")), takes=1)
        await asyncio.sleep(2)
        hosts.operations.acknowledge("a", hosts.result("a"))

        assert hosts.operations.postponed("a") == seconds(0)


async def test_operation_has_a_deadline() -> None:
    async with some_hosts(limit=1) as hosts:
        hosts.start("a", takes=DEADLINE.total_seconds() * 2)
        hosts.start("b")
        await asyncio.sleep(DEADLINE.total_seconds() + 1)

        assert isinstance(hosts.error("a"), errors.TimedOut)
        assert "90 min" in str(hosts.error("a"))
        # The time before it ran did not count.
        assert hosts.begun == ["a", "b"]
        assert hosts.ended("failed") == (1, DEADLINE.total_seconds())


async def test_timeout_inside_the_work_is_not_the_deadline() -> None:
    async with some_hosts() as hosts:
        hosts.start("a", fail(TimeoutError("bug")), takes=1)
        await asyncio.sleep(2)

        assert isinstance(hosts.error("a"), TimeoutError)


async def test_operations_end_with_the_process() -> None:
    ended: list[str] = []

    async def work(_: OnStep) -> Report:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("a")
        return REPORT

    async with some_hosts() as hosts:
        hosts.start_work("a", work)
        await asyncio.sleep(1)

    assert ended == ["a"]
    hosts.start("b")
    assert hosts.operations.find("b") is None
    assert hosts.count("running") == 0


async def test_start_before_the_runner_is_ignored() -> None:
    operations = HostOperations(1, virtual_time.clock(), MachineMetrics(CollectorRegistry()))
    hosts = Hosts(CollectorRegistry(), operations)

    hosts.start("a")

    assert operations.find("a") is None


def phases(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == metrics.MACHINE_PHASE.name
    }


def test_machine_has_one_series_of_its_phase() -> None:
    registry = CollectorRegistry()
    exported = MachineMetrics(registry)
    exported.set_phase("m", "f", "", "")
    assert phases(registry) == {("m", "f", "Pending", ""): 1.0}
    exported.set_phase("m", "f", "Failed", "Reason")
    exported.set_phase("other", "f", "Ready", "")
    assert phases(registry) == {("m", "f", "Failed", "Reason"): 1.0, ("other", "f", "Ready", ""): 1}

    exported.forget("m")
    exported.forget("m")

    assert phases(registry) == {("other", "f", "Ready", ""): 1.0}
