"""What stands in pf's rules: hosts, ports, protocols and interfaces, checked and in the form in which pfctl shows them."""

from __future__ import annotations

import ipaddress
import re

from bramley.sim.macos.programs.pf_words import Words

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
