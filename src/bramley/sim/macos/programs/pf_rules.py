"""One rule of pf: read, checked and spread out into what pfctl shows of it.

A rule with lists becomes one rule for each combination, as in pf's kernel; what a rule does to packets is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product

from bramley.sim.macos.programs import pf_syntax
from bramley.sim.macos.programs.pf_syntax import Words

_TRANSPORT = ("tcp", "udp")
_STATES = ("keep", "modulate", "synproxy", "no")
_NO_TRANSPORT = "port only applies to tcp/udp"
# What stands behind the hosts and takes one value.
_WITH_VALUE = ("tos", "queue", "rtable", "probability", "icmp-type", "icmp6-type")
_WITH_NAME = ("label", "tag", "tagged")
_ALONE = ("fragment", "allow-opts")


@dataclass(frozen=True, slots=True)
class Side:
    """Where packets come from or go to."""

    hosts: tuple[str, ...] = (pf_syntax.ANY,)
    ports: tuple[str, ...] = ("",)


@dataclass(slots=True)
class Match:
    """Which packets a rule is for."""

    interfaces: tuple[str, ...] = ("",)
    family: str = ""
    protocols: tuple[str, ...] = ("",)
    source: Side = field(default_factory=Side)
    target: Side = field(default_factory=Side)

    def each(self) -> Iterator[tuple[str, str]]:
        """Yield each combination as it is shown, and its protocol."""
        sides = product(self.source.hosts, self.source.ports, self.target.hosts, self.target.ports)
        for device, protocol, side in product(self.interfaces, self.protocols, list(sides)):
            families = {pf_syntax.family(side[0]), pf_syntax.family(side[2]), self.family} - {""}
            if len(families) <= 1:
                yield _shown(device, "".join(families), protocol, side), protocol


def match(words: Words) -> Match:
    """Take the part of a rule that says which packets it is for."""
    found = Match()
    if words.accept("on"):
        found.interfaces = words.list_of(pf_syntax.interface)
    found.family = words.accept(pf_syntax.INET, pf_syntax.INET6)
    if words.accept("proto"):
        found.protocols = words.list_of(pf_syntax.protocol)
    if not words.accept("all"):
        found.source = _side(words, "from")
        found.target = _side(words, "to")
    _check_ports(words, found)
    if not list(found.each()):
        words.fail("rule expands to no valid combination")
    return found


def filtering(words: Words, *, policy: str) -> list[str]:
    """Take a rule that lets packets pass or blocks them, from its first word on."""
    action = words.expect("pass", "block")
    shown = "pass" if action == "pass" else f"block {_block_kind(words, policy)}"
    shown += _direction(words)
    matched = match(words)
    options, state = _options(words)
    return [
        f"{shown}{text}{_state(action, state, protocol)}{options}"
        for text, protocol in matched.each()
    ]


def scrubbing(words: Words, refused: str) -> list[str]:
    """Take a rule of normalisation; `refused` is what stands before it."""
    shown = refused + words.expect("scrub") + _direction(words)
    matched = match(words)
    options = _scrub_options(words)
    return [f"{shown}{text}{options}" for text, _ in matched.each()]


def translation(words: Words, refused: str) -> list[str]:
    """Take a rule of translation; `refused` is what stands before it."""
    kind = words.expect("nat", "rdr", "binat")
    shown = f"{refused}{kind}{_spaced(words.accept('pass'))}{_logged(words)}"
    matched = match(words)
    tagged = _names(words)
    target = _translated(words, kind) if not refused else ""
    return [f"{shown}{text}{tagged}{target}" for text, _ in matched.each()]


def dummynet(words: Words, refused: str) -> list[str]:
    """Take a rule that leads packets through a pipe."""
    shown = refused + words.expect("dummynet") + _direction(words)
    matched = match(words)
    kind = words.expect("pipe", "queue")
    number = words.value()
    return [f"{shown}{text} {kind} {number}" for text, _ in matched.each()]


def attached(words: Words, shown: str) -> list[str]:
    """Take what stands behind the name of an anchor, up to the end of the line or an opening brace."""
    direction = _direction(words)
    matched = match(words)
    options, _ = _options(words)
    tail = " fragment reassemble" if shown.startswith("scrub-") else ""
    return [f"{shown}{direction}{text}{options}{tail}" for text, _ in matched.each()]


def _direction(words: Words) -> str:
    way = words.accept("in", "out")
    return _spaced(way) + _logged(words) + _spaced(words.accept("quick"))


def _logged(words: Words) -> str:
    if not words.accept("log"):
        return ""
    if not words.accept("("):
        return " log"
    options = words.value()
    words.expect(")")
    return f" log ({options})"


def _block_kind(words: Words, policy: str) -> str:
    kind = words.accept("drop", "return", "return-rst", "return-icmp", "return-icmp6")
    if kind.startswith("return-") and words.accept("("):
        inner = words.value()
        words.expect(")")
        return f"{kind}({inner})"
    return kind or policy


def _side(words: Words, name: str) -> Side:
    if not words.accept(name):
        return Side()
    hosts: tuple[str, ...] = (pf_syntax.ANY,)
    if words.peek().text != "port":
        hosts = words.list_of(pf_syntax.host)
    return Side(hosts, pf_syntax.ports(words) if words.accept("port") else ("",))


def _check_ports(words: Words, found: Match) -> None:
    has_ports = found.source.ports != ("",) or found.target.ports != ("",)
    if has_ports and not all(one in _TRANSPORT for one in found.protocols):
        words.fail(_NO_TRANSPORT)


def _options(words: Words) -> tuple[str, str]:
    """Take the options behind the hosts; return how they are shown, and the state that is kept, if said."""
    shown, state, flags = "", "", ""
    while word := words.accept(
        *_WITH_VALUE, *_WITH_NAME, *_ALONE, *_STATES, "flags", "user", "group"
    ):
        if word == "flags":
            flags = f" flags {_flags(words)}"
        elif word in _STATES:
            state = f" {word} {words.expect('state')}{_state_options(words)}"
        else:
            shown += _option(words, word)
    return shown, flags + state


def _option(words: Words, word: str) -> str:
    if word in _ALONE:
        return f" {word}"
    if word in _WITH_NAME:
        return f' {word} "{words.value()}"'
    sign = words.accept("=", "!=", "<", ">", "<=", ">=")
    return f" {word} {sign + ' ' if sign else ''}{words.value()}"


def _flags(words: Words) -> str:
    if words.accept(pf_syntax.ANY):
        return pf_syntax.ANY
    first = "" if words.peek().text == "/" else words.value()
    words.expect("/")
    second = words.value()
    if set(first + second) - set("FSRPAUEW"):
        words.fail("bad flags")
    return f"{first}/{second}"


def _state_options(words: Words) -> str:
    if not words.accept("("):
        return ""
    parts = []
    while not words.accept(")"):
        parts.append(words.accept(",", "<", ">", "/", "=") or words.value())
    return f" ({' '.join(parts)})"


def _state(action: str, stated: str, protocol: str) -> str:
    """Return the state that a rule keeps: one that passes packets keeps it unless told otherwise, from a connection's first one on."""
    if action == "block" or "no state" in stated:
        return stated
    kept = stated if "state" in stated else f"{stated} keep state"
    begins = protocol in {"", "tcp"} and "flags" not in stated
    return f" flags S/SA{kept}" if begins else kept


def _scrub_options(words: Words) -> str:
    shown = ""
    while word := words.accept(
        "no-df", "random-id", "max-mss", "min-ttl", "fragment", "reassemble"
    ):
        values = {"max-mss": 1, "min-ttl": 1, "fragment": 1, "reassemble": 1}
        shown += f" {word}" + (f" {words.value()}" if word in values else "")
    return shown if "fragment" in shown else f"{shown} fragment reassemble"


def _names(words: Words) -> str:
    shown = ""
    while word := words.accept("tag", "tagged"):
        shown += f' {word} "{words.value()}"'
    return shown


def _translated(words: Words, kind: str) -> str:
    words.expect("->")
    hosts = words.list_of(pf_syntax.host)
    shown = hosts[0] if len(hosts) == 1 else "{ " + ", ".join(hosts) + " }"
    if words.accept("port"):
        shown += f" port {words.value()}"
    pool = words.accept(
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


Rule = Callable[[Words, str], list[str]]
