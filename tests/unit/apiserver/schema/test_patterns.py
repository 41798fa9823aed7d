from __future__ import annotations

import pytest

from bramley.apiserver.schema.patterns import BadPattern, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^a$", "a", True),
        ("^a$", "a\n", False),
        (r"^a\z", "a\n", False),
        (r"^\$$", "$", True),
        ("[$]", "$", True),
        ("[[:alpha:]]+$", "abc", True),
        ("^[[:digit:]a]+$", "1a2", True),
        ("^[[:digit:]]+$", "12x", False),
        ("[a[]", "[", True),
        ("[]a]", "]", True),
        (r"^\d+$", "١٢", False),
        (r"^\w$", "é", False),
        ("(?i)^ABC$", "abc", True),
        ("(?m)^b$", "a\nb\nc", True),
        ("(?P<year>[0-9]{4})", "2026", True),
        ("b", "abc", True),
    ],
)
def test_patterns_match_as_in_go(pattern: str, text: str, matches: bool) -> None:
    assert matches == bool(compile_pattern(pattern).search(text))


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "a)",
        "[a",
        "(?=x)",
        "(?!x)",
        "(?<=x)a",
        r"(a)\1",
        "(?P=x)",
        "a*+",
        "*a",
        r"\Z",
        "[[:nope:]]",
    ],
)
def test_patterns_invalid_in_go_are_refused(pattern: str) -> None:
    with pytest.raises(BadPattern, match="error parsing regexp"):
        compile_pattern(pattern)
