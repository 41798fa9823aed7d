"""The firewall: what packets of VMs meet, what is loaded on a live Mac, and what is refused before anything is."""

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
from tests.unit.host.steps import wanted
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
    """Return what pf makes of the rules."""
    load = Load(lambda _: None)
    assert load.file("anchor", anchor="ours", text=firewall.anchor(STEP.egress)), load.said
    return Filter(load.rulesets["ours"].rules, load.rulesets["ours"].tables, OWN)


def live(line: ModelConnection) -> Filter:
    """Return what is in force."""
    found = line.mac.state["pf"]["rulesets"]["tuist.runners"]
    return Filter(found["rules"], found["tables"], OWN)


def as_root(*argv: str) -> Call:
    return Call(argv, "root")


async def enforced(folder: Path, step: Firewall = STEP) -> ModelConnection:
    line = await wanted.mac(folder)
    await converge.apply(line, [step])
    return line


def test_vms_reach_the_internet_and_what_they_are_allowed() -> None:
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
    offer = Packet(
        source="0.0.0.0", target="255.255.255.255", port=67, protocol="udp", from_port=68
    )
    assert rules().passes(offer)


@pytest.mark.parametrize(
    ("place", "port"),
    [
        *(("10.9.9.9", 443), ("172.16.0.1", 443), ("169.254.169.254", 80), ("10.1.2.3", 22)),
        *(("100.64.0.7", 9100), ("100.101.102.103", 8080), ("192.168.1.20", 80)),
        *(("51.15.7.7", 22), ("51.15.7.8", 5900), ("51.15.7.9", 10250)),
        *((GATEWAY, 22), (GATEWAY, 8080), ("192.168.64.6", 5900), ("192.168.67.9", 22)),
        *(("10.2.0.10", 443), ("172.20.0.9", 22), ("224.0.0.251", 5353), ("127.0.0.1", 10250)),
    ],
)
def test_vms_reach_nothing_else(place: str, port: int) -> None:
    """The tailnet, the Mac's own services on any of its addresses, its neighbours, and other VMs."""
    assert not rules().passes(Packet(source=VM, target=place, port=port))


def test_vms_have_no_ipv6_and_no_address_of_others() -> None:
    assert not rules().passes(Packet(source="fe80::5", target="fe80::1"))
    assert not rules().passes(Packet(source="fd00::5", target="2606:4700::1111"))
    assert not rules().passes(Packet(source="51.15.9.9", target="8.8.8.8"))
    # The Mac's own traffic goes over other interfaces.
    assert rules().passes(Packet(source="fe80::9", target="fe80::1", device="en0"))


def test_the_mac_reaches_its_vms() -> None:
    assert rules().passes(Packet(source=GATEWAY, target=VM, port=22, way="out"))
    # Who has no address yet is answered to all.
    answer = Packet(
        source=GATEWAY,
        target="255.255.255.255",
        port=68,
        protocol="udp",
        way="out",
        from_port=67,
    )
    assert rules().passes(answer)


def away() -> list[Step]:
    """Return what takes our rules away."""
    return [one for one in removal.steps("m1") if one.name == STEP.name]


async def test_on_a_live_mac_only_our_anchor_is_loaded(tmp_path: Path) -> None:
    """A load of everything would throw away what macOS has added for running VMs."""
    line = await wanted.mac(tmp_path)
    with line.mac.change() as state:
        state["pf"]["rulesets"][""]["nat"].append('nat-anchor "com.apple.internet-sharing" all')

    await converge.apply(line, [STEP])

    main = line.mac.state["pf"]["rulesets"][""]
    assert 'nat-anchor "com.apple.internet-sharing" all' in main["nat"]
    assert "system/dev.tuist.pfctl-runners" not in line.mac.state["launchd"]["jobs"]
    loads = [text for text in wanted.done(line) if "pfctl" in text and " -f " in text]
    assert [text for text in loads if not text.startswith("write ")] == [
        "sudo pfctl -a tuist.runners -f /etc/pf.anchors/tuist.runners"
    ]


async def test_a_start_of_the_mac_loads_everything(tmp_path: Path) -> None:
    line = await enforced(tmp_path)
    before = await line.probe([firewall.MAIN])
    await line.do(Reboot(purpose="restart the Mac"))

    after = await line.probe([firewall.MAIN, firewall.LIVE])

    assert not firewall.is_attached(before)
    assert firewall.is_attached(after)
    assert firewall.is_in_force(after)
    assert (await converge.plan(line, [STEP])).is_empty


@pytest.mark.parametrize("argv", [("-F", "all"), ("-f", "/etc/pf.anchors/older")])
async def test_what_is_in_force_is_seen_and_not_assumed(
    tmp_path: Path, argv: tuple[str, ...]
) -> None:
    """The files are right, and what is in force is nothing, or what an older release had."""
    line = await enforced(tmp_path)
    older = firewall.anchor(Egress(cache_network="10.1.0.0/16"))
    line.mac.files.write("/etc/pf.anchors/older", older.encode())
    assert line.mac.run(as_root("pfctl", "-a", "tuist.runners", *argv)).code == 0
    line.done.clear()

    await converge.apply(line, [STEP])

    assert wanted.done(line) == ["sudo pfctl -a tuist.runners -f /etc/pf.anchors/tuist.runners"]
    assert live(line).passes(Packet(source=VM, target="10.2.0.10", port=53))


async def test_a_filter_that_is_off_is_switched_on(tmp_path: Path) -> None:
    line = await enforced(tmp_path)
    assert line.mac.run(as_root("pfctl", "-d")).code == 0
    line.done.clear()

    await converge.apply(line, [STEP])

    assert wanted.done(line) == ["sudo pfctl -E"]


