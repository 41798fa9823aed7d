"""Allowed networks of VMs, from the configuration file to the packets that pass on a Mac; the Mac's own ports stay closed."""

from __future__ import annotations

import dataclasses
from itertools import product
from pathlib import Path

import pytest

from bramley.app import host_config
from bramley.base.errors import BadConfiguration, InvalidSpec
from bramley.host import converge, sequence
from bramley.host.artifacts import ArtifactStore
from bramley.host.spec import MAX_ALLOWED_NETWORKS, MAX_PORTS, AllowedNetwork, Egress
from bramley.host.step import Step
from bramley.host.steps.firewall import Firewall
from bramley.sim.macos.connection import ModelConnection
from tests import virtual_time
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.interruption import MacTemplate, interrupt_everywhere
from tests.unit.host.steps.packets import Filter, Packet

VM, GATEWAY = "192.168.64.5", "192.168.64.1"
# Addresses of the Mac in allowed networks, on every kind of interface.
OWN = {
    "bridge100": [GATEWAY],
    "en0": ["10.20.0.5"],
    "vlan1": ["10.20.0.6"],
    "utun4": ["10.20.0.7"],
    "bridge0": ["10.30.0.8"],
    "lo0": ["127.0.0.1", "10.30.0.9"],
}
ALLOW = """
node: mac-1
egress:
  allow:
    - {cidr: 10.20.0.0/16, ports: [443, 8000-8100]}
    - {cidr: 10.2.0.10/32, ports: [53], protocol: udp}
    - cidr: 10.30.0.0/16
    - {cidr: 10.40.0.0/16, protocol: udp}
"""
REACHED = [
    *(("10.20.7.7", 443, "tcp"), ("10.20.7.7", 8000, "tcp"), ("10.20.7.7", 8100, "tcp")),
    ("10.2.0.10", 53, "udp"),
    *(("10.30.1.1", 22, "tcp"), ("10.30.1.1", 53, "udp"), ("10.30.1.1", 0, "icmp")),
    ("10.40.1.1", 4500, "udp"),
]
BLOCKED = [
    *(("10.20.7.7", 442, "tcp"), ("10.20.7.7", 7999, "tcp"), ("10.20.7.7", 8101, "tcp")),
    *(("10.20.7.7", 443, "udp"), ("10.20.7.7", 53, "udp"), ("10.20.7.7", 0, "icmp")),
    *(("10.2.0.10", 53, "tcp"), ("10.2.0.11", 53, "udp"), ("10.2.0.10", 443, "udp")),
    *(("10.21.0.1", 443, "tcp"), ("10.19.255.255", 443, "tcp"), ("10.40.1.1", 443, "tcp")),
    *(("169.254.169.254", 80, "tcp"), ("192.168.1.1", 443, "tcp"), (GATEWAY, 443, "tcp")),
    *(("192.168.64.6", 443, "tcp"), ("100.64.0.7", 443, "tcp")),
]


async def firewall_of(text: str, folder: Path) -> Firewall:
    """Return the step for a configuration file; errors name its fields."""
    path = folder / "mac.yaml"
    path.write_text(text)
    with host_config.config_errors(path):
        spec = await host_config.spec(host_config.read(path), folder, ArtifactStore())
        return Firewall(spec.egress)


async def firewall_for(entry: str, folder: Path) -> Firewall:
    return await firewall_of(f"node: a\negress: {{allow: [{entry}]}}\n", folder)


def reaches(
    connection: ModelConnection, target: str, port: int = 443, protocol: str = "tcp"
) -> bool:
    """Return whether a packet of a VM passes the rules in force."""
    found = connection.mac.state["pf"]["rulesets"]["tuist.runners"]
    rules = Filter(found["rules"], found["tables"], OWN)
    return rules.passes(Packet(source=VM, target=target, port=port, protocol=protocol))


