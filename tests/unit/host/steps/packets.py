"""What becomes of a packet under rules of pf: the first one with `quick` that matches decides, and what none matches passes.

Reads rules as pfctl shows them and knows as much of them as the firewall's step uses. An interface in round brackets stands for the
addresses that it has at the moment; `(self)` stands for none, since macOS' pf knows no groups of interfaces and takes it for one.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_RULE = re.compile(
    r"(?P<action>pass|block drop)(?: (?P<way>in|out))? quick(?: on (?P<device>\S+))?(?: (?P<family>inet6?))?"
    r"(?: proto (?P<protocol>\S+))? (?:all|from (?P<source>!? ?\S+)(?: port (?P<from_port>= \S+|\S+))?"
    r" to (?P<target>\S+)(?: port (?P<port>= \S+|\S+))?)(?: flags S/SA| keep state| label \"\S+\")*"
)
_SERVICES = {"bootps": "67", "bootpc": "68", "domain": "53"}


@dataclass(frozen=True, kw_only=True)
class Packet:
    """One packet on its way through the Mac."""

    source: str
    target: str
    port: int = 443
    protocol: str = "tcp"
    way: str = "in"
    device: str = "bridge100"
    from_port: int = 50_000


@dataclass(frozen=True)
class Filter:
    """Rules in force, their tables, and the Mac's own addresses by interface."""

    rules: Sequence[str]
    tables: Mapping[str, Sequence[str]]
    own: Mapping[str, Sequence[str]]

    def passes(self, packet: Packet) -> bool:
        """Tell whether a packet passes."""
        for rule in self.rules:
            found = _RULE.fullmatch(rule)
            assert found, f"no rule that this evaluator knows: {rule}"
            if self._matches(packet, found.groupdict()):
                return found["action"] == "pass"
        return True

    def _matches(self, packet: Packet, rule: Mapping[str, str | None]) -> bool:
        family = "inet6" if ":" in packet.source else "inet"
        simple = {
            "way": packet.way,
            "device": packet.device,
            "family": family,
            "protocol": packet.protocol,
        }
        return (
            all(rule[name] in {None, value} for name, value in simple.items())
            and self._is_at(packet.source, rule["source"])
            and self._is_at(packet.target, rule["target"])
            and _is_port(packet.port, rule["port"])
            and _is_port(packet.from_port, rule["from_port"])
        )

    def _is_at(self, address: str, place: str | None) -> bool:
        if place in {None, "any"}:
            return True
        assert place
        if place.startswith("!"):
            return not self._is_at(address, place[1:].strip())
        one = ipaddress.ip_address(address)
        return any(one in ipaddress.ip_network(network) for network in self._networks(place))

    def _networks(self, place: str) -> Sequence[str]:
        if place.startswith("("):
            return self.own.get(place.strip("()"), ())
        return self.tables.get(place.strip("<>"), [place])


def _is_port(port: int, told: str | None) -> bool:
    if told is None:
        return True
    bare = told.removeprefix("= ")
    first, _, last = _SERVICES.get(bare, bare).partition(":")
    return int(first) <= port <= int(last or first)
