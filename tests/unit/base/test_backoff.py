from __future__ import annotations

import random
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from bramley.base.backoff import Backoff

failures = st.integers(min_value=-3, max_value=100_000)
seeds = st.integers()


@given(failures, seeds)
def test_a_delay_is_never_above_the_maximum_nor_below_the_jittered_first(
    count: int, seed: int
) -> None:
    backoff = Backoff()

    delay = backoff.delay(count, random.Random(seed))

    assert backoff.initial * (1 - backoff.jitter) <= delay <= backoff.maximum


@given(st.integers(min_value=1, max_value=200))
def test_without_jitter_delays_grow_until_the_maximum_and_stay_there(count: int) -> None:
    backoff = Backoff(jitter=0)

    delay, following = (backoff.delay(number, random.Random(0)) for number in (count, count + 1))

    assert following == min(delay * 2, backoff.maximum)


def test_the_first_failure_waits_for_the_initial_delay() -> None:
    backoff = Backoff(initial=timedelta(seconds=1), jitter=0)

    assert backoff.delay(1, random.Random(0)) == timedelta(seconds=1)


@given(seeds)
def test_jitter_separates_two_clients_that_failed_together(seed: int) -> None:
    rng = random.Random(seed)

    delays = {Backoff().delay(5, rng) for _ in range(20)}

    assert len(delays) > 10
