"""Removal: everything of ours is removed, in any state, and nothing foreign."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.base.errors import UnsupportedHost
from bramley.host import converge, loginwindow, removal, sequence
from bramley.host.drift import Part
from bramley.host.facts import Facts, RunResult
from bramley.host.steps import firewall, tailscale
from bramley.sim.macos.call import Call
from bramley.sim.macos.connection import ModelConnection
from tests import virtual_time
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.interruption import MacTemplate

FOREIGN = {
    "/usr/local/bin/foreign": b"a foreign program",
    "/etc/tart-kubelet/registry.json": b"{}",
    "/etc/tuist/foreign": b"x",
    "/Library/LaunchDaemons/com.example.plist": b"<plist/>",
    "/etc/resolver/example.com": b"nameserver 192.0.2.1\n",
    "/etc/sudoers.d/foreign": b"# foreign\n",
}


async def provisioned(folder: Path) -> ModelConnection:
    connection = (await MacTemplate.make(folder / "macs")).copy("mac")
    await converge.apply(
        connection, sequence.steps(fixtures.spec(folder), clock=virtual_time.clock())
    )
    connection.done.clear()
    return connection


def paths_of_ours(connection: ModelConnection) -> list[str]:
    """Return every path of the Mac whose name contains one of our words."""
    words = ("tart", "tuist", "tailscale", "node_exporter", "kcpassword", "nopasswd", "ts.net")
    root = connection.mac.root
    found = (str(path.relative_to(root)) for path in root.rglob("*"))
    return [path for path in found if any(word in path.rpartition("/")[2] for word in words)]


async def test_everything_of_ours_is_removed_and_foreign_files_are_kept(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path)
    for path, content in FOREIGN.items():
        connection.mac.files.write(path, content)
    foreign_lines = b'# foreign \xff\r\nanchor "foreign"\n'
    conf = connection.mac.files.read("/etc/pf.conf") or b""
    connection.mac.files.write(
        "/etc/pf.conf", conf.replace(firewall.PF_BLOCK, foreign_lines + firewall.PF_BLOCK)
    )

    await converge.apply(connection, removal.steps("m1", keep_tart=False))

    assert {path: connection.mac.files.read(path) for path in FOREIGN} == FOREIGN
    assert connection.mac.files.read("/etc/pf.conf") == conf.replace(
        firewall.PF_BLOCK, foreign_lines
    )
    left = [
        path
        for path in paths_of_ours(connection)
        if not path.endswith(("etc/tart-kubelet", "etc/tuist"))
    ]
    assert left == []
    assert not [job for job in connection.mac.state["launchd"]["jobs"] if "tuist" in job]
    assert not connection.mac.state["pf"]["rulesets"].get("tuist.runners", {}).get("rules")


async def test_builder_is_removed_and_its_tools_are_kept(tmp_path: Path) -> None:
    template = await MacTemplate.make(tmp_path / "macs", settings=fixtures.BUILDER_SETTINGS)
    connection = template.copy("mac")
    steps = sequence.steps(fixtures.builder_spec(tmp_path), clock=virtual_time.clock())
    await converge.apply(connection, steps)
    connection.done.clear()

    await converge.apply(connection, removal.steps("m1", keep_tart=False))

    # Before the agent: the runner could start VMs.
    assert "launchctl bootout gui/501/actions.runner." in fixtures.executed(connection)[1]
    assert [path for path in paths_of_ours(connection) if "zshenv" in path] == []
    assert [path for path in connection.mac.files.walk("/opt") if "runner" in path] == []
    assert not [job for job in connection.mac.state["launchd"]["jobs"] if "runner" in job]
    assert connection.mac.state["homebrew"]["pinned"] == ["packer"]


async def test_second_removal_changes_nothing(tmp_path: Path) -> None:
    """The first removal has also removed passwordless sudo."""
    connection = await provisioned(tmp_path)
    steps = removal.steps("m1")
    await converge.apply(connection, steps)
    connection.done.clear()

    report = await converge.apply(connection, steps)

    assert not report.is_changed
    assert connection.done == []


async def test_bare_mac_is_not_changed(tmp_path: Path) -> None:
    connection = (await MacTemplate.make(tmp_path)).copy("mac")

    report = await converge.apply(connection, removal.steps("m1", keep_tart=False))

    assert not report.is_changed


async def test_tart_is_kept_by_default(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path)

    await converge.apply(connection, removal.steps("m1"))

    assert connection.mac.run(Call(("/usr/local/bin/tart", "--version"), "m1")).out == "2.32.1\n"


async def test_sudo_rule_is_removed_last(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path)

    await converge.apply(connection, removal.steps("m1"))

    assert fixtures.executed(connection)[-1] == "remove /etc/sudoers.d/m1-nopasswd"


async def test_removal_is_refused_while_vms_run(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path)
    fixtures.run_vms(connection.mac)

    with pytest.raises(UnsupportedHost, match="drain the Mac first"):
        await converge.apply(connection, removal.steps("m1"))

    assert connection.done == []


@pytest.mark.parametrize("name", ["agent", "tart"])
async def test_removal_is_refused_while_vms_run_without_a_loaded_agent(
    tmp_path: Path, name: str
) -> None:
    connection = await provisioned(tmp_path)
    connection.mac.run(Call(("launchctl", "bootout", "system/dev.tuist.tart-kubelet"), "root"))
    steps = [step for step in removal.steps("m1", keep_tart=False) if step.name == name]
    fixtures.run_vms(connection.mac)

    with pytest.raises(UnsupportedHost, match="VMs are running"):
        await converge.apply(connection, steps)

    assert connection.done == []
    fixtures.run_vms(connection.mac, 0)
    assert (await converge.apply(connection, steps)).is_changed


async def test_sudoers_file_with_foreign_rules_is_kept(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path)
    path, rules = (
        "/etc/sudoers.d/m1-nopasswd",
        b"m1 ALL=(ALL) NOPASSWD: ALL\n%wheel ALL=(ALL) ALL\n",
    )
    connection.mac.files.write(path, rules, mode=0o440)

    await converge.apply(connection, removal.steps("m1"))

    assert connection.mac.files.read(path) == rules


async def test_foreign_tailnet_and_automatic_login_are_kept(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path)
    plist = "/Library/LaunchDaemons/com.tailscale.tailscaled.plist"
    connection.mac.files.write(plist, b"<!-- from Tailscale's installer -->")
    domain = "/Library/Preferences/com.apple.loginwindow"
    connection.mac.run(
        Call(("defaults", "write", domain, "autoLoginUser", "-string", "jane"), "root")
    )

    await converge.apply(connection, removal.steps("m1"))

    assert connection.mac.files.exists(plist)
    assert connection.mac.files.exists("/usr/local/bin/tailscaled")
    assert connection.mac.files.exists("/etc/kcpassword")


async def test_automatic_login_of_an_unknown_user_is_not_removed(tmp_path: Path) -> None:
    """Whose it is only root can read; without an answer it might be another user's."""
    connection = await provisioned(tmp_path)
    (step,) = [step for step in removal.steps("m1") if step.name == "auto-login"]
    facts = await connection.probe(step.probes())
    setting = loginwindow.auto_login_user("m1").probe

    step.check_supported(facts)
    for failed in (RunResult(1, b"sudo: a password is required\n"), RunResult(124)):
        with pytest.raises(
            UnsupportedHost, match=r"cannot be read: `sudo defaults read .*; make that command work"
        ):
            step.check_supported(facts.merged(Facts({setting: failed})))


