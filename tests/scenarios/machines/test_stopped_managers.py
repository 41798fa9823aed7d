"""A manager that is killed or paused at any of its calls: the next one continues, and no host is shared, lost or left unwiped."""

from __future__ import annotations

import functools

import pytest

from tests.scenarios.machines.lives import Stop, cancelled_claim, live

SAMPLE = 53
SHARDS = 8
SEEDS = 2


@functools.cache
def calls(seed: int) -> int:
    return len(live(None, seed=seed).calls)


@pytest.mark.parametrize("is_pause", [False, True], ids=["killed", "paused"])
def test_stop_at_a_sample_of_calls(is_pause: bool) -> None:
    for at in range(1 + 26 * is_pause, calls(0) + 1, SAMPLE):
        gate = live(Stop(at, is_pause))
        assert len(gate.calls) >= at


def test_late_request_of_a_cancelled_claim_loses_no_host() -> None:
    """A rename that is processed a minute after its manager was killed, when its machine is deleted already."""
    calls = cancelled_claim(None, late=0).calls
    renames = [number for number, call in enumerate(calls, 1) if call.startswith("before rename")]

    assert len(renames) == 2
    for stop_at in renames:
        cancelled_claim(stop_at, late=60)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("is_pause", [False, True], ids=["killed", "paused"])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_stop_at_every_call(shard: int, is_pause: bool, seed: int) -> None:
    for at in range(1 + shard, calls(seed) + 1, SHARDS):
        live(Stop(at, is_pause), seed=seed)
