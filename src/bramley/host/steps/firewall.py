"""The egress rules of VMs: an anchor of the packet filter, in force now and after every boot of the Mac.

Only the boot job loads the whole ruleset; it is installed and not started, because on a running Mac it would flush the rules that
macOS has added for running VMs. On a running Mac only our anchor is loaded; a label with its hash shows whether this text is in
force. Until the main ruleset refers to the anchor, nothing is filtered; the reboot for that is done by the step `verification`. If
pf.conf is a link, the link stays and its target is written.
"""

from __future__ import annotations

import ipaddress
import plistlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bramley.api.names import host, launchd
from bramley.base.errors import Cause, UnsupportedHost
from bramley.host import drift, grammar
from bramley.host.commands import Command, Probe, ReadFile, Run, RunProbe, Stat, Write
from bramley.host.facts import FILE, LINK, Facts
from bramley.host.launch_daemon import CHECK, is_owned_by_root
from bramley.host.spec import AllowedNetwork, Egress
from bramley.host.step import Step

BLOCK_BEGIN = host.PF_BEGIN.encode()
BLOCK_END = host.PF_END.encode()
PF_BLOCK = f"""\
{host.PF_BEGIN}
anchor "{host.PF_ANCHOR}"
load anchor "{host.PF_ANCHOR}" from "{host.PF_ANCHOR_FILE}"
{host.PF_END}
""".encode()

_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_ANCHOR_NAME = host.PF_ANCHOR.encode()
_LEGACY_COMMENT = host.PF_LEGACY_COMMENT.encode()
# Our anchor with the rest of its line, except for an opening brace: the rules after it would lose their beginning.
_OUR_ANCHOR = re.compile(
    rb'\s*(?:load\s+)?anchor\s+(?:"%(name)s"|%(name)s(?=[\s#]|$))[^{]*'
    % {b"name": re.escape(_ANCHOR_NAME)}
)
_ANY_ANCHOR = re.compile(rb"\s*(?:load\s+|[a-z]+-)?anchor\s")


def with_block(text: bytes) -> bytes:
    """Return the file with one block of ours at its end, where pf requires filter rules."""
    rest = without_block(text)
    separator = b"" if rest.endswith(b"\n") or not rest else b"\n"
    return rest + separator + PF_BLOCK


def without_block(text: bytes) -> bytes:
    """Return the file without any marked block, loose marker or unmarked line of ours."""
    lines = _LINE.findall(text)
    blocks = _block_line_indexes(lines)
    return b"".join(
        line for index, line in enumerate(lines) if index not in blocks and not _is_ours(line)
    )


def _block_line_indexes(lines: Sequence[bytes]) -> set[int]:
    """Return the indexes of lines between a begin marker and its end marker.

    A begin marker without an end is not a block: it would include foreign lines after it. So a second begin marker, or a foreign
    anchor, shows that the end marker of the first one was lost.
    """
    indexes: set[int] = set()
    begin: int | None = None
    for index, line in enumerate(lines):
        marker = line.strip()
        if marker == BLOCK_BEGIN:
            begin = index
        elif marker == BLOCK_END and begin is not None:
            indexes.update(range(begin, index))
            begin = None
        elif _ANY_ANCHOR.match(line) and _ANCHOR_NAME not in line:
            begin = None
    return indexes


def _is_ours(line: bytes) -> bool:
    text = line.strip()
    return (
        text in {BLOCK_BEGIN, BLOCK_END}
        or text.startswith(_LEGACY_COMMENT)
        or _OUR_ANCHOR.fullmatch(line) is not None
    )


CACHE_PORT = 4000
PRIVATE_PORTS = "30000:32767"
MIN_PREFIX_LENGTH = 8
# All networks that are not the internet: private, carrier-grade NAT and tailnet, loopback, link-local, reserved and multicast.
BLOCKED = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
)  # fmt: skip
# Networks that no exception may contain, and why.
_REFUSED = {
    "127.0.0.0/8": "is the Mac itself",
    "169.254.0.0/16": "is link-local and contains the metadata services of providers",
    "224.0.0.0/3": "contains multicast and reserved addresses, which are no hosts",
    "0.0.0.0/8": "is reserved and contains no hosts",
}
# The only networks of `allow`; the others are the tailnet and the internet.
PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
_TAILNET = "100.64.0.0/10"
# Interfaces with an address of this Mac, which may be in an allowed network or in none of the blocked ones; `(self)` matches nothing
# in macOS' pf. pf follows the addresses of named interfaces, also of those that appear later.
OWN_INTERFACES = (
    *(f"(en{number})" for number in range(16)),
    "(bond0)",
    *(f"(vlan{number})" for number in range(4)),
    "(bridge0)",
    *(f"(utun{number})" for number in range(16)),
    "(lo0)",
)
MAIN_RULES = RunProbe(("pfctl", "-s", "rules"), as_root=True)
ATTACHED = f'anchor "{host.PF_ANCHOR}"'

