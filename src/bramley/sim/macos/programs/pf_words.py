"""The words of a file of pf's rules: text to words, macros replaced, with the line that each one stands on.

Knows what a word is and nothing of rules. Mistakes are raised as pf words them; who reads a file says them with its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

NEWLINE = "\n"
WORD, STRING, SIGN, END_OF_LINE = "word", "string", "sign", "line"

_PATTERN = re.compile(
    r"""(?P<blank>(?:[ \t\r]|\\\n)+)|(?P<comment>\#(?:\\\n|[^\n])*)|(?P<line>\n)
    |"(?P<double>(?:\\.|[^"\\])*)"|'(?P<single>(?:\\.|[^'\\])*)'
    |(?P<macro>\$[A-Za-z0-9_]+)|(?P<sign>->|><|<>|!=|<=|>=|[(){}<>!=/,])
    |(?P<word>[^\s(){}<>!=/\#,"'$]+)""",
    re.VERBOSE | re.DOTALL,
)
# A macro may stand for others, and two may name each other.
_DEEPEST = 8


class Mistake(Exception):
    """What pf says about a line."""

    def __init__(self, line: int, said: str) -> None:
        super().__init__(said)
        self.line = line
        self.said = said


@dataclass(frozen=True, slots=True)
class Word:
    """One word, or one sign, or the end of a line."""

    kind: str
    text: str
    line: int


@dataclass(slots=True)
class Words:
    """A text of rules, read word by word; `macros` grows while it is read."""

    text: str
    macros: dict[str, str] = field(default_factory=dict)
    _at: int = 0
    _line: int = 1
    _next: list[Word] = field(default_factory=list)

    @property
    def line(self) -> int:
        """Return the line of the next word."""
        return self.peek().line

    def peek(self) -> Word:
        """Return the next word and leave it there; behind the last one there are ends of lines."""
        if not self._next:
            self._next = self._read()
        return self._next[0]

    def take(self) -> Word:
        """Return the next word and go on to the one behind it."""
        word = self.peek()
        self._next.pop(0)
        return word

    def is_at_end(self) -> bool:
        """Tell whether nothing is left but the end of a line."""
        is_read = self._at >= len(self.text)
        return is_read and all(word.kind == END_OF_LINE for word in self._next)

    def accept(self, *texts: str) -> str:
        """Take the next word if it is one of these, and return it; else return nothing."""
        word = self.peek()
        return self.take().text if word.kind in {WORD, SIGN} and word.text in texts else ""

    def expect(self, *texts: str) -> str:
        """Take the next word, which must be one of these."""
        return self.accept(*texts) or self.fail()

    def value(self) -> str:
        """Take a word or a string."""
        return self.take().text if self.peek().kind in {WORD, STRING} else self.fail()

    def fail(self, said: str = "syntax error") -> str:
        """Refuse the line."""
        raise Mistake(self.line, said)

    def list_of(
        self, one: Callable[[Words], str], *, may_be_empty: bool = False
    ) -> tuple[str, ...]:
        """Take one thing, or several within braces, with or without commas."""
        if not self.accept("{"):
            return (one(self),)
        found = []
        self._pass_line_ends()
        while not self.accept("}"):
            found.append(one(self))
            self.accept(",")
            self._pass_line_ends()
        if not found and not may_be_empty:
            self.fail()
        return tuple(found)

    def _pass_line_ends(self) -> None:
        while self.peek().kind == END_OF_LINE:
            if self.is_at_end():
                self.fail()
            self.take()

    def skip_line(self) -> None:
        """Go on behind the end of this line, whatever is left of it."""
        while True:
            # One mistake was said already.
            with suppress(Mistake):
                if self.take().kind == END_OF_LINE:
                    return

    def raw_rest(self) -> str:
        """Take the rest of the line, as the value of a macro: words and strings with spaces between them."""
        parts = []
        while self.peek().kind in {WORD, STRING, SIGN} and self.peek().text != "=":
            parts.append(self.take().text)
        return " ".join(parts) or self.fail()

    def _read(self) -> list[Word]:
        while self._at < len(self.text):
            found = _PATTERN.match(self.text, self._at)
            if found is None:
                line, self._at = self._line, _line_end(self.text, self._at)
                raise Mistake(line, "syntax error")
            line, self._at = self._line, found.end()
            self._line += found.group().count(NEWLINE)
            if words := list(self._said(found, line, depth=0)):
                return words
        return [Word(END_OF_LINE, NEWLINE, self._line)]

    def _said(self, found: re.Match[str], line: int, *, depth: int) -> Iterator[Word]:
        kind, text = found.lastgroup, found.group(found.lastgroup or 0)
        if kind == "macro":
            yield from self._replaced(text[1:], line, depth=depth)
        elif kind in {"double", "single"}:
            yield Word(STRING, text, line)
        elif kind in {WORD, SIGN, END_OF_LINE}:
            yield Word(kind, text, line)

    def _replaced(self, name: str, line: int, *, depth: int) -> Iterator[Word]:
        if name not in self.macros or depth > _DEEPEST:
            raise Mistake(line, f"macro '{name}' not defined")
        for found in _PATTERN.finditer(self.macros[name]):
            yield from self._said(found, line, depth=depth + 1)


def _line_end(text: str, at: int) -> int:
    end = text.find(NEWLINE, at)
    return len(text) if end < 0 else end
