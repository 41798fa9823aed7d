"""The file of variables: reversible, sorted, and read by older guests as before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.agent.guest import guests
from tests.unit.agent.guest.env_file import parse_env_file, unescape

# Mostly of the characters that matter.
VALUES = st.text(st.sampled_from("\\nr\n\rx=#") | st.characters(codec="utf-8"), max_size=12)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


def read_by_an_old_guest(value: str) -> str:
    return value.replace("\\n", "\n").replace("\\r", "\r")


@given(st.dictionaries(NAMES, VALUES))
def test_file_round_trips(values: dict[str, str]) -> None:
    assert parse_env_file(guests.render_env_file(values)) == values


@given(VALUES)
def test_value_round_trips(value: str) -> None:
    assert unescape(guests.escape(value)) == value


@given(VALUES)
def test_value_stays_on_one_line(value: str) -> None:
    assert not {"\n", "\r"} & set(guests.escape(value))


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("plain", "plain"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("C:\\Users", "C:\\Users"),
        ("a\\\\b", "a\\\\b"),
        ("ends with \\", "ends with \\"),
        ("C:\\new", "C:\\\\new"),
        ("\\\n", "\\\\\\n"),
        ("a=b #c", "a=b #c"),
        ("", ""),
    ],
)
def test_format(value: str, line: str) -> None:
    assert guests.escape(value) == line


@given(VALUES.filter(lambda value: "\\" not in value))
def test_older_guests_read_the_same(value: str) -> None:
    assert read_by_an_old_guest(guests.escape(value)) == value


@pytest.mark.parametrize("value", ["C:\\Users\\me", "\\d+\\.\\w", "a\\\\b", "\\"])
def test_older_guests_read_lone_backslashes_unchanged(value: str) -> None:
    assert read_by_an_old_guest(guests.escape(value)) == value


def test_same_variables_give_the_same_file() -> None:
    assert guests.render_env_file({"B": "2", "A": "1"}) == guests.render_env_file(
        {"A": "1", "B": "2"}
    )
    assert guests.render_env_file({"B": "2", "A": "1"}) == "A=1\nB=2\n"


def test_comments_and_blank_lines_are_ignored() -> None:
    assert parse_env_file("# of the host\n\nA=1\n") == {"A": "1"}
