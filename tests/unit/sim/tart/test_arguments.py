"""Words of a command line, read as tart's parser reads them."""

from __future__ import annotations

import pytest

from bramley.sim.tart.arguments import Syntax, parse
from bramley.sim.tart.failures import WrongUsage

SYNTAX = Syntax(("name",), ("dir", "wait"), ("quiet",), (("q", "quiet"), ("w", "wait")))
EXEC = Syntax(("name", "command"), flags=("interactive",), takes_rest=True)


def test_options_stand_anywhere_and_in_both_forms() -> None:
    found = parse(["--dir", "a", "one", "--dir=b=c", "-q", "-w", "3"], SYNTAX)

    assert (found["name"], found.every("dir"), found.find("dir")) == ("one", ["a", "b=c"], "b=c")
    assert (found.has("quiet"), found.whole("wait", 0)) == (True, 3)


def test_words_of_the_guest_are_left_alone() -> None:
    found = parse(["--interactive", "one", "ls", "--interactive", "-x"], EXEC)

    assert found.positionals == ["one", "ls", "--interactive", "-x"]


def test_what_follows_two_dashes_is_no_option() -> None:
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
def test_what_cannot_be_meant_is_refused(words: list[str]) -> None:
    with pytest.raises(WrongUsage):
        parse(words, SYNTAX)


def test_a_number_below_zero_is_refused() -> None:
    with pytest.raises(WrongUsage):
        parse(["one", "--wait=-1"], SYNTAX).whole("wait", 0)
