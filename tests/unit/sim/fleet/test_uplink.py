from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.sim.fleet.uplink import Uplink, fair_rates

LIMITS = st.lists(st.one_of(st.just(math.inf), st.floats(0, 1000)), max_size=8)


@pytest.mark.parametrize(
    ("limits", "rates"),
    [
        ([], []),
        ([math.inf], [100]),
        ([math.inf, math.inf], [50, 50]),
        ([20, math.inf, math.inf], [20, 40, 40]),
        ([math.inf, 10, 30], [60, 10, 30]),
        ([0, math.inf], [0, 100]),
    ],
)
def test_bandwidth_is_divided_fairly(limits: list[float], rates: list[float]) -> None:
    assert fair_rates(limits, 100) == rates


@given(LIMITS)
def test_shares_respect_limits_and_use_all_bandwidth(limits: list[float]) -> None:
    rates = fair_rates(limits, 100)

    assert all(rate <= limit for rate, limit in zip(rates, limits, strict=True))
    assert math.isclose(sum(rates), min(100, sum(limits)), abs_tol=1e-6)


async def test_late_transfer_slows_the_earlier_one() -> None:
    uplink, loop, ends = Uplink(100), asyncio.get_running_loop(), dict[str, float]()
    uplink.start(1000, lambda: ends.update(first=loop.time()))

    await asyncio.sleep(5)
    second = uplink.start(1000, lambda: ends.update(second=loop.time()))
    await asyncio.sleep(5)

    assert uplink.percent(second) == 25
    await asyncio.sleep(60)
    assert {name: round(at, 3) for name, at in ends.items()} == {"first": 15, "second": 20}


async def test_stalled_transfer_leaves_its_share_to_others() -> None:
    uplink, loop, ends = Uplink(100), asyncio.get_running_loop(), dict[str, float]()
    stalled = uplink.start(1000, lambda: ends.update(stalled=loop.time()))
    uplink.start(1000, lambda: ends.update(other=loop.time()))

    uplink.stall(stalled)
    await asyncio.sleep(100)
    uplink.stall(stalled, is_stalled=False)
    await asyncio.sleep(100)

    assert {name: round(at, 3) for name, at in ends.items()} == {"other": 10, "stalled": 110}


async def test_cancelled_transfer_never_ends() -> None:
    uplink, ended = Uplink(100), list[str]()
    cancelled = uplink.start(1000, lambda: ended.append("cancelled"))
    uplink.start(1000, lambda: ended.append("other"))

    uplink.cancel(cancelled)
    await asyncio.sleep(10.001)

    assert ended == ["other"]
