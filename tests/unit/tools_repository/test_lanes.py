"""Which process of a run a test goes to."""

from __future__ import annotations

import pytest

from tools import lanes


@pytest.mark.parametrize(
    ("test", "lane"),
    [
        ("tests/cluster/agent/test_one_life.py::test_x[real]", lanes.CLUSTER),
        ("tests/contract/tart/test_answers.py::test_x[virtual time]", lanes.CLUSTER),
        ("tests/process/agent_life/test_killed_anywhere.py::test_x", lanes.CLUSTER),
        ("tests/process/test_verdicts.py::test_x", lanes.PROCESSES),
        ("tests/process/macs/test_up.py::test_x[tests/contract/a]", lanes.PROCESSES),
        ("tests/unit/base/test_log.py::test_x[a::b]", "tests/unit/base/test_log.py"),
    ],
)
def test_a_test_keeps_to_its_lane(test: str, lane: str) -> None:
    assert lanes.lane_of(test) == lane


def test_what_takes_long_comes_first() -> None:
    tests = ["tests/unit/a.py::b", "tests/scenarios/a.py::b", "tests/process/a.py::b"]

    assert sorted(tests, key=lanes.rank) == [tests[2], tests[1], tests[0]]


def test_modules_that_only_compute_go_to_any_process() -> None:
    tests = ["tests/unit/a.py::b", "tests/scenarios/a.py::b", "tests/process/a.py::b"]

    assert [lanes.is_free(test) for test in tests] == [True, True, False]


def test_what_a_process_is_done_with_is_not_counted_again() -> None:
    scheduler = object.__new__(lanes.Lanes)
    work = {"a.py": {"1": True, "2": True}, "b.py": {"3": True, "4": False, "5": False}}

    assert scheduler._pending_of(work) == 2
    assert list(work) == ["b.py"]
