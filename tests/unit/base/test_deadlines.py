from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from bramley.base import errors
from bramley.base.deadlines import Deadline
from tests import virtual_time

T = TypeVar("T")


async def sleeping(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


async def within(deadline: Deadline, *coroutines: Coroutine[Any, Any, T]) -> T:
    """Run the coroutines in one scope and return the last one's result."""
    with deadline.scope() as scope:
        results = [await scope.run(each) for each in coroutines]
    return results[-1]


async def test_result_in_time_is_returned() -> None:
    assert await within(Deadline(timedelta(seconds=10)), sleeping(9)) == "slept"


async def test_late_coroutine_is_cancelled_soon_after_its_deadline() -> None:
    with Deadline(timedelta(seconds=16)).scope() as scope:
        with pytest.raises(errors.TimedOut, match="16 seconds"):
            await scope.run(sleeping(1000))

        assert 16 <= asyncio.get_running_loop().time() <= 17.1
        assert await scope.run(sleeping(10)) == "slept"


async def test_each_coroutine_has_its_own_deadline() -> None:
    deadline = Deadline(timedelta(seconds=10))

    async def later() -> str:
        await asyncio.sleep(5)
        return await within(deadline, sleeping(9), sleeping(9))

    async with asyncio.TaskGroup() as group:
        early = group.create_task(within(deadline, sleeping(9.9), sleeping(9.9)))
        late = group.create_task(later())

    assert early.result() == late.result() == "slept"


async def test_time_between_coroutines_has_no_deadline() -> None:
    with Deadline(timedelta(seconds=10)).scope():
        await asyncio.sleep(1000)


async def test_cancellation_from_elsewhere_is_kept() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await within(Deadline(timedelta(seconds=10)), sleeping(1000))


async def test_cancellation_during_the_cleanup_of_a_late_coroutine_is_kept() -> None:
    async def tidy() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(100)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(20):
            await within(Deadline(timedelta(seconds=10)), tidy())


async def test_coroutine_may_clean_up_after_its_deadline() -> None:
    cleaned: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(3)
            cleaned.append("cleaned")

    with pytest.raises(errors.TimedOut):
        await within(Deadline(timedelta(seconds=10)), tidy())

    assert cleaned == ["cleaned"]


async def test_coroutine_that_ignores_its_deadline_leaves_no_cancellation_behind() -> None:
    async def stubborn() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1000)
        return "done anyway"

    assert await within(Deadline(timedelta(seconds=10)), stubborn()) == "done anyway"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_error_of_the_coroutine_is_raised() -> None:
    async def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        await within(Deadline(timedelta(seconds=10)), fail())


def test_no_timer_is_left_without_a_scope() -> None:
    async def wait_for_ever() -> None:
        await within(Deadline(timedelta(seconds=16)), sleeping(0.1))
        await asyncio.Event().wait()

    with pytest.raises(virtual_time.Hung, match=r"no timer is left.* at 0\.100 s"):
        virtual_time.run(wait_for_ever())
