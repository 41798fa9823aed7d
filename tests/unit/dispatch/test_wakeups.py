from __future__ import annotations

import asyncio

from bramley.dispatch.wakeups import Wakeups


async def test_one_job_wakes_the_longest_waiting_poll_only() -> None:
    wakeups = Wakeups()

    with wakeups.waiting("macos") as first, wakeups.waiting("macos") as second:
        wakeups.wake("other")
        wakeups.wake("macos")
        await asyncio.wait_for(first.wait(), 1)

        assert not second.is_woken


async def test_an_unused_wakeup_goes_to_the_next_poll() -> None:
    wakeups = Wakeups()

    with wakeups.waiting("macos") as second:
        with wakeups.waiting("macos"):
            wakeups.wake("macos")
            wakeups.wake("macos")
            second.reset()

        assert second.is_woken


async def test_a_used_wakeup_does_not_go_on() -> None:
    wakeups = Wakeups()

    with wakeups.waiting("macos") as first:
        with wakeups.waiting("macos") as second:
            second.wake()
            second.reset()

        assert not first.is_woken


async def test_all_polls_are_woken_after_a_gap() -> None:
    wakeups = Wakeups()

    with wakeups.waiting("a") as first, wakeups.waiting("b") as second:
        wakeups.wake_all()

        assert first.is_woken
        assert second.is_woken


async def test_a_job_is_not_kept_for_a_poll_that_hands_out_another_one() -> None:
    wakeups = Wakeups()

    with wakeups.waiting("macos") as busy, wakeups.waiting("macos") as idle:
        waiting = asyncio.create_task(idle.wait())
        await asyncio.sleep(0)
        busy.reset()
        wakeups.wake("macos")

        assert (busy.is_woken, idle.is_woken) == (False, True)
        await waiting
        idle.reset()
        # Nobody waits: the next poll that is done looks again.
        wakeups.wake("macos")
        assert busy.is_woken
