"""Arguments, as parsed by tart."""

from __future__ import annotations

import pytest

from bramley.sim.tart.arguments import Syntax, parse
from bramley.sim.tart.failures import WrongUsage

SYNTAX = Syntax(("name",), ("dir", "wait"), ("quiet",), (("q", "quiet"), ("w", "wait")))
EXEC = Syntax(("name", "command"), flags=("interactive",), takes_rest=True)


def test_options_may_be_anywhere_and_in_both_forms() -> None:
    found = parse(["--dir", "a", "one", "--dir=b=c", "-q", "-w", "3"], SYNTAX)

    assert (found["name"], found.all_values("dir"), found.find("dir")) == (
        "one",
        ["a", "b=c"],
        "b=c",
    )
    assert (found.has("quiet"), found.non_negative("wait", 0)) == (True, 3)


def test_arguments_of_the_guest_command_are_not_parsed() -> None:
    found = parse(["--interactive", "one", "ls", "--interactive", "-x"], EXEC)

    assert found.positionals == ["one", "ls", "--interactive", "-x"]


def test_arguments_after_two_dashes_are_not_options() -> None:
    assert parse(["--", "--dir"], SYNTAX)["name"] == "--dir"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["one", "two"],
        ["one", "--nothing"],
        ["one", "--dir"],
        ["one", "--dir", "--quiet"],
        ["one", "-z"],
        ["one", "--quiet=yes"],
    ],
)
def test_invalid_arguments_are_refused(words: list[str]) -> None:
    with pytest.raises(WrongUsage):
        parse(words, SYNTAX)


def test_number_below_zero_is_refused() -> None:
    with pytest.raises(WrongUsage):
        parse(["one", "--wait=-1"], SYNTAX).non_negative("wait", 0)