CONF = ReadFile(host.PF_CONF)
CONF_STAT = Stat(host.PF_CONF)
_FOLDER = posixpath.dirname(host.PF_CONF)
# On macOS /etc is a link to /private/etc.
_FOLDERS = (f"{_FOLDER}/", f"/private{_FOLDER}/")
_ANCHOR = ReadFile(host.PF_ANCHOR_FILE)
# The longest list of rules fits: the last rule has the label.
ANCHOR_RULES = RunProbe(
    ("pfctl", "-a", host.PF_ANCHOR, "-s", "rules"), as_root=True, max_bytes=256 * 1024
)
_STATUS = RunProbe(("pfctl", "-s", "info"), as_root=True)
BOOT_JOB = launchd.daemon_plist(launchd.PACKET_FILTER)
_LABEL = "@label@"


@dataclass(frozen=True, slots=True)
class Firewall(Step):
    """Allow VMs to reach the internet and the configured exceptions, and nothing else."""

    name: ClassVar[str] = "firewall"
    title: ClassVar[str] = "egress rules of VMs"

    egress: Egress
    _anchor: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        grammar.require("the firewall", _check(self.egress))
        object.__setattr__(self, "_anchor", anchor(self.egress))

    def desired(self) -> drift.DesiredPart:
        """Stamp the anchor, our block in pf.conf and the boot job."""
        parts = {
            "anchor": self._anchor.encode(),
            "block": PF_BLOCK,
            "boot-job": boot_job(),
        }
        return drift.DesiredPart(
            drift.Part.FIREWALL, {name: drift.digest(text) for name, text in parts.items()}
        )

    def probes(self) -> list[Probe]:
        """Probe the three files, and the rules in force."""
        files = [CONF, _ANCHOR, ReadFile(BOOT_JOB)]
        return [*files, *(Stat(file.path) for file in files), ANCHOR_RULES, _STATUS]

    def follow_up_probes(self, facts: Facts) -> list[Probe]:
        """Probe the target of pf.conf, if it is a link."""
        return conf_follow_up_probes(facts)

    def check_supported(self, facts: Facts) -> None:
        """Refuse a pf.conf whose foreign content cannot be preserved."""
        if reason := conf_refusal(facts):
            raise UnsupportedHost(reason)
        if facts.file(CONF) is None:
            raise UnsupportedHost(
                f"{host.PF_CONF} is missing, and with it Apple's own rules; restore macOS' file and run this again"
            )

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Write files that differ, the anchor before the files that load it, then load only the anchor."""
        yield from self._files(facts)
        if "Status: Enabled" not in facts.result(_STATUS).text:
            yield Run(argv=("pfctl", "-E"), purpose="enable the packet filter", as_root=True)
        # Only the anchor: loading the whole file would drop the rules that macOS has added for running VMs.
        if label(self._anchor) not in facts.result(ANCHOR_RULES).text:
            yield Run(
                argv=("pfctl", "-a", host.PF_ANCHOR, "-f", host.PF_ANCHOR_FILE),
                purpose="load our rules, and no others",
                as_root=True,
            )

    def _files(self, facts: Facts) -> Iterator[Command]:
        text = facts.file(CONF) or b""
        check = ("pfctl", "-n", "-a", host.PF_ANCHOR, "-f", "{}")
        yield from _write(
            facts, _ANCHOR, self._anchor.encode(), purpose="write our rules", check=check
        )
        if text != with_block(text):
            yield Write(
                path=conf_path(facts),
                content=with_block(text),
                purpose="load our rules at boot",
                check=("pfctl", "-n", "-f", "{}"),
                before=text,
            )
        yield from _write(
            facts,
            ReadFile(BOOT_JOB),
            boot_job(),
            # Not loaded now: it would load the whole ruleset on a running Mac.
            purpose="install the job that loads all rules at boot",
            check=CHECK,
        )


def conf_follow_up_probes(facts: Facts) -> list[Probe]:
    """Return the probe of the target of pf.conf, if it is a link that may be followed."""
    path = conf_path(facts)
    return [Stat(path)] if path not in {"", host.PF_CONF} else []


def conf_path(facts: Facts) -> str:
    """Return the real path of pf.conf; empty if it is a link to a path that we do not write. Needs the probe `CONF_STAT`."""
    stat = facts.stat(CONF_STAT)
    if stat is None or stat.kind != LINK:
        return host.PF_CONF
    path = posixpath.join(_FOLDER, stat.target)
    # Two dots would resolve differently from the real folder than from the named one.
    is_allowed = path.startswith(_FOLDERS) and ".." not in path.split("/")
    return posixpath.normpath(path) if is_allowed else ""


def conf_refusal(facts: Facts) -> str:
    """Return why pf.conf cannot be rewritten without loss; empty if it can."""
    path, text = conf_path(facts), facts.file(CONF) or b""
    if path != host.PF_CONF:
        target = facts.stat(Stat(path)) if path else None
        if target is None or target.kind != FILE:
            link = facts.stat(CONF_STAT)
            return (
                f"{host.PF_CONF} is a link to {(link.target if link else '')[:200]!r}, which is not a file in {_FOLDER}; restore macOS' "
                "file and run this again"
            )
    # With our block, too: the next probe must read the whole file.
    if max(len(text), len(with_block(text))) >= CONF.max_bytes:
        return f"{host.PF_CONF} is larger than {CONF.max_bytes // 1024} KiB; remove what was added to it"
    return ""


def is_attached(facts: Facts) -> bool:
    """Return whether the main ruleset in force refers to our anchor; needs the probe `MAIN_RULES`."""
    return ATTACHED in facts.result(MAIN_RULES).text


def is_in_force(facts: Facts) -> bool:
    """Return whether our rules, of any release, are in force; needs the probe `ANCHOR_RULES`."""
    return f'label "{host.PF_ANCHOR}:' in facts.result(ANCHOR_RULES).text


def anchor(egress: Egress) -> str:
    """Return the rules; the label of the last one contains the hash of all others."""
    text = _RULES.replace("@exceptions@\n", "".join(_exceptions(egress)))
    return text.replace(_LABEL, f"{host.PF_ANCHOR}:{drift.digest(text.encode())[:16]}")


def label(rules: str) -> str:
    """Return the label in these rules, as pfctl shows it."""
    return next(word for word in rules.split() if word.startswith(f'"{host.PF_ANCHOR}:'))


def boot_job() -> bytes:
    """Return the property list of the job that loads the whole ruleset at boot."""
    return plistlib.dumps(
        {
            "Label": launchd.PACKET_FILTER,
            "ProgramArguments": ["/sbin/pfctl", "-f", host.PF_CONF, "-E"],
            "RunAtLoad": True,
            "StandardErrorPath": host.PF_BOOT_LOG,
        },
        sort_keys=False,
    )


def _write(
    facts: Facts, file: ReadFile, content: bytes, *, purpose: str, check: tuple[str, ...]
) -> Iterator[Command]:
    before = facts.file(file)
    if before != content or not is_owned_by_root(facts, file.path):
        yield Write(path=file.path, content=content, purpose=purpose, check=check, before=before)


def _exceptions(egress: Egress) -> Iterator[str]:
    allowed = (
        "pass quick inet proto {protocols} from <vm_sources> to {to} port {ports} keep state\n"
    )
    if egress.cache_network:
        yield allowed.format(protocols="tcp", to=egress.cache_network, ports=CACHE_PORT)
    if egress.cluster_dns:
        yield allowed.format(protocols="{ tcp, udp }", to=egress.cluster_dns, ports=53)
    if egress.private_network:
        yield allowed.format(protocols="tcp", to=egress.private_network, ports=PRIVATE_PORTS)
    # Sorted: another order in the file is no drift.
    yield from sorted({_allow_rule(allowed) for allowed in egress.allow})


def _allow_rule(allowed: AllowedNetwork) -> str:
    ports = ", ".join(str(port).replace("-", ":") for port in allowed.ports or ())
    protocol = allowed.protocol or ("tcp" if ports else "")
    packets = f"inet proto {protocol}" if protocol else "inet"
    to = f"{allowed.cidr} port {{ {ports} }}" if ports else allowed.cidr
    return f"pass quick {packets} from <vm_sources> to {to} keep state\n"


def _check(egress: Egress) -> Iterator[Cause]:
    """Yield the errors of exceptions that allow too much, or that have no effect."""
    for name in ("cache_network", "private_network"):
        value = getattr(egress, name)
        if value:
            yield from _check_network(name, ipaddress.IPv4Network(value))
    for index, allowed in enumerate(egress.allow):
        yield from _check_allowed(f"allow[{index}].cidr", ipaddress.IPv4Network(allowed.cidr))
    if egress.cluster_dns:
        yield from _check_resolver(egress)


def _check_resolver(egress: Egress) -> Iterator[Cause]:
    if not (egress.cache_network or egress.allow):
        rule = "has no effect without the network of a cache or an allowed network, whose names it resolves"
        yield _cause("cluster_dns", rule)
    try:
        address = ipaddress.IPv4Network(egress.cluster_dns)
    except ValueError:
        rule = "must be an IPv4 address: a name may resolve to another one later"
        yield _cause("cluster_dns", rule)
    else:
        yield from _check_network("cluster_dns", address)


def _check_network(name: str, network: ipaddress.IPv4Network) -> Iterator[Cause]:
    if network.prefixlen < MIN_PREFIX_LENGTH:
        yield _cause(name, f"is wider than /{MIN_PREFIX_LENGTH}; allow only what VMs need")
        return
    if network.overlaps(ipaddress.IPv4Network(host.VM_NETWORK)):
        yield _cause(
            name,
            f"overlaps {host.VM_NETWORK}, the VMs' own network; name the parts of it that VMs need",
        )
    for each, rule in zip(_networks(_REFUSED), _REFUSED.values(), strict=True):
        if network.overlaps(each):
            yield _cause(name, f"{network} {rule}")


def _check_allowed(name: str, network: ipaddress.IPv4Network) -> Iterator[Cause]:
    """Yield the errors of a network of `allow`, which extends what VMs may reach and restricts nothing."""
    errors = [*_check_network(name, network)]
    is_private = any(network.subnet_of(each) for each in _networks(PRIVATE))
    if not errors and network.overlaps(ipaddress.IPv4Network(_TAILNET)):
        rule = "is the tailnet, in which VMs would have the identity of this Mac"
        errors = [_cause(name, f"{network} {rule}")]
    elif not errors and not is_private:
        rule = f"is not within {', '.join(PRIVATE)}; VMs reach the internet without it"
        errors = [_cause(name, f"{network} {rule}")]
    yield from errors


def _networks(texts: Iterable[str]) -> list[ipaddress.IPv4Network]:
    return [ipaddress.IPv4Network(text) for text in texts]


def _cause(name: str, rule: str) -> Cause:
    return Cause(name, grammar.INVALID, f"{name} {rule}")


_RULES = f"""\
# Egress rules of VMs. The file is generated: changes by hand are lost.
bridges = "{{ {", ".join(host.VM_BRIDGES)} }}"
table <vm_sources> const {{ {host.VM_NETWORK} }}
table <blocked_dst> const {{ {", ".join(BLOCKED)} }}

# This Mac may connect to its VMs from its address in their network; they get DHCP and DNS from it.
pass out quick on $bridges inet from <vm_sources> to <vm_sources> keep state
pass out quick on $bridges inet proto udp from <vm_sources> port 67 to any port 68
pass in quick on $bridges inet proto udp from any port 68 to any port 67
pass in quick on $bridges inet proto {{ tcp, udp }} from <vm_sources> to <vm_sources> port 53 keep state

# Blocked before all exceptions: addresses of this Mac, in whichever network they are.
block drop quick inet from <vm_sources> to {{ {", ".join(OWN_INTERFACES)} }}

# Exceptions: private addresses that VMs may reach.
@exceptions@

# Blocked: other senders than VMs, all private networks, and IPv6.
block drop in quick on $bridges inet from ! <vm_sources> to any
block drop quick on $bridges inet6 all
block drop quick inet from <vm_sources> to <blocked_dst> label "{_LABEL}"
"""
