"""What VMs may reach: an anchor of the packet filter, in force now and after every start of the Mac.

The whole ruleset is loaded by nobody but the job at boot, which is installed and not started: on a live Mac it would throw away
what macOS has added for running VMs. Live, only our anchor is loaded; a label that holds its hash shows whether this very text is
in force. Until the main ruleset refers to the anchor, which takes a boot, nothing is filtered; the verification sees to that. Where
the system's file is a link, the link stays, and what it leads to is written.
"""

from __future__ import annotations

import ipaddress
import plistlib
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from bramley.api.names import host, launchd
from bramley.base.errors import Cause, UnsupportedHost
from bramley.host import drift, grammar, pf_conf
from bramley.host.commands import Command, Find, Look, LookAt, Probe, Run, Write
from bramley.host.facts import FILE, LINK, Facts
from bramley.host.launch_daemon import CHECK, is_roots
from bramley.host.spec import Egress

CACHE_PORT = 4000
PRIVATE_PORTS = "30000:32767"
WIDEST = 8
# Everything that is not the internet: ours, the provider's, the tailnet's, the link's, and what is no single host.
BLOCKED = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
)  # fmt: skip
# Where a Mac may have a public address: no list of networks knows that one, and macOS' pf takes `(self)` for nobody. It follows the
# addresses of interfaces that are named, also of those that come later.
OWN = (
    *(f"(en{number})" for number in range(16)),
    "(bond0)",
    *(f"(vlan{number})" for number in range(4)),
)
MAIN = Look(("pfctl", "-s", "rules"), as_root=True)
ATTACHED = f'anchor "{host.PF_ANCHOR}"'

CONF = LookAt(host.PF_CONF)
CONF_PLACE = Find(host.PF_CONF)
_FOLDER = posixpath.dirname(host.PF_CONF)
# macOS' /etc is a link to the second one.
_FOLDERS = (f"{_FOLDER}/", f"/private{_FOLDER}/")
_ANCHOR = LookAt(host.PF_ANCHOR_FILE)
LIVE = Look(("pfctl", "-a", host.PF_ANCHOR, "-s", "rules"), as_root=True)
_STATUS = Look(("pfctl", "-s", "info"), as_root=True)
BOOT_JOB = launchd.daemon_plist(launchd.PACKET_FILTER)
_LABEL = "@label@"


@dataclass(frozen=True, slots=True)
class Firewall:
    """Keep VMs away from everything but the internet and what they are allowed."""

    name: ClassVar[str] = "firewall"
    title: ClassVar[str] = "what VMs may reach"

    egress: Egress
    _anchor: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        grammar.require("the firewall", _checked(self.egress))
        object.__setattr__(self, "_anchor", anchor(self.egress))

    def wanted(self) -> drift.Wanted:
        """Stamp the anchor, our block of the system's file and the job at boot."""
        parts = {
            "anchor": self._anchor.encode(),
            "block": pf_conf.BLOCK,
            "boot-job": boot_job(),
        }
        return drift.Wanted(
            drift.Part.FIREWALL, {name: drift.digest(text) for name, text in parts.items()}
        )

    def looks(self) -> list[Probe]:
        """Ask for all three files, and what is in force."""
        files = [CONF, _ANCHOR, LookAt(BOOT_JOB)]
        return [*files, *(Find(file.path) for file in files), LIVE, _STATUS]

    def looks_further(self, seen: Facts) -> list[Probe]:
        """Ask for what the system's file leads to, where it is a link."""
        return conf_looks_further(seen)

    def refuse(self, seen: Facts) -> None:
        """Refuse a system's file that cannot be kept as it is."""
        if why := conf_refusal(seen):
            raise UnsupportedHost(why)
        if seen.file(CONF) is None:
            raise UnsupportedHost(
                f"{host.PF_CONF} is missing, and with it Apple's own rules; put macOS' file back and run this again"
            )

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Write what differs, the anchor before what loads it, then put the anchor alone in force."""
        yield from self._files(seen)
        if "Status: Enabled" not in seen.said(_STATUS).text:
            yield Run(argv=("pfctl", "-E"), purpose="switch the packet filter on", as_root=True)
        if label(self._anchor) not in seen.said(LIVE).text:
            yield Run(
                argv=("pfctl", "-a", host.PF_ANCHOR, "-f", host.PF_ANCHOR_FILE),
                purpose="put our rules in force, and no others",
                as_root=True,
            )

    def _files(self, seen: Facts) -> Iterator[Command]:
        text = seen.file(CONF) or b""
        check = ("pfctl", "-n", "-a", host.PF_ANCHOR, "-f", "{}")
        yield from _written(
            seen, _ANCHOR, self._anchor.encode(), purpose="write our rules", check=check
        )
        if text != pf_conf.with_block(text):
            yield Write(
                path=conf_path(seen),
                content=pf_conf.with_block(text),
                purpose="have our rules loaded at boot",
                check=("pfctl", "-n", "-f", "{}"),
                before=text,
            )
        yield from _written(
            seen,
            LookAt(BOOT_JOB),
            boot_job(),
            # Not loaded now: that would be the load of everything on a live Mac.
            purpose="install the job that loads all rules at boot",
            check=CHECK,
        )


def conf_looks_further(seen: Facts) -> list[Probe]:
    """Ask for what the system's file leads to, where it is a link that may be followed."""
    path = conf_path(seen)
    return [Find(path)] if path not in {"", host.PF_CONF} else []


def conf_path(seen: Facts) -> str:
    """Return where the system's file really lies; empty if a link leads to where we do not write. Asked for with `CONF_PLACE`."""
    found = seen.found(CONF_PLACE)
    if found is None or found.kind != LINK:
        return host.PF_CONF
    path = posixpath.join(_FOLDER, found.target)
    # Two dots would lead elsewhere from the real folder than from the one that is named.
    is_near = path.startswith(_FOLDERS) and ".." not in path.split("/")
    return posixpath.normpath(path) if is_near else ""


