"""Which host of a fleet is updated next, and when failed updates are tried again, as tables."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.api.names import events
from bramley.machines import drift
from bramley.machines.drift import RETRY, Member, Settings
from tests.unit.machines.macs import NEW, NOW, OLD, a_status, minutes, seconds

SETTINGS = Settings()
CANARY, SLOT, FAILED = events.WAITING_FOR_CANARY, events.WAITING_FOR_SLOT, events.CANARY_FAILED


def old(name: str, **fields: Any) -> Member:
    return Member(name=name, is_outdated=True, **fields)


def new(name: str, **fields: Any) -> Member:
    return Member(name=name, **fields)


def refused(*members: Member, settings: Settings = SETTINGS) -> dict[str, str]:
    """Return for each host why it must wait; "" if it may be updated."""
    found = {each.name: drift.refusal(each.name, members, settings) for each in members}
    return {name: refusal.reason if refusal else "" for name, refusal in found.items()}


@pytest.mark.parametrize(
    ("members", "first"),
    [
        ([old("a")], "a"),
        ([old("b"), old("a")], "a"),
        ([old("a", is_busy=True), old("b")], "b"),
        ([old("a", is_busy=True), old("b", is_busy=True)], "a"),
        ([old("a", is_available=False), old("b", is_available=False)], "a"),
        ([old("a", is_available=False, is_busy=True), old("b", is_available=False)], "b"),
        ([old("a"), old("b", is_available=False)], "b"),
    ],
)
def test_first_host_is_one_that_works_and_is_idle(members: list[Member], first: str) -> None:
    expected = {each.name: "" if each.name == first else CANARY for each in members}

    assert refused(*members) == expected


def test_available_host_is_first_although_it_is_busy() -> None:
    many = [old(f"h{number:02}", is_busy=True) for number in range(19)]

    decisions = refused(old("a", is_available=False), *many)

    assert [name for name, reason in decisions.items() if not reason] == ["h00"]


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (old("a", is_updating=True), CANARY),
        (old("a", is_updating=True, is_available=False), CANARY),
        # Updated, and its Node is not Ready yet.
        (new("a", is_available=False), CANARY),
        (old("a", is_terminal=True), FAILED),
        (old("a", is_terminal=True, is_available=False), FAILED),
        (new("a"), ""),
    ],
)
def test_other_hosts_wait_for_the_first_one(first: Member, reason: str) -> None:
    decisions = refused(first, old("b"))

    assert decisions["b"] == reason


def test_first_host_that_has_failed_may_try_again() -> None:
    assert refused(old("a", is_terminal=True), old("b")) == {"a": "", "b": FAILED}


def test_first_host_that_is_lost_is_not_followed_by_another() -> None:
    """It failed once and its Node is not Ready any more: the next one would be lost in the same way."""
    assert refused(old("a", is_available=False), old("b")) == {"a": "", "b": CANARY}


@pytest.mark.parametrize(
    ("hosts", "percent", "expected"),
    [(1, 10, 1), (9, 10, 1), (10, 10, 1), (20, 10, 2), (29, 10, 2), (4, 100, 4), (50, 0, 1)],
)
def test_limit_of_a_fleet(hosts: int, percent: int, expected: int) -> None:
    assert Settings(max_unavailable_percent=percent).max_unavailable(hosts) == expected


def test_as_many_hosts_are_unavailable_as_allowed_whatever_the_cause() -> None:
    rest = [new(f"n{number}") for number in range(18)]
    one, two = old("a"), old("b")

    assert refused(one, two, *rest)["a"] == ""
    assert refused(one, old("b", is_updating=True), *rest)["a"] == ""
    lost = new("n", is_available=False)
    assert refused(one, old("b", is_updating=True), *rest[1:], lost)["a"] == SLOT
    assert refused(one, two, *rest[2:], lost, new("m", is_available=False))["a"] == SLOT


def test_host_that_is_unavailable_anyway_is_updated_among_as_many_as_allowed() -> None:
    lost = [new("n1", is_available=False), new("n2", is_available=False), new("n3")]

    assert refused(old("a", is_available=False), *lost)["a"] == ""
    updating = [new("n1", is_updating=True), new("n3")]
    assert refused(old("a", is_available=False), *updating)["a"] == SLOT


def test_hosts_that_need_maintenance_do_not_wait_for_each_other() -> None:
    """They have the configuration, and people have cordoned all of them, or none is Ready."""
    both = [new("a", is_available=False), new("b", is_available=False)]

    assert refused(*both) == {"a": "", "b": ""}
    assert refused(new("a", is_available=False, is_updating=True), both[1])["b"] == SLOT


def test_messages_name_the_host_that_is_waited_for() -> None:
    def message(*others: Member) -> str:
        found = drift.refusal("z", [old("z"), *others], SETTINGS)
        return found.message if found else ""

    assert message(old("a")) == "a is updated first"
    assert message(old("a", is_updating=True)) == "a is updated first"
    assert message(old("a", is_terminal=True)).startswith("the update of a has failed")
    assert message(new("a", is_available=False)) == "a was updated and its Node is not Ready"
    busy = message(new("a"), old("b", is_updating=True))
    assert busy == "1 of 3 hosts of the fleet are unavailable or being updated; 1 may be"


MEMBERS = st.lists(
    st.builds(
        Member,
        name=st.integers(0, 99).map(str),
        is_outdated=st.booleans(),
        is_available=st.booleans(),
        is_updating=st.booleans(),
        is_terminal=st.booleans(),
        is_busy=st.booleans(),
    ),
    min_size=1,
    max_size=30,
    unique_by=lambda each: each.name,
)


@given(MEMBERS, st.sampled_from([0, 10, 25, 100]))
def test_no_host_that_works_is_taken_beyond_the_limit(members: list[Member], percent: int) -> None:
    settings = Settings(max_unavailable_percent=percent)
    limit = settings.max_unavailable(len(members))
    for own in members:
        if own.is_updating or drift.refusal(own.name, members, settings) is not None:
            continue
        others = [each for each in members if each is not own]
        assert sum(each.is_updating for each in others) < limit
        if own.is_available:
            assert sum(each.is_updating or not each.is_available for each in others) < limit
        if own.is_outdated and not any(
            each.is_available and not each.is_outdated and not each.is_updating for each in members
        ):
            assert not any(each.is_updating or each.is_terminal for each in others)


@given(MEMBERS)
def test_fleet_at_rest_has_one_first_host_at_most(members: list[Member]) -> None:
    outdated = [Member(name=each.name, is_outdated=True, is_busy=each.is_busy) for each in members]

    assert list(refused(*outdated).values()).count("") == 1


@pytest.mark.parametrize(
    ("failed", "since", "retry_after", "expected"),
    [
        ("", None, minutes(30), False),
        (OLD, NOW, minutes(30), False),
        (NEW, NOW, minutes(30), True),
        (NEW, NOW - minutes(30) + seconds(1), minutes(30), True),
        (NEW, NOW - minutes(30), minutes(30), False),
        (NEW, NOW - minutes(999), timedelta(), True),
        (NEW, None, minutes(30), False),
        (NEW, None, timedelta(), False),
    ],
)
def test_when_the_attempts_are_used_up(
    failed: str, since: datetime | None, retry_after: timedelta, expected: bool
) -> None:
    status = a_status(failed_host_config_hash=failed, last_update_failure_time=since)
    settings = Settings(terminal_retry_after=retry_after)

    assert drift.is_terminal(status, NEW, NOW, settings) is expected


@pytest.mark.parametrize(
    ("limit", "attempts", "expected"),
    [(5, 4, False), (5, 5, True), (5, 6, True), (0, 99, False), (1, 1, True), (5, 0, False)],
)
def test_budget_of_attempts(limit: int, attempts: int, expected: bool) -> None:
    assert drift.is_exhausted(attempts, Settings(max_attempts=limit)) is expected


def test_time_before_the_next_update() -> None:
    status = a_status(tart_kubelet_update_attempts=1, last_update_failure_time=NOW)

    assert drift.wait_left(status, NOW + seconds(10)) == RETRY - seconds(10)
    assert drift.wait_left(status, NOW + RETRY) == timedelta()
    assert drift.wait_left(a_status(last_update_failure_time=NOW), NOW) == timedelta()