async def test_vms_reach_allowed_networks(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)
    await converge.apply(connection, [await firewall_of("node: mac-1\n", tmp_path)])
    before = [each for each in REACHED if reaches(connection, *each)]

    await converge.apply(connection, [await firewall_of(ALLOW, tmp_path)])

    assert before == []
    assert [each for each in REACHED if not reaches(connection, *each)] == []
    assert [each for each in BLOCKED if reaches(connection, *each)] == []


async def test_allowed_network_does_not_open_the_mac_itself(tmp_path: Path) -> None:
    """SSH, the agent's endpoints and whatever else listens on the Mac, which may have an address in an allowed network."""
    connection = await fixtures.mac(tmp_path)
    await converge.apply(connection, [await firewall_of(ALLOW, tmp_path)])

    own = [address for addresses in OWN.values() for address in addresses]
    ports = (22, 443, 8080, 10250)
    assert [each for each in product(own, ports) if reaches(connection, *each)] == []
    assert reaches(connection, GATEWAY, 53, "udp")


async def test_network_of_the_cache_does_not_open_the_mac_itself(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)
    egress = Egress(cache_network="10.20.0.0/16", private_network="10.30.0.0/16")
    await converge.apply(connection, [Firewall(egress)])

    assert reaches(connection, "10.20.7.7", 4000)
    assert not reaches(connection, "10.20.0.5", 4000)
    assert not reaches(connection, "10.30.0.9", 30_000)


@pytest.mark.parametrize(
    ("cidr", "problem"),
    [
        ("0.0.0.0/0", "is wider than /8"),
        ("10.0.0.0/7", "must be a network .* write 10.0.0.0/7|is wider than /8"),
        ("127.0.0.0/8", "127.0.0.0/8 is the Mac itself"),
        ("169.254.169.254/32", "is link-local and contains the metadata services"),
        ("169.254.0.0/16", "is link-local"),
        ("192.168.64.0/24", "overlaps 192.168.64.0/22, the VMs' own network"),
        ("192.168.0.0/16", "overlaps 192.168.64.0/22"),
        ("192.168.67.1/32", "overlaps 192.168.64.0/22"),
        ("224.0.0.0/8", "contains multicast and reserved"),
        ("255.255.255.255/32", "contains multicast and reserved"),
        ("100.64.0.0/10", "is the tailnet"),
        ("100.101.102.103/32", "is the tailnet"),
        ("0.0.0.0/8", "is reserved"),
        ("140.82.112.0/20", "VMs reach the internet without it"),
        ("172.0.0.0/8", "VMs reach the internet without it"),
        ("10.20.0.1/16", "must be a network and not an address in one: write 10.20.0.0/16"),
        ("10.20.0.1", "must be an IPv4 network, 10.20.0.1/32 for this address alone"),
        ("10.20.0.0/33", "must be an IPv4 network"),
        ("10.20/16", "must be an IPv4 network"),
        ("fd00::/8", "must be an IPv4 network"),
        ("git.example", "must be an IPv4 network"),
        ("10.0.0.0/8 port 1:65535", "must be an IPv4 network"),
    ],
)
async def test_unsafe_or_invalid_network_is_refused(
    cidr: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSpec, match=rf"mac.yaml: egress.allow\[0\].cidr .*({problem})"):
        await firewall_for(f"{{cidr: '{cidr}'}}", tmp_path)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ("ports: [0]", r"ports\[0\] '0' must be a port from 1 to 65535"),
        ("ports: [443, 65536]", r"ports\[1\] '65536' must"),
        ("ports: [-1]", r"ports\[0\] '-1' must"),
        ("ports: [8100-8000]", r"ports\[0\] '8100-8000' must .* the lower port first"),
        ("ports: ['8000:8100']", r"ports\[0\] '8000:8100' must"),
        ("ports: ['443, 22']", r"ports\[0\] '443, 22' must"),
        ("ports: [https]", r"ports\[0\] 'https' must"),
        # YAML 1.1 reads the first as 1350, and the second as 291.
        ("ports: [22:30]", r"ports\[0\] '22:30' must"),
        ("ports: [0443]", r"ports\[0\] '0443' must"),
        ("ports: []", "ports '\\[\\]' must have an entry; leave it out to allow all ports"),
        (f"ports: {[*range(1, 18)]}", "ports '17 entries' must have at most 16"),
        ("protocol: icmp", "protocol 'icmp' must be tcp or udp"),
        ("protocol: TCP", "protocol 'TCP' must be tcp or udp"),
    ],
)
async def test_invalid_ports_are_refused(values: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=rf"mac.yaml: egress.allow\[0\].{problem}"):
        await firewall_for(f"{{cidr: 10.0.0.0/8, {values}}}", tmp_path)


