from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base.errors import BadConfiguration
from bramley.dispatch.fair_share import TURNS_PER_POD, Candidate, Policy, order, rank

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_candidate(account: str, active: int = 0, **changes: int) -> Candidate:
    values = {"active_everywhere": active, "rank": 0, "turns_waited": 0, "served_turn": 0}
    return Candidate(account=account, active=active, **(values | changes))


@pytest.mark.parametrize("active", [0, 1, 50])
def test_a_second_account_is_next_whatever_the_first_has(active: int) -> None:
    flood = a_candidate("flood", active, served_turn=99, rank=0)
    single = a_candidate("single", 0, served_turn=-1, rank=10**9)

    assert order([flood, single], Policy())[0] == "single"


def test_weights_divide_the_pods() -> None:
    policy = Policy(weights={"large": 3})
    active: Counter[str] = Counter()
    for turn in range(40):
        candidates = [
            a_candidate(name, active[name], served_turn=turn) for name in ("large", "small")
        ]
        active[order(candidates, policy)[0]] += 1

    assert active == {"large": 30, "small": 10}


def test_an_account_at_its_limit_is_left_out() -> None:
    policy = Policy(limits={"acme": 2, "none": 0})

    assert order([a_candidate("acme", 1)], policy) == ["acme"]
    assert order([a_candidate("acme", 0, active_everywhere=2), a_candidate("none")], policy) == []


@given(st.integers(0, 20))
def test_an_account_that_waits_is_served_after_a_bounded_number_of_claims(active: int) -> None:
    """A stream of new accounts, each with one job, starves nobody."""
    waited = (active + 1) * TURNS_PER_POD
    old = a_candidate("old", active, turns_waited=waited)

    assert order([old, a_candidate("new", served_turn=-1)], Policy())[0] == "old"


def test_a_low_priority_is_overtaken_for_a_bounded_time_only() -> None:
    low = rank(NOW, 0)

    assert rank(NOW + timedelta(minutes=9), 1) < low
    assert rank(NOW + timedelta(minutes=11), 1) > low


def test_a_job_has_the_highest_priority_of_its_labels() -> None:
    policy = Policy(priorities={"release": 5, "nightly": -3})

    assert policy.priority(["Release", "nightly"]) == 5
    assert policy.priority(["nightly"]) == -3
    assert policy.priority(["other"]) == 0


@pytest.mark.parametrize(
    "values",
    [{"weights": {"acme": 0}}, {"limits": {"acme": -1}}, {"priorities": {"label": 101}}],
)
def test_an_invalid_policy_is_refused_by_name(values: dict[str, dict[str, int]]) -> None:
    with pytest.raises(BadConfiguration, match=r"acme|label"):
        Policy(**values)
