from __future__ import annotations

import pytest

from bramley.dispatch.store.logs import MAX_LOG_BYTES, last_lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("one\n\ttwo\n", "one\n\ttwo\n"),
        ("one\r\ntwo\rthree", "one\ntwo\ufffdthree"),
        ("\x1b[31mred", "\ufffd[31mred"),
        ("\u202eright to left", "\ufffdright to left"),
    ],
)
def test_control_characters_are_replaced(text: str, expected: str) -> None:
    assert last_lines(text) == expected


@pytest.mark.parametrize("character", ["a", "é", "€", "\U0001f600", "\x00"])
def test_the_end_of_a_long_log_is_kept_within_the_limit(character: str) -> None:
    kept = last_lines(character * 2 * MAX_LOG_BYTES + "the end")

    assert kept.endswith("the end")
    assert MAX_LOG_BYTES - 4 < len(kept.encode()) <= MAX_LOG_BYTES