def conf_refusal(seen: Facts) -> str:
    """Return why the system's file cannot be rewritten as it is; empty if it can."""
    path, text = conf_path(seen), seen.file(CONF) or b""
    if path != host.PF_CONF:
        target = seen.found(Find(path)) if path else None
        if target is None or target.kind != FILE:
            link = seen.found(CONF_PLACE)
            return (
                f"{host.PF_CONF} is a link to {(link.target if link else '')[:200]!r}, which is no file in {_FOLDER}; put macOS' file in "
                "its place and run this again"
            )
    # With our block, too: what is written must be read whole the next time.
    if max(len(text), len(pf_conf.with_block(text))) >= CONF.most:
        return f"{host.PF_CONF} is larger than {CONF.most // 1024} KiB; look what has grown there"
    return ""


def is_attached(seen: Facts) -> bool:
    """Tell whether the main ruleset in force refers to our anchor; asked for with `MAIN`."""
    return ATTACHED in seen.said(MAIN).text


def is_in_force(seen: Facts) -> bool:
    """Tell whether rules of ours are in force, of whichever release; asked for with `LIVE`."""
    return f'label "{host.PF_ANCHOR}:' in seen.said(LIVE).text


def anchor(egress: Egress) -> str:
    """Return the rules; the hash of everything else stands in the label of the last one."""
    text = _RULES.replace("@carve-outs@\n", "".join(_carve_outs(egress)))
    return text.replace(_LABEL, f"{host.PF_ANCHOR}:{drift.digest(text.encode())[:16]}")


def label(rules: str) -> str:
    """Return the label in these rules, as pfctl shows it."""
    return next(word for word in rules.split() if word.startswith(f'"{host.PF_ANCHOR}:'))


def boot_job() -> bytes:
    """Return the property list of the job that loads all rules when the Mac starts."""
    return plistlib.dumps(
        {
            "Label": launchd.PACKET_FILTER,
            "ProgramArguments": ["/sbin/pfctl", "-f", host.PF_CONF, "-E"],
            "RunAtLoad": True,
            "StandardErrorPath": host.PF_BOOT_LOG,
        },
        sort_keys=False,
    )


def _written(
    seen: Facts, file: LookAt, content: bytes, *, purpose: str, check: tuple[str, ...]
) -> Iterator[Command]:
    before = seen.file(file)
    if before != content or not is_roots(seen, file.path):
        yield Write(path=file.path, content=content, purpose=purpose, check=check, before=before)


def _carve_outs(egress: Egress) -> Iterator[str]:
    allowed = (
        "pass quick inet proto {protocols} from <vm_sources> to {to} port {ports} keep state\n"
    )
    if egress.cache_network:
        yield allowed.format(protocols="tcp", to=egress.cache_network, ports=CACHE_PORT)
    if egress.cluster_dns:
        yield allowed.format(protocols="{ tcp, udp }", to=egress.cluster_dns, ports=53)
    if egress.private_network:
        yield allowed.format(protocols="tcp", to=egress.private_network, ports=PRIVATE_PORTS)


def _checked(egress: Egress) -> Iterator[Cause]:
    """Yield what would open more than was meant, or nothing at all."""
    for name in ("cache_network", "private_network"):
        value = getattr(egress, name)
        if value:
            yield from _narrow(name, ipaddress.IPv4Network(value))
    if egress.cluster_dns and not egress.cache_network:
        yield _cause(
            "cluster_dns", "is of no use without the network of the cache, whose names it knows"
        )
    if egress.cluster_dns and not _is_address(egress.cluster_dns):
        yield _cause("cluster_dns", "must be an address of IPv4: a name may lead elsewhere later")


def _narrow(name: str, network: ipaddress.IPv4Network) -> Iterator[Cause]:
    if network.prefixlen < WIDEST:
        yield _cause(name, f"is wider than /{WIDEST}; name only what VMs need")
    if network.overlaps(ipaddress.IPv4Network(host.VM_NETWORK)):
        yield _cause(name, f"overlaps {host.VM_NETWORK}, the VMs' own network")


def _is_address(value: str) -> bool:
    try:
        return bool(ipaddress.IPv4Address(value))
    except ValueError:
        return False


def _cause(name: str, rule: str) -> Cause:
    return Cause(name, grammar.INVALID, f"{name} {rule}")


_RULES = f"""\
# What VMs may reach. Written whole whenever it changes: what is added by hand is lost.
bridges = "{{ {", ".join(host.VM_BRIDGES)} }}"
table <vm_sources> const {{ {host.VM_NETWORK} }}
table <blocked_dst> const {{ {", ".join(BLOCKED)} }}

# This Mac may speak to its VMs from its address among theirs, and gets their answers; they get an address and names from it.
pass out quick on $bridges inet from <vm_sources> to <vm_sources> keep state
pass out quick on $bridges inet proto udp from <vm_sources> port 67 to any port 68
pass in quick on $bridges inet proto udp from any port 68 to any port 67
pass in quick on $bridges inet proto {{ tcp, udp }} from <vm_sources> to <vm_sources> port 53 keep state

# What they may reach besides the internet.
@carve-outs@

# Nothing else of this Mac, of its neighbours or of any private network, and no other sender than VMs; of IPv6 nothing at all.
block drop in quick on $bridges inet from ! <vm_sources> to any
block drop quick inet from <vm_sources> to {{ {", ".join(OWN)} }}
block drop quick on $bridges inet6 all
block drop quick inet from <vm_sources> to <blocked_dst> label "{_LABEL}"
"""
