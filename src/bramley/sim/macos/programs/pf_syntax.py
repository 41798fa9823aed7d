"""The words of a file of pf's rules: text to words, macros replaced, with the line that each one stands on.

Knows what a word is and nothing of rules. Mistakes are raised as pf words them; who reads a file says them with its name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

INET, INET6 = "inet", "inet6"
ANY = "any"
_PROTOCOLS = {
    "icmp": 1, "igmp": 2, "ipencap": 4, "tcp": 6, "udp": 17, "ipv6": 41, "gre": 47, "esp": 50, "ah": 51, "ipv6-icmp": 58,
}  # fmt: skip
_SERVICES = {
    "ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "bootps": 67, "bootpc": 68, "http": 80, "ntp": 123,
    "https": 443, "rfb": 5900,
}  # fmt: skip
_BY_NUMBER = {number: name for name, number in _SERVICES.items()}
_INTERFACE = re.compile(r"[a-z]+[0-9]*(?::(?:network|broadcast|peer|0))*")
_DEVICE = re.compile(r"[a-z]+[0-9]+(?::(?:network|broadcast|peer|0))*")
_SHORT_NETWORK = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){0,2}")
_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
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

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


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
        """Return whether nothing is left but the end of a line."""
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

    def fail(self, message: str = "syntax error") -> str:
        """Refuse the line."""
        raise Mistake(self.line, message)

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
            if words := list(self._words_of(found, line, depth=0)):
                return words
        return [Word(END_OF_LINE, NEWLINE, self._line)]

    def _words_of(self, found: re.Match[str], line: int, *, depth: int) -> Iterator[Word]:
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
            yield from self._words_of(found, line, depth=depth + 1)


def _line_end(text: str, at: int) -> int:
    end = text.find(NEWLINE, at)
    return len(text) if end < 0 else end


def interface(words: Words) -> str:
    """Take the name of an interface or of a group of them."""
    refused = "! " if words.accept("!") else ""
    name = words.value()
    if not _INTERFACE.fullmatch(name):
        words.fail(f"interface name {name} is not valid")
    return refused + name


def protocol(words: Words) -> str:
    """Take a protocol, by name or number, and return its name."""
    given = {"icmp6": "ipv6-icmp"}.get(words.peek().text, words.peek().text)
    by_number = {str(number): name for name, number in _PROTOCOLS.items()}
    if given not in _PROTOCOLS and not given.isdigit():
        words.fail(f"unknown protocol {given}")
    words.take()
    return by_number.get(given, given)


def host(words: Words) -> str:
    """Take a host, a network, a table or an interface that stands for its addresses."""
    refused = "! " if words.accept("!") else ""
    if words.accept("<"):
        name = words.value()
        words.expect(">")
        return f"{refused}<{name}>"
    if words.accept("("):
        name = interface(words)
        words.expect(")")
        return f"{refused}({name})"
    return refused + _address(words)


def address(words: Words) -> str:
    """Take what may stand in a table: an address or a network, perhaps refused."""
    return ("!" if words.accept("!") else "") + _address(words)


def family(shown: str) -> str:
    """Return the family of a host as it is shown; nothing for what may be of both."""
    bare = shown.removeprefix("! ")
    if ":" in bare and not _DEVICE.fullmatch(bare.strip("()")):
        return INET6
    return INET if bare[:1].isdigit() else ""


def ports(words: Words) -> tuple[str, ...]:
    """Take the ports behind the word `port`."""
    return words.list_of(_port)


def _port(words: Words) -> str:
    if sign := words.accept(*_COMPARISONS):
        return f"{sign} {_number(words, words.value())}"
    first, colon, last = words.value().partition(":")
    if colon:
        return f"{_plain(words, first)}:{_plain(words, last)}"
    if sign := words.accept("><", "<>"):
        return f"{_plain(words, first)} {sign} {_plain(words, words.value())}"
    return f"= {_number(words, first)}"


def _number(words: Words, given: str) -> str:
    number = int(_plain(words, given))
    return _BY_NUMBER.get(number, str(number))


def _plain(words: Words, given: str) -> str:
    if given in _SERVICES:
        return str(_SERVICES[given])
    if not given.isdigit():
        words.fail(f"unknown port {given}")
    if int(given) > 0xFFFF:
        words.fail("illegal port value " + given)
    return str(int(given))


def _address(words: Words) -> str:
    given = words.value()
    if given in {ANY, "no-route", "self", "urpf-failed"}:
        return given
    if words.accept("/"):
        bits = words.value()
        return _network(words, given, bits)
    return _single(words, given)


def _network(words: Words, given: str, bits: str) -> str:
    if _SHORT_NETWORK.fullmatch(given):
        given += ".0" * (3 - given.count("."))
    try:
        found = ipaddress.ip_network(f"{given}/{bits}", strict=False)
    except ValueError:
        return words.fail(f"invalid netmask '{bits}'" if bits.isdigit() else "syntax error")
    return str(found.network_address) if found.prefixlen == found.max_prefixlen else str(found)


def _single(words: Words, given: str) -> str:
    try:
        return str(ipaddress.ip_address(given))
    except ValueError:
        return (
            given if _DEVICE.fullmatch(given) else words.fail("could not parse host specification")
        )
