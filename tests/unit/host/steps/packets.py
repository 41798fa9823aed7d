"""An evaluator of pf rules: the first matching rule with `quick` decides, and a packet that matches none passes.

It reads rules as pfctl prints them and supports what the firewall step uses. An interface in parentheses stands for its current
addresses; `(self)` stands for none, since pf of macOS has no interface groups and treats it as an interface name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_RULE = re.compile(
    r"(?P<action>pass|block drop)(?: (?P<direction>in|out))? quick(?: on (?P<device>\S+))?(?: (?P<family>inet6?))?"
    r"(?: proto (?P<protocol>\S+))? (?:all|from (?P<source>!? ?\S+)(?: port (?P<from_port>= \S+|\S+))?"
    r" to (?P<target>\S+)(?: port (?P<port>= \S+|\S+))?)(?: flags S/SA| keep state| label \"\S+\")*"
)
_SERVICES = {"bootps": "67", "bootpc": "68", "domain": "53", "https": "443"}


@dataclass(frozen=True, kw_only=True)
class Packet:
    """One packet that the Mac receives or sends."""

    source: str
    target: str
    port: int = 443
    protocol: str = "tcp"
    direction: str = "in"
    device: str = "bridge100"
    from_port: int = 50_000


@dataclass(frozen=True)
class Filter:
    """Loaded rules, their tables, and the Mac's own addresses by interface."""

    rules: Sequence[str]
    tables: Mapping[str, Sequence[str]]
    host_addresses: Mapping[str, Sequence[str]]

    def passes(self, packet: Packet) -> bool:
        """Return whether a packet passes."""
        for rule in self.rules:
            found = _RULE.fullmatch(rule)
            assert found, f"unsupported rule: {rule}"
            if self._matches(packet, found.groupdict()):
                return found["action"] == "pass"
        return True

    def _matches(self, packet: Packet, rule: Mapping[str, str | None]) -> bool:
        family = "inet6" if ":" in packet.source else "inet"
        simple = {
            "direction": packet.direction,
            "device": packet.device,
            "family": family,
            "protocol": packet.protocol,
        }
        return (
            all(rule[name] in {None, value} for name, value in simple.items())
            and self._is_in(packet.source, rule["source"])
            and self._is_in(packet.target, rule["target"])
            and _is_port(packet.port, rule["port"])
            and _is_port(packet.from_port, rule["from_port"])
        )

    def _is_in(self, address: str, spec: str | None) -> bool:
        if spec in {None, "any"}:
            return True
        assert spec
        if spec.startswith("!"):
            return not self._is_in(address, spec[1:].strip())
        parsed = ipaddress.ip_address(address)
        return any(parsed in ipaddress.ip_network(network) for network in self._networks(spec))

    def _networks(self, spec: str) -> Sequence[str]:
        if spec.startswith("("):
            return self.host_addresses.get(spec.strip("()"), ())
        return self.tables.get(spec.strip("<>"), [spec])


def _is_port(port: int, expected: str | None) -> bool:
    if expected is None:
        return True
    bare = expected.removeprefix("= ")
    first, _, last = _SERVICES.get(bare, bare).partition(":")
    return int(first) <= port <= int(last or first)
