"""The tokens of a file of pf rules, with macros expanded and line numbers, and the parsers of hosts, ports and protocols.

Rules and statements are parsed in `pf_rules` and `pf_file`. Errors have pf's own messages; `pf_file` adds the name of the file.
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
# Macros may contain macros, also each other.
_MAX_DEPTH = 8


class RuleError(Exception):
    """A line that pf rejects, with pf's message."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a string, a sign or the end of a line."""

    kind: str
    text: str
    line: int


@dataclass(slots=True)
class Tokens:
    """The tokens of a text, read one by one; `macros` grows while it is read."""

    text: str
    macros: dict[str, str] = field(default_factory=dict)
    _at: int = 0
    _line: int = 1
    _next: list[Token] = field(default_factory=list)

    @property
    def line(self) -> int:
        """Return the line number of the next token."""
        return self.peek().line

    def peek(self) -> Token:
        """Return the next token without consuming it; after the last one there are only ends of lines."""
        if not self._next:
            self._next = self._read()
        return self._next[0]

    def take(self) -> Token:
        """Consume and return the next token."""
        self.peek()
        return self._next.pop(0)

    def is_at_end(self) -> bool:
        """Return whether only the end of a line is left."""
        is_read = self._at >= len(self.text)
        return is_read and all(token.kind == END_OF_LINE for token in self._next)

    def accept(self, *texts: str) -> str:
        """Consume and return the next token if it is one of these; otherwise return an empty string."""
        token = self.peek()
        return self.take().text if token.kind in {WORD, SIGN} and token.text in texts else ""

    def expect(self, *texts: str) -> str:
        """Consume and return the next token, which must be one of these."""
        return self.accept(*texts) or self.fail()

    def value(self) -> str:
        """Consume a word or a string."""
        return self.take().text if self.peek().kind in {WORD, STRING} else self.fail()

    def fail(self, message: str = "syntax error") -> str:
        """Reject the line."""
        raise RuleError(self.line, message)

    def list_of(
        self, parse_item: Callable[[Tokens], str], *, may_be_empty: bool = False
    ) -> tuple[str, ...]:
        """Parse one item, or several within braces, with or without commas."""
        if not self.accept("{"):
            return (parse_item(self),)
        items = []
        self._skip_line_ends()
        while not self.accept("}"):
            items.append(parse_item(self))
            self.accept(",")
            self._skip_line_ends()
        if not items and not may_be_empty:
            self.fail()
        return tuple(items)

    def _skip_line_ends(self) -> None:
        while self.peek().kind == END_OF_LINE:
            if self.is_at_end():
                self.fail()
            self.take()

    def skip_line(self) -> None:
        """Skip the rest of this line."""
        while True:
            # One error of this line was reported already.
            with suppress(RuleError):
                if self.take().kind == END_OF_LINE:
                    return

    def raw_rest(self) -> str:
        """Consume the rest of the line as the value of a macro: tokens and strings separated by spaces."""
        parts = []
        while self.peek().kind in {WORD, STRING, SIGN} and self.peek().text != "=":
            parts.append(self.take().text)
        return " ".join(parts) or self.fail()

    def _read(self) -> list[Token]:
        while self._at < len(self.text):
            found = _PATTERN.match(self.text, self._at)
            if found is None:
                line, self._at = self._line, _line_end(self.text, self._at)
                raise RuleError(line, "syntax error")
            line, self._at = self._line, found.end()
            self._line += found.group().count(NEWLINE)
            if tokens := list(self._tokens_of(found, line, depth=0)):
                return tokens
        return [Token(END_OF_LINE, NEWLINE, self._line)]

    def _tokens_of(self, match: re.Match[str], line: int, *, depth: int) -> Iterator[Token]:
        kind, text = match.lastgroup, match.group(match.lastgroup or 0)
        if kind == "macro":
            yield from self._expand_macro(text[1:], line, depth=depth)
        elif kind in {"double", "single"}:
            yield Token(STRING, text, line)
        elif kind in {WORD, SIGN, END_OF_LINE}:
            yield Token(kind, text, line)

    def _expand_macro(self, name: str, line: int, *, depth: int) -> Iterator[Token]:
        if name not in self.macros or depth > _MAX_DEPTH:
            raise RuleError(line, f"macro '{name}' not defined")
        for match in _PATTERN.finditer(self.macros[name]):
            yield from self._tokens_of(match, line, depth=depth + 1)