async def test_every_history_of_the_file_ends_in_one_block_that_pf_takes(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path)
    apple = line.mac.files.read("/etc/pf.conf") or b""
    legacy = (
        b"# Tuist runner VM egress filter (managed)\n"
        b'anchor "tuist.runners"\nload anchor "tuist.runners" from "/etc/pf.anchors/tuist.runners"\n'
    )
    line.mac.files.write("/etc/pf.conf", apple + legacy + firewall.PF_BLOCK + legacy)

    await converge.apply(line, [STEP])

    assert line.mac.files.read("/etc/pf.conf") == apple + firewall.PF_BLOCK
    assert (await converge.plan(line, [STEP])).is_empty


async def test_a_file_that_pf_would_refuse_does_not_replace_the_one_in_use(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path)
    broken = (line.mac.files.read("/etc/pf.conf") or b"") + b"pass from nowhere in particular\n"
    line.mac.files.write("/etc/pf.conf", broken)

    with pytest.raises(CommandFailed, match="step firewall: have our rules loaded at boot"):
        await converge.apply(line, [STEP])

    assert line.mac.files.read("/etc/pf.conf") == broken


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "is missing"),
        (b"#" * 300_000, "is larger than 256 KiB"),
        # With our block it would be.
        (b"#" * (256 * 1024 - 2) + b"\n", "is larger than 256 KiB"),
    ],
)
async def test_a_file_that_cannot_be_kept_whole_is_not_touched(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    line = await wanted.mac(tmp_path)
    line.mac.files.remove("/etc/pf.conf")
    if content is not None:
        line.mac.files.write("/etc/pf.conf", content)

    with pytest.raises(UnsupportedHost, match=why):
        await converge.apply(line, [STEP])

    assert line.done == []


@pytest.mark.parametrize(
    ("led_to", "real"),
    [("pf.site", "/etc/pf.site"), ("/private/etc/site/pf.conf", "/etc/site/pf.conf")],
)
async def test_a_link_stays_and_what_it_leads_to_is_written(
    led_to: str, real: str, tmp_path: Path
) -> None:
    line = await wanted.mac(tmp_path)
    apple = line.mac.files.read("/etc/pf.conf") or b""
    line.mac.files.make_folder("/etc/site")
    line.mac.files.rename("/etc/pf.conf", real)
    line.mac.files.link("/etc/pf.conf", led_to)

    await converge.apply(line, [STEP])

    assert line.mac.files.target("/etc/pf.conf") == led_to
    assert line.mac.files.read(real) == apple + firewall.PF_BLOCK
    assert (await converge.plan(line, [STEP])).is_empty
    await converge.apply(line, away())
    assert line.mac.files.target("/etc/pf.conf") == led_to
    assert line.mac.files.read(real) == apple


@pytest.mark.parametrize(
    "led_to", ["/Users/m1/pf.conf", "../etc/pf.site", "nowhere", "pf.anchors", "again"]
)
async def test_a_link_to_where_we_do_not_write_is_refused_by_its_name(
    led_to: str, tmp_path: Path
) -> None:
    line = await wanted.mac(tmp_path)
    apple = line.mac.files.read("/etc/pf.conf") or b""
    for place in ("/Users/m1/pf.conf", "/etc/pf.site"):
        line.mac.files.write(place, apple + firewall.PF_BLOCK)
    line.mac.files.link("/etc/again", "pf.site")
    line.mac.files.remove("/etc/pf.conf")
    line.mac.files.link("/etc/pf.conf", led_to)

    with pytest.raises(UnsupportedHost, match=f"is a link to '{led_to}', which is no file"):
        await converge.apply(line, [STEP])
    if line.mac.files.is_file("/etc/pf.conf"):
        with pytest.raises(UnsupportedHost, match="which is no file in /etc"):
            await converge.apply(line, away())

    assert line.done == []


@pytest.mark.parametrize("path", ["/etc/pf.anchors/tuist.runners", firewall.BOOT_JOB])
async def test_a_file_of_ours_in_other_hands_is_taken_back(path: str, tmp_path: Path) -> None:
    line = await enforced(tmp_path)
    line.mac.files.at(path).chmod(0o666)
    line.done.clear()

    await converge.apply(line, [STEP])

    assert [text.split(":")[0] for text in wanted.done(line)] == [f"write {path} 0644 root"]


@pytest.mark.parametrize(
    ("egress", "why"),
    [
        (Egress(cluster_dns="10.2.0.10"), "of no use without the network of the cache"),
        (
            Egress(cache_network="10.0.0.0/8", cluster_dns="dns.example"),
            "must be an address of IPv4",
        ),
        (Egress(cache_network="10.0.0.0/8", cluster_dns="fd00::10"), "must be an address of IPv4"),
        (Egress(cache_network="0.0.0.0/0"), "wider than /8"),
        (Egress(private_network="192.0.0.0/7"), "wider than /8"),
        (Egress(private_network="192.168.0.0/16"), "overlaps 192.168.64.0/22"),
    ],
)
def test_what_would_open_more_than_was_meant_is_refused_at_once(egress: Egress, why: str) -> None:
    with pytest.raises(InvalidSpec, match=why):
        Firewall(egress)


def test_whatever_differs_moves_the_stamp() -> None:
    other = dataclasses.replace(STEP, egress=Egress())

    assert other.desired().stamp != STEP.desired().stamp
    assert firewall.label(firewall.anchor(other.egress)) != firewall.label(
        firewall.anchor(STEP.egress)
    )
