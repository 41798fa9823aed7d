from __future__ import annotations

import asyncio
from datetime import timedelta

from bramley.agent.node.host_probes import Probe, ProbeTimings
from bramley.base import errors
from tests.unit.agent.node.worlds import running

TIMINGS = ProbeTimings(
    every=timedelta(seconds=30), recheck=timedelta(seconds=5), limit=timedelta(seconds=20)
)


class Target:
    """Returns, raises or hangs as set in `value`."""

    def __init__(self) -> None:
        self.value: object = 1
        self.probes = 0
        self.changes = 0

    async def probe(self) -> object:
        self.probes += 1
        if isinstance(self.value, BaseException):
            raise self.value
        if self.value is None:
            await asyncio.Event().wait()
        return self.value

    def on_change(self) -> None:
        self.changes += 1

    def new_probe(self) -> Probe[object]:
        return Probe("target", self.probe, on_change=self.on_change, timings=TIMINGS)


async def test_before_the_first_probe_nothing_is_known() -> None:
    probe = Target().new_probe()

    assert (probe.value, probe.error) == (None, None)


async def test_only_changes_are_notified() -> None:
    target = Target()
    async with running(target.new_probe().run):
        await asyncio.sleep(301)

    assert (target.probes, target.changes) == (11, 1)


async def test_slow_probe_does_not_delay_the_next() -> None:
    moments: list[float] = []

    async def probe() -> None:
        moments.append(asyncio.get_running_loop().time())
        await asyncio.sleep(12)

    async with running(Probe("slow", probe, on_change=lambda: None, timings=TIMINGS).run):
        await asyncio.sleep(100)

    assert moments == [0, 30, 60, 90]


async def test_first_failure_after_success_is_rechecked_and_the_second_is_reported() -> None:
    target = Target()
    probe = target.new_probe()
    await probe.run_once()
    target.value = errors.TimedOut("it hangs")

    await probe.run_once()
    assert probe.error == ""
    await probe.run_once()
    assert probe.error == "it hangs"


async def test_failure_from_the_start_is_reported() -> None:
    target = Target()
    target.value = OSError("no such device")
    probe = target.new_probe()

    await probe.run_once()

    assert probe.error == "no such device"


async def test_hanging_probe_times_out_as_a_failure_and_is_repeated() -> None:
    target = Target()
    target.value = None
    probe = target.new_probe()
    async with running(probe.run):
        await asyncio.sleep(21)
        assert probe.error

        target.value = 2
        await asyncio.sleep(30)

    assert (probe.value, probe.error) == (2, "")


async def test_last_good_value_outlives_a_failure() -> None:
    target = Target()
    probe = target.new_probe()
    await probe.run_once()
    target.value = errors.TimedOut("it hangs")

    for _ in range(3):
        await probe.run_once()

    assert probe.value == 1