@pytest.mark.parametrize(
    "entry",
    ["{ports: [1]}", "10.0.0.0/8", "{cidr: 10.0.0.0/8, port: 1}", "{cidr: 10.0.0.0/8, ports: 443}", "{cidr: 10.0.0.0/8, ports: [true]}",
     "{cidr: 10.0.0.0/8, ports: [1.5]}", "{cidr: 10.0.0.0/8, ports: null}", "{cidr: 10.0.0.0/8, protocol: null}"],
)  # fmt: skip
async def test_malformed_entry_is_refused_with_its_position(entry: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"\$\.egress\.allow\[0\]|\$\.egress\.allow\[\.\.\."):
        await firewall_for(entry, tmp_path)


async def test_too_many_networks_are_refused(tmp_path: Path) -> None:
    many = ", ".join("{cidr: 10.0.0.0/8}" for _ in range(MAX_ALLOWED_NETWORKS + 1))

    with pytest.raises(InvalidSpec, match=r"egress.allow '65 entries' must have at most 64"):
        await firewall_for(many, tmp_path)


async def test_longest_list_converges(tmp_path: Path) -> None:
    """The label that identifies the rules in force is in the last one."""
    ports = tuple(f"{60_000 + number}-65535" for number in range(MAX_PORTS))
    networks = (f"192.168.{100 + number}.240/28" for number in range(MAX_ALLOWED_NETWORKS))
    step = Firewall(
        Egress(allow=tuple(AllowedNetwork(cidr=each, ports=ports) for each in networks))
    )
    connection = await fixtures.mac(tmp_path)

    await converge.apply(connection, [step])

    assert (await converge.plan(connection, [step])).is_empty


async def test_another_order_is_no_drift() -> None:
    networks = (AllowedNetwork(cidr="10.1.0.0/16"), AllowedNetwork(cidr="10.2.0.0/16", ports=(1,)))

    stamps = {
        Firewall(Egress(allow=allow)).desired().stamp
        for allow in (networks, networks[::-1], networks * 2)
    }

    assert len(stamps) == 1


async def test_changed_list_applies_only_the_firewall(tmp_path: Path) -> None:
    def steps(*networks: str) -> list[Step]:
        allow = tuple(AllowedNetwork(cidr=each) for each in networks)
        spec = fixtures.spec(tmp_path, egress=Egress(allow=allow))
        return sequence.steps(spec, clock=virtual_time.clock())

    template = await MacTemplate.make(tmp_path / "macs", *steps("10.1.0.0/16"))
    connection = template.copy("mac")

    report = await converge.apply(connection, steps("10.2.0.0/16"))

    assert {name for name, changed in report.changed.items() if changed} == {"firewall"}
    assert not reaches(connection, "10.1.0.1")
    assert reaches(connection, "10.2.0.1")
    await interrupt_everywhere(template, [Firewall(Egress(allow=(AllowedNetwork(cidr="10.3.0.0/16"),)))])  # fmt: skip


def test_resolver_of_allowed_names_may_be_configured() -> None:
    egress = Egress(cluster_dns="10.2.0.10")

    with pytest.raises(InvalidSpec, match=r"no effect without .* or an allowed network"):
        Firewall(egress)
    Firewall(dataclasses.replace(egress, allow=(AllowedNetwork(cidr="10.20.0.0/16"),)))