def _line_end(text: str, at: int) -> int:
    end = text.find(NEWLINE, at)
    return len(text) if end < 0 else end


def interface(tokens: Tokens) -> str:
    """Parse the name of an interface or of an interface group."""
    negation = "! " if tokens.accept("!") else ""
    name = tokens.value()
    if not _INTERFACE.fullmatch(name):
        tokens.fail(f"interface name {name} is not valid")
    return negation + name


def protocol(tokens: Tokens) -> str:
    """Parse a protocol, by name or number, and return its name."""
    text = {"icmp6": "ipv6-icmp"}.get(tokens.peek().text, tokens.peek().text)
    by_number = {str(number): name for name, number in _PROTOCOLS.items()}
    if text not in _PROTOCOLS and not text.isdigit():
        tokens.fail(f"unknown protocol {text}")
    tokens.take()
    return by_number.get(text, text)


def host(tokens: Tokens) -> str:
    """Parse a host, a network, a table or an interface that means its addresses."""
    negation = "! " if tokens.accept("!") else ""
    if tokens.accept("<"):
        name = tokens.value()
        tokens.expect(">")
        return f"{negation}<{name}>"
    if tokens.accept("("):
        name = interface(tokens)
        tokens.expect(")")
        return f"{negation}({name})"
    return negation + _address(tokens)


def address(tokens: Tokens) -> str:
    """Parse an entry of a table: an address or a network, perhaps negated."""
    return ("!" if tokens.accept("!") else "") + _address(tokens)


def family(shown: str) -> str:
    """Return the address family of a host as shown; empty if it may be both."""
    bare = shown.removeprefix("! ")
    if ":" in bare and not _DEVICE.fullmatch(bare.strip("()")):
        return INET6
    return INET if bare[:1].isdigit() else ""


def port(tokens: Tokens) -> str:
    """Parse a port, a comparison or a range."""
    if sign := tokens.accept(*_COMPARISONS):
        return f"{sign} {_number(tokens, tokens.value())}"
    first, colon, last = tokens.value().partition(":")
    if colon:
        return f"{_plain(tokens, first)}:{_plain(tokens, last)}"
    if sign := tokens.accept("><", "<>"):
        return f"{_plain(tokens, first)} {sign} {_plain(tokens, tokens.value())}"
    return f"= {_number(tokens, first)}"


def _number(tokens: Tokens, text: str) -> str:
    number = int(_plain(tokens, text))
    return _BY_NUMBER.get(number, str(number))


def _plain(tokens: Tokens, text: str) -> str:
    if text in _SERVICES:
        return str(_SERVICES[text])
    if not text.isdigit():
        tokens.fail(f"unknown port {text}")
    if int(text) > 0xFFFF:
        tokens.fail("illegal port value " + text)
    return str(int(text))


def _address(tokens: Tokens) -> str:
    given = tokens.value()
    if given in {ANY, "no-route", "self", "urpf-failed"}:
        return given
    if tokens.accept("/"):
        bits = tokens.value()
        return _network(tokens, given, bits)
    return _single(tokens, given)


def _network(tokens: Tokens, text: str, bits: str) -> str:
    if _SHORT_NETWORK.fullmatch(text):
        text += ".0" * (3 - text.count("."))
    try:
        net = ipaddress.ip_network(f"{text}/{bits}", strict=False)
    except ValueError:
        return tokens.fail(f"invalid netmask '{bits}'" if bits.isdigit() else "syntax error")
    return str(net.network_address) if net.prefixlen == net.max_prefixlen else str(net)


def _single(tokens: Tokens, text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return (
            text if _DEVICE.fullmatch(text) else tokens.fail("could not parse host specification")
        )
