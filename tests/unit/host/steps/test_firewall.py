"""The firewall: which packets of VMs pass, what is loaded on a running Mac, and what is refused before any change."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bramley.base.errors import CommandFailed, InvalidSpec, UnsupportedHost
from bramley.host import converge, removal
from bramley.host.commands import Reboot
from bramley.host.spec import Egress
from bramley.host.step import Step
from bramley.host.steps import firewall
from bramley.host.steps.firewall import Firewall
from bramley.sim.macos.call import Call
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.programs.pf_file import Load
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.packets import Filter, Packet

STEP = Firewall(Egress(cache_network="10.1.0.0/16", cluster_dns="10.2.0.10", private_network="172.20.0.0/24"))  # fmt: skip
VM, GATEWAY = "192.168.64.5", "192.168.64.1"
OWN = {
    "bridge100": [GATEWAY],
    "en0": ["51.15.7.7"],
    "en9": ["51.15.7.8"],
    "vlan0": ["51.15.7.9"],
    "utun4": ["100.101.102.103"],
    "lo0": ["127.0.0.1"],
}


def rules() -> Filter:
    """Return the rules as pf loads them."""
    load = Load(lambda _: None)
    assert load.file("anchor", anchor="ours", text=firewall.anchor(STEP.egress)), load.errors
    return Filter(load.rulesets["ours"].rules, load.rulesets["ours"].tables, OWN)


def live(connection: ModelConnection) -> Filter:
    """Return the loaded rules."""
    found = connection.mac.state["pf"]["rulesets"]["tuist.runners"]
    return Filter(found["rules"], found["tables"], OWN)


def as_root(*argv: str) -> Call:
    return Call(argv, "root")


async def with_firewall(folder: Path, step: Firewall = STEP) -> ModelConnection:
    connection = await fixtures.mac(folder)
    await converge.apply(connection, [step])
    return connection


def test_vms_reach_the_internet_and_the_allowed_networks() -> None:
    for target, port, protocol in (
        ("140.82.121.4", 443, "tcp"),
        ("8.8.8.8", 53, "udp"),
        ("10.1.2.3", 4000, "tcp"),
        ("10.2.0.10", 53, "udp"),
        ("10.2.0.10", 53, "tcp"),
        ("172.20.0.9", 30123, "tcp"),
        (GATEWAY, 53, "udp"),
        (GATEWAY, 67, "udp"),
    ):
        from_port = 68 if port == 67 else 50_000
        packet = Packet(source=VM, target=target, port=port, protocol=protocol, from_port=from_port)
        assert rules().passes(packet), packet
    discover = Packet(
        source="0.0.0.0", target="255.255.255.255", port=67, protocol="udp", from_port=68
    )
    assert rules().passes(discover)


@pytest.mark.parametrize(
    ("target", "port"),
    [
        *(("10.9.9.9", 443), ("172.16.0.1", 443), ("169.254.169.254", 80), ("10.1.2.3", 22)),
        *(("100.64.0.7", 9100), ("100.101.102.103", 8080), ("192.168.1.20", 80)),
        *(("51.15.7.7", 22), ("51.15.7.8", 5900), ("51.15.7.9", 10250)),
        *((GATEWAY, 22), (GATEWAY, 8080), ("192.168.64.6", 5900), ("192.168.67.9", 22)),
        *(("10.2.0.10", 443), ("172.20.0.9", 22), ("224.0.0.251", 5353), ("127.0.0.1", 10250)),
    ],
)
def test_vms_reach_nothing_else(target: str, port: int) -> None:
    """The tailnet, the Mac's own services on any of its addresses, its neighbours, and other VMs."""
    assert not rules().passes(Packet(source=VM, target=target, port=port))


def test_ipv6_and_spoofed_addresses_are_blocked() -> None:
    assert not rules().passes(Packet(source="fe80::5", target="fe80::1"))
    assert not rules().passes(Packet(source="fd00::5", target="2606:4700::1111"))
    assert not rules().passes(Packet(source="51.15.9.9", target="8.8.8.8"))
    # The Mac's own traffic goes over other interfaces.
    assert rules().passes(Packet(source="fe80::9", target="fe80::1", device="en0"))


def test_the_mac_reaches_its_vms() -> None:
    assert rules().passes(Packet(source=GATEWAY, target=VM, port=22, direction="out"))
    # A VM without an address gets its DHCP offer by broadcast.
    dhcp_offer = Packet(
        source=GATEWAY,
        target="255.255.255.255",
        port=68,
        protocol="udp",
        direction="out",
        from_port=67,
    )
    assert rules().passes(dhcp_offer)


