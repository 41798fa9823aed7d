from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from bramley.base import errors
from bramley.runtime.deadline import Deadline


async def sleeping(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


async def test_work_in_time_is_returned() -> None:
    assert await Deadline(timedelta(seconds=10)).of(sleeping(9)) == "slept"


async def test_late_work_is_cut_off_soon_after_its_deadline() -> None:
    deadline = Deadline(timedelta(seconds=16))
    with pytest.raises(errors.TimedOut, match="16 seconds"):
        await deadline.of(sleeping(1000))

    assert 16 <= asyncio.get_running_loop().time() <= 17.1
    assert await deadline.of(sleeping(10)) == "slept"


async def test_each_work_has_its_own_time() -> None:
    deadline = Deadline(timedelta(seconds=10))

    async def later() -> str:
        await asyncio.sleep(5)
        return await deadline.of(sleeping(9))

    async with asyncio.TaskGroup() as group:
        late = group.create_task(deadline.of(sleeping(9.9)))
        later_still = group.create_task(later())

    assert late.result() == later_still.result() == "slept"


async def test_cancellation_from_elsewhere_goes_on() -> None:
    deadline = Deadline(timedelta(seconds=10))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await deadline.of(sleeping(1000))


async def test_work_may_clean_up_after_it_was_cut_off() -> None:
    deadline, cleaned = Deadline(timedelta(seconds=10)), []

    async def tidy() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(3)
            cleaned.append("cleaned")

    with pytest.raises(errors.TimedOut):
        await deadline.of(tidy())

    assert cleaned == ["cleaned"]


async def test_error_of_the_work_is_its_own() -> None:
    async def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        await Deadline(timedelta(seconds=10)).of(fail())


async def test_no_timer_is_left_when_nothing_runs() -> None:
    deadline = Deadline(timedelta(seconds=16))
    await deadline.of(sleeping(0.1))
    await asyncio.sleep(3)

    assert deadline._timer is None
