from __future__ import annotations

import asyncio
from datetime import timedelta

from bramley.agent.node.host_probes import Probe, ProbeTimings
from bramley.base import errors
from tests.unit.agent.node.worlds import beside

TIMINGS = ProbeTimings(
    every=timedelta(seconds=30), recheck=timedelta(seconds=5), limit=timedelta(seconds=20)
)


class Thing:
    """Answers as it is told."""

    def __init__(self) -> None:
        self.value: object = 1
        self.looks = 0
        self.changes = 0

    async def probe(self) -> object:
        self.looks += 1
        if isinstance(self.value, BaseException):
            raise self.value
        if self.value is None:
            await asyncio.Event().wait()
        return self.value

    def on_change(self) -> None:
        self.changes += 1

    def new_probe(self) -> Probe[object]:
        return Probe("thing", self.probe, on_change=self.on_change, timings=TIMINGS)


async def test_before_the_first_look_nothing_is_known() -> None:
    probe = Thing().new_probe()

    assert (probe.value, probe.error) == (None, None)


async def test_only_what_is_new_is_told() -> None:
    thing = Thing()
    async with beside(thing.new_probe().run):
        await asyncio.sleep(301)

    assert (thing.looks, thing.changes) == (11, 1)


async def test_a_look_that_takes_long_does_not_make_the_next_one_late() -> None:
    moments: list[float] = []

    async def probe() -> None:
        moments.append(asyncio.get_running_loop().time())
        await asyncio.sleep(12)

    async with beside(Probe("slow", probe, on_change=lambda: None, timings=TIMINGS).run):
        await asyncio.sleep(100)

    assert moments == [0, 30, 60, 90]


async def test_the_first_failure_after_good_answers_is_doubted_the_second_is_believed() -> None:
    thing = Thing()
    probe = thing.new_probe()
    await probe.run_once()
    thing.value = errors.TimedOut("it hangs")

    await probe.run_once()
    assert probe.error == ""
    await probe.run_once()
    assert probe.error == "it hangs"


async def test_a_failure_from_the_start_is_believed() -> None:
    thing = Thing()
    thing.value = OSError("no such device")
    probe = thing.new_probe()

    await probe.run_once()

    assert probe.error == "no such device"


async def test_a_look_that_hangs_ends_as_trouble_and_is_repeated() -> None:
    thing = Thing()
    thing.value = None
    probe = thing.new_probe()
    async with beside(probe.run):
        await asyncio.sleep(21)
        assert probe.error

        thing.value = 2
        await asyncio.sleep(30)

    assert (probe.value, probe.error) == (2, "")


async def test_the_last_good_answer_outlives_a_failure() -> None:
    thing = Thing()
    probe = thing.new_probe()
    await probe.run_once()
    thing.value = errors.TimedOut("it hangs")

    for _ in range(3):
        await probe.run_once()

    assert probe.value == 1
