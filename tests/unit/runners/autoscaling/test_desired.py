from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.api.names import events
from bramley.runners.autoscaling import desired
from bramley.runners.dispatch_client import ScalingSignals

counts = st.integers(0, 50)
demand = st.builds(
    ScalingSignals,
    claimed=counts,
    queued=counts,
    p95_concurrent_last_hour=counts,
    occupied=counts,
    withheld=counts,
)


def signals(
    *, claimed: int = 0, queued: int = 0, p95: int = 0, occupied: int = 0, withheld: int = 0
) -> ScalingSignals:
    return ScalingSignals(
        claimed=claimed,
        queued=queued,
        p95_concurrent_last_hour=p95,
        occupied=occupied,
        withheld=withheld,
    )


@pytest.mark.parametrize(
    ("given_signals", "floor", "maximum", "expected"),
    [
        (signals(p95=5), 1, 20, 6),
        (signals(p95=1), 3, 20, 4),
        (signals(claimed=8, queued=3, p95=5), 1, 20, 12),
        (signals(withheld=40), 0, 20, 1),
        (signals(withheld=40), 2, 20, 3),
        (signals(claimed=2, occupied=5), 0, 20, 5),
        (signals(claimed=5, occupied=0), 0, 20, 5),
        (signals(claimed=5, queued=2, occupied=7), 1, 20, 10),
        (signals(), 0, 20, 0),
        (signals(), 4, 20, 4),
        (signals(claimed=50), 5, 9, 9),
        (signals(claimed=50), 5, 0, 0),
    ],
)
def test_desired_replicas(
    given_signals: ScalingSignals, floor: int, maximum: int, expected: int
) -> None:
    assert desired.desired_replicas(given_signals, floor=floor, maximum=maximum) == expected


@pytest.mark.parametrize(
    ("given_signals", "floor", "expected"),
    [
        (signals(claimed=30), 0, events.AT_MAXIMUM),
        (signals(claimed=3, queued=1, p95=5), 1, events.PERCENTILE),
        (signals(claimed=3, queued=2, p95=5), 1, events.QUEUED_JOBS),
        (signals(withheld=9), 1, events.QUEUED_JOBS),
        (signals(claimed=3), 1, events.OCCUPIED_RUNNERS),
        (signals(), 1, events.WARM_FLOOR),
        (signals(), 0, events.NO_DEMAND),
    ],
)
def test_reason_names_what_determines_the_number(
    given_signals: ScalingSignals, floor: int, expected: str
) -> None:
    assert desired.reason(given_signals, floor=floor, maximum=20) == expected


@given(demand, st.integers(0, 20), st.integers(0, 100))
def test_desired_replicas_are_within_the_limits(
    given_signals: ScalingSignals, floor: int, maximum: int
) -> None:
    found = desired.desired_replicas(given_signals, floor=floor, maximum=maximum)

    assert min(desired.load(given_signals), maximum) <= found <= maximum


@given(
    demand,
    st.integers(0, 20),
    st.integers(0, 100),
    st.sampled_from(ScalingSignals.__struct_fields__),
)
def test_more_demand_never_means_fewer_runners(
    given_signals: ScalingSignals, floor: int, maximum: int, changed: str
) -> None:
    values = {name: getattr(given_signals, name) for name in ScalingSignals.__struct_fields__}
    more = ScalingSignals(**{**values, changed: values[changed] + 1})

    before = desired.desired_replicas(given_signals, floor=floor, maximum=maximum)
    assert desired.desired_replicas(more, floor=floor, maximum=maximum) >= before
