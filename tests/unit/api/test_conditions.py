from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from bramley.api import conditions
from bramley.api.mac_status import MachineCondition
from bramley.api.meta import Condition, ConditionStatus

THEN = datetime(2026, 6, 19, 12, 0, 0, tzinfo=UTC)
NOW = THEN + timedelta(hours=1)


def ready(status: ConditionStatus, reason: str = "", message: str = "") -> Condition:
    return Condition(type="Ready", status=status, reason=reason, message=message)


def test_new_condition_is_last_with_the_current_time() -> None:
    before = [Condition(type="Other", status="True", last_transition_time=THEN)]

    after = conditions.put(before, ready("False", "Broken"), now=NOW)

    assert [one.type for one in after] == ["Other", "Ready"]
    assert after[1].last_transition_time == NOW
    assert len(before) == 1


def test_same_status_keeps_its_transition_time_and_updates_the_message() -> None:
    before = conditions.put([], ready("False", "Broken", "a"), now=THEN)

    after = conditions.put(before, ready("False", "Worse", "b"), now=NOW)

    assert after == [
        Condition(
            type="Ready", status="False", reason="Worse", message="b", last_transition_time=THEN
        )
    ]


@pytest.mark.parametrize("status", ["True", "Unknown"])
def test_changed_status_gets_a_new_transition_time(status: ConditionStatus) -> None:
    before = conditions.put([], ready("False"), now=THEN)

    after = conditions.put(before, ready(status), now=NOW)

    assert (after[0].status, after[0].last_transition_time) == (status, NOW)


def test_condition_without_a_time_gets_one() -> None:
    after = conditions.put([ready("True")], ready("True"), now=NOW)

    assert after[0].last_transition_time == NOW


def test_times_are_whole_seconds_as_in_kubernetes() -> None:
    after = conditions.put([], ready("True"), now=NOW + timedelta(microseconds=5))

    assert after[0].last_transition_time == NOW


def test_condition_keeps_its_place_among_the_others() -> None:
    a, b = (Condition(type=name, status="True", last_transition_time=THEN) for name in "ab")

    after = conditions.put([a, ready("True"), b], ready("False"), now=NOW)

    assert [one.type for one in after] == ["a", "Ready", "b"]


def test_severity_of_a_machine_is_kept() -> None:
    lost = MachineCondition(type="Bootstrapped", status="False", severity="Error")

    after = conditions.put([], lost, now=NOW)

    assert after == [msgspec.structs.replace(lost, last_transition_time=NOW)]


def test_only_a_true_condition_is_true() -> None:
    def holds(status: ConditionStatus) -> bool:
        return conditions.is_true([ready(status)], "Ready")

    assert [holds("True"), holds("False"), holds("Unknown")] == [True, False, False]
    assert not conditions.is_true([], "Ready")


def test_find_and_without_select_by_type() -> None:
    other = Condition(type="Other", status="True")

    assert conditions.find([other, ready("True")], "Ready") == ready("True")
    assert conditions.find([other], "Ready") is None
    assert conditions.without([other, ready("True")], "Ready") == [other]
