"""The arithmetic of bandwidth limits, at every bandwidth."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.agent.images.pull_monitor import Pacer, Progress

TICK = 0.25


def loaded_after(seconds: float, *, limit: float, bandwidth: float, size: int) -> list[int]:
    """Return the bytes that a pull at constant speed has loaded at each tick, as seen in whole percents."""
    pace, now, loaded, running = Pacer(0.0), 0.0, 0.0, True
    loaded_by_tick: list[int] = []
    step = size // 100
    while now < seconds and loaded < size:
        now += TICK
        loaded += bandwidth * TICK if running else 0.0
        pace.elapsed(TICK, running=running)
        running = pace.is_within_limit(now, limit, loaded=int(loaded // step) * step, step=step)
        loaded_by_tick.append(int(loaded))
    return loaded_by_tick


@given(
    limit=st.floats(1e6, 200e6),
    bandwidth=st.floats(1e6, 1250e6),
    size=st.integers(10**9, 100 * 10**9),
)
def test_pull_never_exceeds_the_limit(limit: float, bandwidth: float, size: int) -> None:
    loaded_by_tick = loaded_after(600, limit=limit, bandwidth=bandwidth, size=size)

    # Ahead by what is allowed in a second, what came in a tick, and at most a percent that is not printed yet.
    ahead = limit + bandwidth * TICK + size / 100
    assert all(
        loaded <= limit * TICK * (tick + 1) + ahead for tick, loaded in enumerate(loaded_by_tick)
    )


@given(limit=st.floats(1e6, 200e6), bandwidth=st.floats(1e6, 1250e6))
def test_limit_is_used_as_far_as_the_bandwidth_allows(limit: float, bandwidth: float) -> None:
    size = 50 * 10**9
    loaded_by_tick = loaded_after(900, limit=limit, bandwidth=bandwidth, size=size)

    possible = min(min(limit, bandwidth) * TICK * len(loaded_by_tick), size)
    assert loaded_by_tick[-1] >= 0.8 * possible - size / 100 - bandwidth * TICK


def test_pauses_stay_short_at_high_bandwidth() -> None:
    """A registry closes connections that stay silent for a minute."""
    loaded_by_tick = loaded_after(3600, limit=5e6, bandwidth=125e6, size=60 * 10**9)
    moves = [
        tick
        for tick in range(1, len(loaded_by_tick))
        if loaded_by_tick[tick] != loaded_by_tick[tick - 1]
    ]

    gaps = [(after - before) * TICK for before, after in itertools.pairwise(moves)]
    assert max(gaps[20:]) < 30


def test_bytes_that_were_not_downloaded_do_not_count() -> None:
    pace = Pacer(0.0, credit=50 * 10**9)
    pace.elapsed(TICK, running=True)

    assert pace.is_within_limit(TICK, 5e6, loaded=50 * 10**9, step=10**8)


def test_without_credit_every_byte_counts() -> None:
    pace = Pacer(0.0)
    pace.elapsed(TICK, running=True)

    assert not pace.is_within_limit(TICK, 5e6, loaded=50 * 10**9, step=10**8)


def test_bytes_before_the_limit_began_do_not_count() -> None:
    pace = Pacer(100.0, loaded=12 * 10**9)
    pace.elapsed(TICK, running=True)

    assert pace.is_within_limit(100.0 + TICK, 5e6, loaded=12 * 10**9, step=10**6)


def test_cached_bytes_are_parsed() -> None:
    progress = Progress()
    for line in (
        "found an image x that will allow us to skip 7.5 GB",
        "pulling disk (10.0 GB compressed)...",
    ):
        progress.feed_line(line)
    assert progress.skipped == 7_500_000_000

    progress.feed_line("80%")
    progress.reset()
    assert (progress.skipped, progress.loaded) == (8 * 10**9, 0)


def test_progress_is_parsed_from_tarts_output() -> None:
    progress = Progress()
    for line in ("pulling manifest...", "pulling disk (27.5 GB compressed)...", "0%", "41%"):
        progress.feed_line(line)

    assert (progress.percent, progress.size, progress.lines) == (41, 27_500_000_000, 4)
    assert progress.loaded == 41 * progress.step


def test_waiting_line_of_tart_is_recognised() -> None:
    progress = Progress()
    progress.feed_line("waiting for lock...")
    assert progress.is_queued
    progress.feed_line("pulling disk (1.0 GB compressed)...")
    assert not progress.is_queued


@pytest.mark.parametrize("number", ["9" * 400, ".", "1.2.3", "", "1e309", "nan", "-1"])
def test_size_that_is_no_number_is_unknown(number: str) -> None:
    progress = Progress()
    progress.feed_line(f"pulling disk ({number} GB compressed)...")

    assert progress.size == 0
