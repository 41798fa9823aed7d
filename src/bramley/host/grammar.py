"""What may travel to a Mac: grammars of names, labels, addresses, versions and paths, checked before the first connection.

A check yields what is wrong, by the field's name; `require` refuses all of it at once. Quoting is done elsewhere and for
everything; these grammars are narrow, so that one mistake there is not enough. Secrets are not checked here, since causes
show what was given.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bramley.api.names import labels as names
from bramley.base.errors import Cause, InvalidSpec

INVALID = "FieldValueInvalid"
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Grammar:
    """The form of a text; `told` says it to people, behind "must be"."""

    pattern: re.Pattern[str]
    at_most: int
    told: str

    def check(self, field: str, value: str) -> Iterator[Cause]:
        """Yield what is wrong with this value of a field, if anything is."""
        # The length comes first: a pattern need not look at a text that is too long for any.
        if len(value) > self.at_most or not self.pattern.fullmatch(value):
            yield _cause(field, value, f"must be {self.told}, of at most {self.at_most} characters")


_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME = rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*"
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"

NODE_NAME = Grammar(
    re.compile(_DNS_NAME),
    253,
    "the name of a Node: lower-case letters, digits, - and ., of at most 63 characters between two dots",
)
# sudo passes over files of its folder whose name has a dot, and ours is named after the user.
USER_NAME = Grammar(
    re.compile(r"[A-Za-z_][A-Za-z0-9_-]*"),
    31,
    "the short name of a user: letters, digits, _ and -, without a dot",
)
LABEL_KEY = Grammar(
    re.compile(rf"(?:(?={_DNS_NAME}/)[a-z0-9.-]{{1,253}}/)?{_WORD}"),
    317,
    "the key of a label: letters, digits, -, _ and ., perhaps behind a domain and /",
)
LABEL_VALUE = Grammar(
    re.compile(rf"(?:{_WORD})?"), 63, "the value of a label: letters, digits, -, _ and ."
)
VERSION = Grammar(
    re.compile(r"[0-9]+(?:\.[0-9]+){0,3}(?:[-+][0-9A-Za-z]+(?:[.-][0-9A-Za-z]+)*)?"),
    64,
    "a version, like 2.32.1 or 1.0.0-rc.1",
)
FOLDER_NAME = Grammar(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*", re.ASCII),
    128,
    "the name of a folder: letters, digits and . _ + -, a letter or digit first",
)
PATH = Grammar(
    re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._+@-][A-Za-z0-9._+@ -]*)+", re.ASCII),
    1023,
    "an absolute path of letters, digits, spaces and . _ + @ -, without . and .. as parts",
)
PROVIDER_ID = Grammar(
    re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9._~/-]+"), 256, "a provider's id: scheme://zone/id"
)

_HOST_NAME = re.compile(_DNS_NAME, re.IGNORECASE | re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_LAST_PORT = 65535
_NETWORK = re.compile(r"[0-9.]{7,15}/[0-9]{1,2}", re.ASCII)


def require(subject: str, *checks: Iterable[Cause]) -> None:
    """Refuse the subject if any check has found something, and tell all of it."""
    causes = tuple(cause for check in checks for cause in check)
    if causes:
        told = "; ".join(cause.message for cause in causes)
        raise InvalidSpec(f"{subject}: {told}", causes=causes)


def labels(field: str, value: Mapping[str, str]) -> Iterator[Cause]:
    """Check each label of a Node, by its key."""
    for key, text in value.items():
        yield from LABEL_KEY.check(field, key)
        if names.is_said_by_agents(key):
            told = "must be left out: the agent says by itself what this label is"
            yield _cause(f"{field}[{key[:_SHOWN]}]", text, told)
        yield from LABEL_VALUE.check(f"{field}[{key[:_SHOWN]}]", text)


def host_name(field: str, value: str) -> Iterator[Cause]:
    """Check where to connect to: an address, or a name that is none by mistake."""
    last = value.rpartition(".")[2]
    is_name = len(value) <= 253 and _HOST_NAME.fullmatch(value) and not last.isdigit()
    if not (is_name or _is_address(value)):
        yield _cause(field, value, "must be the name or the address of a host")


def address(field: str, value: str) -> Iterator[Cause]:
    """Check an address of IPv4 or IPv6."""
    if not _is_address(value):
        yield _cause(field, value, "must be an address, like 192.0.2.7")


def endpoint(field: str, value: str) -> Iterator[Cause]:
    """Check where to listen: an address of IPv4, or none for all of them, and a port."""
    host, colon, port = value.rpartition(":")
    is_port = bool(colon and _PORT.fullmatch(port)) and int(port) <= _LAST_PORT
    if not is_port or (host and not _is_address(host)) or ":" in host:
        yield _cause(field, value, "must be an address of IPv4 and a port, like 127.0.0.1:8081")


def network(field: str, value: str) -> Iterator[Cause]:
    """Check a network of IPv4, the only one that the packet filter's rules are written for."""
    try:
        found = ipaddress.IPv4Network(value, strict=False) if _NETWORK.fullmatch(value) else None
    except ValueError:
        found = None
    if found is None:
        yield _cause(field, value, "must be a network of IPv4, like 10.0.0.0/8")
    elif str(found) != value:
        yield _cause(field, value, f"must be a network and not an address in one: write {found}")


def count(field: str, value: int, *, most: int) -> Iterator[Cause]:
    """Check a number from 1 to `most`."""
    if not 1 <= value <= most:
        yield _cause(field, str(value), f"must be from 1 to {most}")


def _is_address(value: str) -> bool:
    try:
        # A zone behind an address of IPv6 may be any text.
        return "%" not in value and bool(ipaddress.ip_address(value))
    except ValueError:
        return False


def _cause(field: str, value: str, rule: str) -> Cause:
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
    return Cause(field, INVALID, f"{field} {shown!r} {rule}")
