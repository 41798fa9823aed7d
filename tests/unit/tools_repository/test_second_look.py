"""Which failures of a run in lanes are looked at again."""

from __future__ import annotations

import pytest

from tools.second_look import all_passed, may_look_again

REAL = tuple(f"tests/process/test_{number}.py::test_x" for number in range(4))
COMPUTING = "tests/unit/test_x.py::test_x"


@pytest.mark.parametrize(
    ("tests", "may"),
    [
        ((), False),
        (REAL[:1], True),
        (REAL[:3], True),
        (REAL, False),
        ((COMPUTING,), False),
        ((REAL[0], COMPUTING), False),
        (("tests/contract/tart/test_x.py::test_x", "tests/cluster/test_x.py::test_x"), True),
    ],
)
def test_few_tests_of_real_processes_are_looked_at_again_and_no_others(
    tests: tuple[str, ...], may: bool
) -> None:
    assert may_look_again(set(tests)) is may


@pytest.mark.parametrize(
    ("told", "passed"),
    [
        ("..\n2 passed in 3.20s", True),
        ("..\n======= 2 passed in 61.20s (0:01:01) =======", True),
        (".s\n1 passed, 1 skipped in 3.20s", False),
        (".\n1 passed in 3.20s", False),
        (".F\n1 failed, 2 passed in 3.20s", False),
        ("2 passed in 3.20s\nError: no end", False),
        ("", False),
    ],
)
def test_only_a_line_that_counts_all_as_passed_turns_the_verdict(told: str, passed: bool) -> None:
    assert all_passed(told, 2) is passed
