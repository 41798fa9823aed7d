r"""Regular expressions in Go's dialect, compiled for Python.

Kubernetes' patterns are RE2: `$` matches only at the very end, `\z` exists, classes are ASCII, and there are no look-arounds
or back references. Patterns that Go rejects are rejected, so that a pattern accepted here is accepted by every cluster.
"""

from __future__ import annotations

import re
import warnings

_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\\x00-\\x7F",
    "blank": "\\t ",
    "cntrl": "\\x00-\\x1F\\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\t\\n\\v\\f\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}

_REFUSED = re.compile(r"\(\?(?:<?[=!]|>|#|\()|\(\?P=|[*+?}]\+")
_OUTSIDE = re.compile(r"(?P<escape>\\.)|(?P<open>\[\^?\]?)|(?P<end>\$)|(?P<other>.)", re.DOTALL)
_INSIDE = re.compile(
    r"(?P<escape>\\.)|(?P<posix>\[:\^?[a-z]+:\])|(?P<close>\])|(?P<other>.)", re.DOTALL
)


_GO_MESSAGES = {
    "missing ), unterminated subpattern": "missing closing )",
    "unbalanced parenthesis": "unexpected )",
    "nothing to repeat": "missing argument to repetition operator",
    "unterminated character set": "missing closing ]",
}


class BadPattern(ValueError):
    """The pattern is not a regular expression that Go accepts."""


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern so that it matches what Go's regexp matches."""
    refused = _REFUSED.search(_without_escapes_and_classes(pattern))
    if refused:
        reason = "invalid or unsupported Perl syntax"
        raise BadPattern(f"error parsing regexp: {reason}: `{refused.group()}`")
    try:
        with warnings.catch_warnings():
            # Python warns about nested sets whose meaning may change; the translation has Go's meaning already.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(_translated(pattern), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(f"error parsing regexp: {_go_message(error)}: `{pattern}`") from error


def _go_message(error: Exception) -> str:
    message = error.msg if isinstance(error, re.error) else str(error)
    return _GO_MESSAGES.get(message, message)


def _translated(pattern: str) -> str:
    out: list[str] = []
    inside = False
    at = 0
    while match := (_INSIDE if inside else _OUTSIDE).match(pattern, at):
        kind = match.lastgroup
        out.append(_translate_token(kind, match.group(), inside=inside, multiline="(?m" in pattern))
        inside = kind == "open" or (inside and kind != "close")
        at = match.end()
    return "".join(out)


def _translate_token(kind: str | None, text: str, *, inside: bool, multiline: bool) -> str:
    if kind == "escape":
        return _escape(text)
    if kind == "posix":
        return _posix(text)
    if kind == "end" and not multiline:
        return r"\Z"  # Python's $ would also match before a final newline
    return "\\[" if inside and text == "[" else text


def _escape(text: str) -> str:
    if text == "\\z":
        return r"\Z"
    if text in {"\\Z", "\\C"} or text[1].isdigit():
        raise BadPattern(f"error parsing regexp: invalid escape sequence: `{text}`")
    return text


def _posix(text: str) -> str:
    name = text.strip("[]:^")
    if "^" in text or name not in _POSIX:
        raise BadPattern(f"error parsing regexp: invalid character class range: `{text}`")
    return _POSIX[name]


def _without_escapes_and_classes(pattern: str) -> str:
    return re.sub(r"\[\^?\]?(?:\\.|[^\]\\])*\]", "c", re.sub(r"\\.", "e", pattern))
