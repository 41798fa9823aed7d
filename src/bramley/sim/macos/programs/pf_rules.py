"""One rule of pf: parsed, checked, and expanded into the lines that pfctl shows.

A rule with lists becomes one rule for each combination, as in the kernel; what a rule does to packets is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product

from bramley.sim.macos.programs import pf_syntax
from bramley.sim.macos.programs.pf_syntax import Tokens

_TRANSPORT = ("tcp", "udp")
_STATES = ("keep", "modulate", "synproxy", "no")
# Options after the hosts that have one value.
_WITH_VALUE = ("tos", "queue", "rtable", "probability", "icmp-type", "icmp6-type")
_WITH_NAME = ("label", "tag", "tagged")
_ALONE = ("fragment", "allow-opts")


@dataclass(frozen=True, slots=True)
class Side:
    """The sources or targets of packets."""

    hosts: tuple[str, ...] = (pf_syntax.ANY,)
    ports: tuple[str, ...] = ("",)


@dataclass(slots=True)
class Match:
    """The packets that a rule matches."""

    interfaces: tuple[str, ...] = ("",)
    family: str = ""
    protocols: tuple[str, ...] = ("",)
    source: Side = field(default_factory=Side)
    target: Side = field(default_factory=Side)

    def each(self) -> Iterator[tuple[str, str]]:
        """Yield each combination as shown, and its protocol."""
        sides = product(self.source.hosts, self.source.ports, self.target.hosts, self.target.ports)
        for device, protocol, side in product(self.interfaces, self.protocols, list(sides)):
            families = {pf_syntax.family(side[0]), pf_syntax.family(side[2]), self.family} - {""}
            if len(families) <= 1:
                yield _shown(device, "".join(families), protocol, side), protocol


def match(tokens: Tokens) -> Match:
    """Parse the part of a rule that selects packets."""
    found = Match()
    if tokens.accept("on"):
        found.interfaces = tokens.list_of(pf_syntax.interface)
    found.family = tokens.accept(pf_syntax.INET, pf_syntax.INET6)
    if tokens.accept("proto"):
        found.protocols = tokens.list_of(pf_syntax.protocol)
    if not tokens.accept("all"):
        found.source = _side(tokens, "from")
        found.target = _side(tokens, "to")
    has_ports = found.source.ports != ("",) or found.target.ports != ("",)
    if has_ports and not all(protocol in _TRANSPORT for protocol in found.protocols):
        tokens.fail("port only applies to tcp/udp")
    if not list(found.each()):
        tokens.fail("rule expands to no valid combination")
    return found


def filter_rule(tokens: Tokens, *, policy: str) -> list[str]:
    """Parse a rule that passes or blocks packets."""
    action = tokens.expect("pass", "block")
    shown = "pass" if action == "pass" else f"block {_block_kind(tokens, policy)}"
    shown += _direction(tokens)
    matched = match(tokens)
    options, state = _options(tokens)
    return [
        f"{shown}{text}{_state(action, state, protocol)}{options}"
        for text, protocol in matched.each()
    ]


def scrub(tokens: Tokens, prefix: str) -> list[str]:
    """Parse a normalization rule; `prefix` is what precedes it."""
    shown = prefix + tokens.expect("scrub") + _direction(tokens)
    matched = match(tokens)
    options = _scrub_options(tokens)
    return [f"{shown}{text}{options}" for text, _ in matched.each()]


def translation(tokens: Tokens, prefix: str) -> list[str]:
    """Parse a translation rule; `prefix` is what precedes it."""
    kind = tokens.expect("nat", "rdr", "binat")
    shown = f"{prefix}{kind}{_spaced(tokens.accept('pass'))}{_logged(tokens)}"
    matched = match(tokens)
    tagged = _names(tokens)
    target = _translated(tokens, kind) if not prefix else ""
    return [f"{shown}{text}{tagged}{target}" for text, _ in matched.each()]


def dummynet(tokens: Tokens, prefix: str) -> list[str]:
    """Parse a rule that sends packets through a pipe."""
    shown = prefix + tokens.expect("dummynet") + _direction(tokens)
    matched = match(tokens)
    kind = tokens.expect("pipe", "queue")
    number = tokens.value()
    return [f"{shown}{text} {kind} {number}" for text, _ in matched.each()]


def anchor_rule(tokens: Tokens, shown: str) -> list[str]:
    """Parse what follows the name of an anchor, up to the end of the line or an opening brace."""
    direction = _direction(tokens)
    matched = match(tokens)
    options, _ = _options(tokens)
    tail = " fragment reassemble" if shown.startswith("scrub-") else ""
    return [f"{shown}{direction}{text}{options}{tail}" for text, _ in matched.each()]


def _direction(tokens: Tokens) -> str:
    way = tokens.accept("in", "out")
    return _spaced(way) + _logged(tokens) + _spaced(tokens.accept("quick"))


def _logged(tokens: Tokens) -> str:
    if not tokens.accept("log"):
        return ""
    if not tokens.accept("("):
        return " log"
    options = tokens.value()
    tokens.expect(")")
    return f" log ({options})"


def _block_kind(tokens: Tokens, policy: str) -> str:
    kind = tokens.accept("drop", "return", "return-rst", "return-icmp", "return-icmp6")
    if kind.startswith("return-") and tokens.accept("("):
        inner = tokens.value()
        tokens.expect(")")
        return f"{kind}({inner})"
    return kind or policy


def _side(tokens: Tokens, name: str) -> Side:
    if not tokens.accept(name):
        return Side()
    hosts: tuple[str, ...] = (pf_syntax.ANY,)
    if tokens.peek().text != "port":
        hosts = tokens.list_of(pf_syntax.host)
    return Side(hosts, tokens.list_of(pf_syntax.port) if tokens.accept("port") else ("",))


def _options(tokens: Tokens) -> tuple[str, str]:
    """Parse the options after the hosts; return them as shown, and the state option."""
    shown, state, flags = "", "", ""
    while word := tokens.accept(
        *_WITH_VALUE, *_WITH_NAME, *_ALONE, *_STATES, "flags", "user", "group"
    ):
        if word == "flags":
            flags = f" flags {_flags(tokens)}"
        elif word in _STATES:
            state = f" {word} {tokens.expect('state')}{_state_options(tokens)}"
        else:
            shown += _option(tokens, word)
    return shown, flags + state


def _option(tokens: Tokens, word: str) -> str:
    if word in _ALONE:
        return f" {word}"
    if word in _WITH_NAME:
        return f' {word} "{tokens.value()}"'
    sign = tokens.accept("=", "!=", "<", ">", "<=", ">=")
    return f" {word} {sign + ' ' if sign else ''}{tokens.value()}"


def _flags(tokens: Tokens) -> str:
    if tokens.accept(pf_syntax.ANY):
        return pf_syntax.ANY
    first = "" if tokens.peek().text == "/" else tokens.value()
    tokens.expect("/")
    second = tokens.value()
    if set(first + second) - set("FSRPAUEW"):
        tokens.fail("bad flags")
    return f"{first}/{second}"


def _state_options(tokens: Tokens) -> str:
    if not tokens.accept("("):
        return ""
    parts = []
    while not tokens.accept(")"):
        parts.append(tokens.accept(",", "<", ">", "/", "=") or tokens.value())
    return f" ({' '.join(parts)})"


def _state(action: str, given: str, protocol: str) -> str:
    """Return the state option of a rule; by default pass rules keep state, from the first packet of a connection on."""
    if action == "block" or "no state" in given:
        return given
    kept = given if "state" in given else f"{given} keep state"
    begins = protocol in {"", "tcp"} and "flags" not in given
    return f" flags S/SA{kept}" if begins else kept


def _scrub_options(tokens: Tokens) -> str:
    shown = ""
    while word := tokens.accept(
        "no-df", "random-id", "max-mss", "min-ttl", "fragment", "reassemble"
    ):
        values = {"max-mss": 1, "min-ttl": 1, "fragment": 1, "reassemble": 1}
        shown += f" {word}" + (f" {tokens.value()}" if word in values else "")
    return shown if "fragment" in shown else f"{shown} fragment reassemble"


def _names(tokens: Tokens) -> str:
    shown = ""
    while word := tokens.accept("tag", "tagged"):
        shown += f' {word} "{tokens.value()}"'
    return shown


def _translated(tokens: Tokens, kind: str) -> str:
    tokens.expect("->")
    hosts = tokens.list_of(pf_syntax.host)
    shown = hosts[0] if len(hosts) == 1 else "{ " + ", ".join(hosts) + " }"
    if tokens.accept("port"):
        shown += f" port {tokens.value()}"
    pool = tokens.accept(
        "round-robin", "random", "source-hash", "bitmask", "sticky-address", "static-port"
    )
    if not pool and kind != "binat" and (shown.startswith("(") or len(hosts) > 1):
        pool = "round-robin"
    return f" -> {shown}{_spaced(pool)}"


def _shown(device: str, family: str, protocol: str, side: tuple[str, str, str, str]) -> str:
    text = f" on {device}" if device else ""
    text += _spaced(family) + (f" proto {protocol}" if protocol else "")
    source, source_port, target, target_port = side
    if (source, source_port, target, target_port) == (pf_syntax.ANY, "", pf_syntax.ANY, ""):
        return f"{text} all"
    return f"{text} from {source}{_port(source_port)} to {target}{_port(target_port)}"


def _port(shown: str) -> str:
    return f" port {shown}" if shown else ""


def _spaced(word: str) -> str:
    return f" {word}" if word else ""


Rule = Callable[[Tokens, str], list[str]]