def removal_steps() -> list[Step]:
    """Return the steps that remove our rules."""
    return [one for one in removal.steps("m1") if one.name == STEP.name]


async def test_only_our_anchor_is_loaded_on_a_running_mac(tmp_path: Path) -> None:
    """A load of all rules would discard those that macOS has added for running VMs."""
    connection = await fixtures.mac(tmp_path)
    with connection.mac.change() as state:
        state["pf"]["rulesets"][""]["nat"].append('nat-anchor "com.apple.internet-sharing" all')

    await converge.apply(connection, [STEP])

    main = connection.mac.state["pf"]["rulesets"][""]
    assert 'nat-anchor "com.apple.internet-sharing" all' in main["nat"]
    assert "system/dev.tuist.pfctl-runners" not in connection.mac.state["launchd"]["jobs"]
    loads = [text for text in fixtures.executed(connection) if "pfctl" in text and " -f " in text]
    assert [text for text in loads if not text.startswith("write ")] == [
        "sudo pfctl -a tuist.runners -f /etc/pf.anchors/tuist.runners"
    ]


async def test_boot_loads_all_rules(tmp_path: Path) -> None:
    connection = await with_firewall(tmp_path)
    before = await connection.probe([firewall.MAIN_RULES])
    await connection.execute(Reboot(purpose="reboot the Mac"))

    after = await connection.probe([firewall.MAIN_RULES, firewall.ANCHOR_RULES])

    assert not firewall.is_attached(before)
    assert firewall.is_attached(after)
    assert firewall.is_in_force(after)
    assert (await converge.plan(connection, [STEP])).is_empty


@pytest.mark.parametrize("argv", [("-F", "all"), ("-f", "/etc/pf.anchors/older")])
async def test_loaded_rules_are_compared_and_not_only_files(
    tmp_path: Path, argv: tuple[str, ...]
) -> None:
    """The files are correct, and no rules are loaded, or those of an older release."""
    connection = await with_firewall(tmp_path)
    older = firewall.anchor(Egress(cache_network="10.1.0.0/16"))
    connection.mac.files.write("/etc/pf.anchors/older", older.encode())
    assert connection.mac.run(as_root("pfctl", "-a", "tuist.runners", *argv)).code == 0
    connection.done.clear()

    await converge.apply(connection, [STEP])

    assert fixtures.executed(connection) == [
        "sudo pfctl -a tuist.runners -f /etc/pf.anchors/tuist.runners"
    ]
    assert live(connection).passes(Packet(source=VM, target="10.2.0.10", port=53))


async def test_disabled_filter_is_enabled(tmp_path: Path) -> None:
    connection = await with_firewall(tmp_path)
    assert connection.mac.run(as_root("pfctl", "-d")).code == 0
    connection.done.clear()

    await converge.apply(connection, [STEP])

    assert fixtures.executed(connection) == ["sudo pfctl -E"]


async def test_older_blocks_are_replaced_by_one_block(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)
    apple = connection.mac.files.read("/etc/pf.conf") or b""
    legacy = (
        b"# Tuist runner VM egress filter (managed)\n"
        b'anchor "tuist.runners"\nload anchor "tuist.runners" from "/etc/pf.anchors/tuist.runners"\n'
    )
    connection.mac.files.write("/etc/pf.conf", apple + legacy + firewall.PF_BLOCK + legacy)

    await converge.apply(connection, [STEP])

    assert connection.mac.files.read("/etc/pf.conf") == apple + firewall.PF_BLOCK
    assert (await converge.plan(connection, [STEP])).is_empty


