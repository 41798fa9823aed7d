"""Validation of names, labels, addresses, versions and paths that are sent to a Mac, before the first connection.

A check yields errors with the field's name; `require` raises all of them together. Values are quoted elsewhere; these grammars are
narrow in addition, so that one mistake there is not enough. Secrets are not checked here, because errors show the values.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bramley.api.names import labels as names
from bramley.api.taints import parse as parse_taints
from bramley.base.errors import Cause, InvalidSpec

INVALID = "FieldValueInvalid"
_MAX_QUOTED = 80


@dataclass(frozen=True, slots=True)
class Grammar:
    """The syntax of a text; `description` describes it in errors, after "must be"."""

    pattern: re.Pattern[str]
    max_length: int
    description: str

    def check(self, field: str, value: str) -> Iterator[Cause]:
        """Yield the error of an invalid value."""
        # The length must be checked first, so that no pattern runs on a huge text.
        if len(value) > self.max_length or not self.pattern.fullmatch(value):
            yield cause(
                field, value, f"must be {self.description}, of at most {self.max_length} characters"
            )


_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME = rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*"
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"

NODE_NAME = Grammar(
    re.compile(_DNS_NAME),
    253,
    "the name of a Node: lower-case letters, digits, - and ., of at most 63 characters between two dots",
)
# Without a dot: sudo ignores files in sudoers.d whose name contains one, and ours is named after the user.
USER_NAME = Grammar(
    re.compile(r"[A-Za-z_][A-Za-z0-9_-]*"),
    31,
    "the short name of a user: letters, digits, _ and -, without a dot",
)
LABEL_KEY = Grammar(
    re.compile(rf"(?:(?={_DNS_NAME}/)[a-z0-9.-]{{1,253}}/)?{_WORD}"),
    317,
    "the key of a label: letters, digits, -, _ and ., optionally after a domain and /",
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
ORGANISATION = Grammar(
    re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"),
    39,
    "the name of a GitHub organisation: letters, digits and -",
)
# The name of its Node; GitHub's limit is shorter than that of Kubernetes.
RUNNER_NAME = Grammar(
    re.compile(_DNS_NAME), 64, "the name of a runner: lower-case letters, digits, - and ."
)
# A comma would separate labels.
RUNNER_LABEL = Grammar(
    re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*"),
    256,
    "the label of a runner: letters, digits, -, _ and ., not - first",
)
RUNNER_GROUP = Grammar(
    re.compile(r"[A-Za-z0-9._](?:[A-Za-z0-9 ._-]*[A-Za-z0-9._-])?"),
    64,
    "the name of a runner group: letters, digits, spaces and . _ -, not - first",
)

_HOST_NAME = re.compile(_DNS_NAME, re.IGNORECASE | re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_PORT_RANGE = re.compile(r"([1-9][0-9]{0,4})-([1-9][0-9]{0,4})", re.ASCII)
_MAX_PORT = 65535
_NETWORK = re.compile(r"[0-9.]{7,15}/[0-9]{1,2}", re.ASCII)


def require(subject: str, *checks: Iterable[Cause]) -> None:
    """Raise InvalidSpec with all errors that the checks yield."""
    causes = tuple(cause for check in checks for cause in check)
    if causes:
        messages = "; ".join(cause.message for cause in causes)
        raise InvalidSpec(f"{subject}: {messages}", causes=causes)


def labels(field: str, value: Mapping[str, str]) -> Iterator[Cause]:
    """Check the labels of a Node."""
    for key, text in value.items():
        yield from LABEL_KEY.check(field, key)
        if names.is_set_by_agent(key):
            rule = "must be left out: the agent sets this label itself"
            yield cause(f"{field}[{key[:_MAX_QUOTED]}]", text, rule)
        yield from LABEL_VALUE.check(f"{field}[{key[:_MAX_QUOTED]}]", text)


def taints(field: str, values: Sequence[str]) -> Iterator[Cause]:
    """Check the taints of a new Node."""
    try:
        parse_taints(values)
    except ValueError as error:
        yield Cause(field, INVALID, f"{field} {error}")


def host_name(field: str, value: str) -> Iterator[Cause]:
    """Check a host name or an address; a name that looks like a mistyped address is invalid."""
    last = value.rpartition(".")[2]
    is_name = len(value) <= 253 and _HOST_NAME.fullmatch(value) and not last.isdigit()
    if not (is_name or _is_address(value)):
        yield cause(field, value, "must be the name or the address of a host")


def address(field: str, value: str) -> Iterator[Cause]:
    """Check an IPv4 or IPv6 address."""
    if not _is_address(value):
        yield cause(field, value, "must be an address, like 192.0.2.7")


def endpoint(field: str, value: str) -> Iterator[Cause]:
    """Check a listen address: an optional IPv4 address, and a port."""
    host, colon, port = value.rpartition(":")
    is_port = bool(colon and _PORT.fullmatch(port)) and int(port) <= _MAX_PORT
    if not is_port or (host and not _is_address(host)) or ":" in host:
        yield cause(field, value, "must be an IPv4 address and a port, like 127.0.0.1:8081")


def network(field: str, value: str) -> Iterator[Cause]:
    """Check an IPv4 network; the packet filter's rules support no other."""
    try:
        parsed = ipaddress.IPv4Network(value, strict=False) if _NETWORK.fullmatch(value) else None
    except ValueError:
        parsed = None
    if parsed is None:
        is_address = _is_address(value) and ":" not in value
        example = f"{value}/32 for this address alone" if is_address else "like 10.0.0.0/8"
        yield cause(field, value, f"must be an IPv4 network, {example}")
    elif str(parsed) != value:
        yield cause(field, value, f"must be a network and not an address in one: write {parsed}")


def ports(field: str, value: int | str) -> Iterator[Cause]:
    """Check a port, or a range of ports such as 8000-8100."""
    match = _PORT_RANGE.fullmatch(str(value))
    bounds = match.groups() if match else (str(value),)
    is_valid = all(_PORT.fullmatch(text) and int(text) <= _MAX_PORT for text in bounds)
    if not is_valid or int(bounds[0]) > int(bounds[-1]):
        rule = f"must be a port from 1 to {_MAX_PORT}, or a range with the lower port first, like 8000-8100"
        yield cause(field, str(value), rule)


def choice(field: str, value: str, *choices: str) -> Iterator[Cause]:
    """Check that a text is one of these."""
    if value not in choices:
        yield cause(field, value, f"must be {' or '.join(choices)}")


def count(field: str, value: int, *, maximum: int, minimum: int = 1) -> Iterator[Cause]:
    """Check a number from `minimum` to `maximum`."""
    if not minimum <= value <= maximum:
        yield cause(field, str(value), f"must be from {minimum} to {maximum}")


def max_length(field: str, value: Sequence[object], maximum: int) -> Iterator[Cause]:
    """Check the length of a list."""
    if len(value) > maximum:
        yield cause(field, f"{len(value)} entries", f"must have at most {maximum} entries")


def _is_address(value: str) -> bool:
    try:
        # The zone of an IPv6 address may be any text.
        return "%" not in value and bool(ipaddress.ip_address(value))
    except ValueError:
        return False


def cause(field: str, value: str, rule: str) -> Cause:
    """Return the error of a value that breaks a rule; a long value is truncated."""
    quoted = value if len(value) <= _MAX_QUOTED else f"{value[:_MAX_QUOTED]}…"
    return Cause(field, INVALID, f"{field} {quoted!r} {rule}")