async def test_second_removal_has_nothing_to_do(tmp_path: Path) -> None:
    """The first one has removed the sudo rule, so nothing can be read as root."""
    connection = await provisioned(tmp_path)
    await converge.apply(connection, removal.steps("m1", keep_tart=False))

    report = await converge.apply(connection, removal.steps("m1", keep_tart=False))

    assert not report.is_changed


async def test_tailnet_that_carries_this_connection_is_not_left(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path)
    (step,) = [step for step in removal.steps("m1") if step.name == "tailscale"]
    facts = await connection.probe(step.probes())
    result = RunResult(0, b"100.64.0.1 5000 100.101.102.103 22\n")

    with pytest.raises(UnsupportedHost, match="connect to another address of the Mac"):
        step.check_supported(facts.merged(Facts({tailscale.SSH_CONNECTION: result})))


def test_removable_parts() -> None:
    removable = {part: step.name for part in Part if (step := removal.of_part(part))}

    assert removable == {
        Part.TAILSCALE: "tailscale",
        Part.RESOLVER: "tailnet-resolver",
        Part.NODE_EXPORTER: "node-exporter",
        Part.LOG_ROTATION: "log-rotation",
        Part.REGISTRY_CREDENTIALS: "registry-credentials",
        Part.BUILD_ENVIRONMENT: "build-environment",
        Part.ACTIONS_RUNNER: "actions-runner",
    }
