"""Undoing: everything of ours goes, in any state, and nothing of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.base import virtual_time
from bramley.base.errors import UnsupportedHost
from bramley.host import converge, removal, sequence
from bramley.host.drift import Part
from bramley.host.facts import Facts, RunResult
from bramley.host.steps import firewall, tailscale
from bramley.sim.macos.call import Call
from bramley.sim.macos.connection import ModelConnection
from tests.unit.host.steps import wanted
from tests.unit.host.steps.cutting import Scene

FOREIGN = {
    "/usr/local/bin/foreign": b"program of somebody",
    "/etc/tart-kubelet/registry.json": b"{}",
    "/etc/tuist/of-somebody": b"x",
    "/Library/LaunchDaemons/com.example.plist": b"<plist/>",
    "/etc/resolver/example.com": b"nameserver 192.0.2.1\n",
    "/etc/sudoers.d/somebody": b"# theirs\n",
}


async def made(folder: Path) -> ModelConnection:
    line = (await Scene.make(folder / "macs")).copy("mac")
    await converge.apply(line, sequence.steps(wanted.spec(folder), clock=virtual_time.clock()))
    line.done.clear()
    return line


def ours(line: ModelConnection) -> list[str]:
    """Return every path of the Mac that is named like something of ours."""
    words = ("tart", "tuist", "tailscale", "node_exporter", "kcpassword", "nopasswd", "ts.net")
    root = line.mac.root
    found = (str(path.relative_to(root)) for path in root.rglob("*"))
    return [path for path in found if any(word in path.rpartition("/")[2] for word in words)]


async def test_all_of_ours_goes_and_the_rest_stays(tmp_path: Path) -> None:
    line = await made(tmp_path)
    for path, content in FOREIGN.items():
        line.mac.files.write(path, content)
    theirs = b'# of somebody \xff\r\nanchor "theirs"\n'
    conf = line.mac.files.read("/etc/pf.conf") or b""
    line.mac.files.write(
        "/etc/pf.conf", conf.replace(firewall.PF_BLOCK, theirs + firewall.PF_BLOCK)
    )

    await converge.apply(line, removal.steps("m1", keep_tart=False))

    assert {path: line.mac.files.read(path) for path in FOREIGN} == FOREIGN
    assert line.mac.files.read("/etc/pf.conf") == conf.replace(firewall.PF_BLOCK, theirs)
    left = [path for path in ours(line) if not path.endswith(("etc/tart-kubelet", "etc/tuist"))]
    assert left == []
    assert not [job for job in line.mac.state["launchd"]["jobs"] if "tuist" in job]
    assert not line.mac.state["pf"]["rulesets"].get("tuist.runners", {}).get("rules")


async def test_twice_is_as_good_as_once(tmp_path: Path) -> None:
    """Without sudo, too, which the first time has taken away."""
    line = await made(tmp_path)
    steps = removal.steps("m1")
    await converge.apply(line, steps)
    line.done.clear()

    report = await converge.apply(line, steps)

    assert not report.is_changed
    assert line.done == []


async def test_a_bare_mac_is_left_as_it_is(tmp_path: Path) -> None:
    line = (await Scene.make(tmp_path)).copy("mac")

    report = await converge.apply(line, removal.steps("m1", keep_tart=False))

    assert not report.is_changed


async def test_tart_is_kept_unless_it_is_wanted_gone(tmp_path: Path) -> None:
    line = await made(tmp_path)

    await converge.apply(line, removal.steps("m1"))

    assert line.mac.run(Call(("/usr/local/bin/tart", "--version"), "m1")).out == "2.32.1\n"


async def test_the_right_to_use_sudo_goes_last(tmp_path: Path) -> None:
    line = await made(tmp_path)

    await converge.apply(line, removal.steps("m1"))

    assert wanted.done(line)[-1] == "remove /etc/sudoers.d/m1-nopasswd"


async def test_vms_are_not_left_without_their_agent(tmp_path: Path) -> None:
    line = await made(tmp_path)
    wanted.run_vms(line.mac)

    with pytest.raises(UnsupportedHost, match="drain the Mac first"):
        await converge.apply(line, removal.steps("m1"))

    assert line.done == []


@pytest.mark.parametrize("gone", ["agent", "tart"])
async def test_vms_keep_what_they_need_also_where_no_agent_is_loaded(
    tmp_path: Path, gone: str
) -> None:
    line = await made(tmp_path)
    line.mac.run(Call(("launchctl", "bootout", "system/dev.tuist.tart-kubelet"), "root"))
    steps = [step for step in removal.steps("m1", keep_tart=False) if step.name == gone]
    wanted.run_vms(line.mac)

    with pytest.raises(UnsupportedHost, match="VMs are running"):
        await converge.apply(line, steps)

    assert line.done == []
    wanted.run_vms(line.mac, 0)
    assert (await converge.apply(line, steps)).is_changed


async def test_rules_of_sudo_that_others_wrote_into_our_file_stay(tmp_path: Path) -> None:
    line = await made(tmp_path)
    path, rules = (
        "/etc/sudoers.d/m1-nopasswd",
        b"m1 ALL=(ALL) NOPASSWD: ALL\n%wheel ALL=(ALL) ALL\n",
    )
    line.mac.files.write(path, rules, mode=0o440)

    await converge.apply(line, removal.steps("m1"))

    assert line.mac.files.read(path) == rules


async def test_a_tailnet_and_a_login_of_others_stay(tmp_path: Path) -> None:
    line = await made(tmp_path)
    plist = "/Library/LaunchDaemons/com.tailscale.tailscaled.plist"
    line.mac.files.write(plist, b"<!-- of Tailscale's own installer -->")
    domain = "/Library/Preferences/com.apple.loginwindow"
    line.mac.run(Call(("defaults", "write", domain, "autoLoginUser", "-string", "jane"), "root"))

    await converge.apply(line, removal.steps("m1"))

    assert line.mac.files.exists(plist)
    assert line.mac.files.exists("/usr/local/bin/tailscaled")
    assert line.mac.files.exists("/etc/kcpassword")


async def test_the_tailnet_that_carries_this_connection_is_not_left(tmp_path: Path) -> None:
    line = await made(tmp_path)
    (step,) = [step for step in removal.steps("m1") if step.name == "tailscale"]
    facts = await line.probe(step.probes())
    said = RunResult(0, b"100.64.0.1 5000 100.101.102.103 22\n")

    with pytest.raises(UnsupportedHost, match="come by another address"):
        step.check_supported(facts.merged(Facts({tailscale.CONNECTION: said})))


def test_a_part_that_is_wanted_no_more_may_be_taken_alone() -> None:
    taken = {part: step.name for part in Part if (step := removal.of_part(part))}

    assert taken == {
        Part.TAILSCALE: "tailscale",
        Part.RESOLVER: "tailnet-resolver",
        Part.NODE_EXPORTER: "node-exporter",
        Part.LOG_ROTATION: "log-rotation",
    }