async def test_invalid_file_does_not_replace_the_current_one(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)
    broken = (
        connection.mac.files.read("/etc/pf.conf") or b""
    ) + b"pass from nowhere in particular\n"
    connection.mac.files.write("/etc/pf.conf", broken)

    with pytest.raises(CommandFailed, match="step firewall: load our rules at boot"):
        await converge.apply(connection, [STEP])

    assert connection.mac.files.read("/etc/pf.conf") == broken


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "is missing"),
        (b"#" * 300_000, "is larger than 256 KiB"),
        # Too large together with our block.
        (b"#" * (256 * 1024 - 2) + b"\n", "is larger than 256 KiB"),
    ],
)
async def test_missing_or_too_large_file_is_refused(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    connection = await fixtures.mac(tmp_path)
    connection.mac.files.remove("/etc/pf.conf")
    if content is not None:
        connection.mac.files.write("/etc/pf.conf", content)

    with pytest.raises(UnsupportedHost, match=why):
        await converge.apply(connection, [STEP])

    assert connection.done == []


@pytest.mark.parametrize(
    ("link_target", "written_path"),
    [("pf.site", "/etc/pf.site"), ("/private/etc/site/pf.conf", "/etc/site/pf.conf")],
)
async def test_link_is_kept_and_its_target_written(
    link_target: str, written_path: str, tmp_path: Path
) -> None:
    connection = await fixtures.mac(tmp_path)
    apple = connection.mac.files.read("/etc/pf.conf") or b""
    connection.mac.files.make_folder("/etc/site")
    connection.mac.files.rename("/etc/pf.conf", written_path)
    connection.mac.files.link("/etc/pf.conf", link_target)

    await converge.apply(connection, [STEP])

    assert connection.mac.files.target("/etc/pf.conf") == link_target
    assert connection.mac.files.read(written_path) == apple + firewall.PF_BLOCK
    assert (await converge.plan(connection, [STEP])).is_empty
    await converge.apply(connection, removal_steps())
    assert connection.mac.files.target("/etc/pf.conf") == link_target
    assert connection.mac.files.read(written_path) == apple


@pytest.mark.parametrize(
    "link_target", ["/Users/m1/pf.conf", "../etc/pf.site", "nowhere", "pf.anchors", "again"]
)
async def test_link_outside_the_writable_folders_is_refused(
    link_target: str, tmp_path: Path
) -> None:
    connection = await fixtures.mac(tmp_path)
    apple = connection.mac.files.read("/etc/pf.conf") or b""
    for target in ("/Users/m1/pf.conf", "/etc/pf.site"):
        connection.mac.files.write(target, apple + firewall.PF_BLOCK)
    connection.mac.files.link("/etc/again", "pf.site")
    connection.mac.files.remove("/etc/pf.conf")
    connection.mac.files.link("/etc/pf.conf", link_target)

    with pytest.raises(UnsupportedHost, match=f"is a link to '{link_target}', which is not a file"):
        await converge.apply(connection, [STEP])
    if connection.mac.files.is_file("/etc/pf.conf"):
        with pytest.raises(UnsupportedHost, match=r"which is not a file in /etc"):
            await converge.apply(connection, removal_steps())

    assert connection.done == []


@pytest.mark.parametrize("path", ["/etc/pf.anchors/tuist.runners", firewall.BOOT_JOB])
async def test_mode_of_our_file_is_repaired(path: str, tmp_path: Path) -> None:
    connection = await with_firewall(tmp_path)
    connection.mac.files.at(path).chmod(0o666)
    connection.done.clear()

    await converge.apply(connection, [STEP])

    assert [text.split(":")[0] for text in fixtures.executed(connection)] == [
        f"write {path} 0644 root"
    ]


@pytest.mark.parametrize(
    ("egress", "why"),
    [
        (Egress(cluster_dns="10.2.0.10"), "no effect without the network of a cache"),
        (Egress(cache_network="10.0.0.0/8", cluster_dns="127.0.0.1"), "is the Mac itself"),
        (Egress(cache_network="10.0.0.0/8", cluster_dns="169.254.169.254"), "is link-local"),
        (Egress(cache_network="10.0.0.0/8", cluster_dns="224.0.0.251"), "contains multicast"),
        (Egress(cache_network="10.0.0.0/8", cluster_dns="dns.example"), "must be an IPv4 address"),
        (Egress(cache_network="10.0.0.0/8", cluster_dns="fd00::10"), "must be an IPv4 address"),
        (Egress(cache_network="0.0.0.0/0"), "wider than /8"),
        (Egress(private_network="192.0.0.0/7"), "wider than /8"),
        (Egress(private_network="192.168.0.0/16"), "overlaps 192.168.64.0/22"),
        (Egress(cache_network="127.0.0.0/8"), "cache_network 127.0.0.0/8 is the Mac itself"),
        (Egress(cache_network="169.254.169.254/32"), "is link-local"),
        (Egress(private_network="224.0.0.0/8"), "contains multicast"),
    ],
)
def test_too_permissive_egress_is_refused(egress: Egress, why: str) -> None:
    with pytest.raises(InvalidSpec, match=why):
        Firewall(egress)


def test_another_egress_changes_the_stamp() -> None:
    other = dataclasses.replace(STEP, egress=Egress())

    assert other.desired().stamp != STEP.desired().stamp
    assert firewall.label(firewall.anchor(other.egress)) != firewall.label(
        firewall.anchor(STEP.egress)
    )
