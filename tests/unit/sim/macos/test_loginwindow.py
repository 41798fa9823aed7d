"""loginwindow of a simulated Mac: restarts, hang-ups, automatic login, and the marker in place of a wrong password."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.host import kcpassword
from bramley.sim.macos import launchd
from tests.unit.sim.macos.harness import LOGINWINDOW, PASSWORD, MacHarness

KICK = ("launchctl", "kickstart", "-k", LOGINWINDOW)
SEALED = bytes.fromhex("41fa3742bed9b9d4a3b91f")


def has_session(harness: MacHarness) -> bool:
    result = harness.as_root("launchctl", "print", "gui/501")
    return result.code == 0 and "session = Aqua" in result.out


def kickstart(harness: MacHarness) -> None:
    assert harness.as_root(*KICK).code == 0


def test_bare_mac_has_no_session(harness: MacHarness) -> None:
    harness.clock.advance(3600)

    assert not has_session(harness)


def test_kickstart_logs_the_user_in_after_two_seconds(harness: MacHarness) -> None:
    harness.set_up_login()

    kickstart(harness)

    assert not has_session(harness)
    harness.clock.advance(1.9)
    assert not has_session(harness)
    harness.clock.advance(0.2)
    assert has_session(harness)


def test_login_settings_have_no_effect_without_a_kickstart(harness: MacHarness) -> None:
    harness.set_up_login()

    harness.clock.advance(3600)

    assert not has_session(harness)


def test_wrong_password_is_silently_replaced_by_the_marker(harness: MacHarness) -> None:
    harness.set_up_login("not the password")

    result = harness.as_root(*KICK)
    harness.clock.advance(3)

    assert (result.code, result.err) == (0, "")
    assert not has_session(harness)
    assert harness.mac.files.read("/etc/kcpassword") == SEALED
    assert kcpassword.is_rejected(SEALED)
    assert harness.mac.files.mode("/etc/kcpassword") == 0o600


def test_marker_stays_until_a_password_is_written(harness: MacHarness) -> None:
    harness.set_up_login("not the password")
    kickstart(harness)
    harness.clock.advance(3)
    kickstart(harness)
    harness.clock.advance(3)
    assert harness.mac.files.read("/etc/kcpassword") == SEALED

    harness.set_up_login()
    kickstart(harness)
    harness.clock.advance(3)

    assert has_session(harness)


def test_changed_password_is_replaced_by_the_marker_at_the_next_login(harness: MacHarness) -> None:
    harness.log_in()
    with harness.mac.change() as state:
        state["users"]["m1"]["password"] = "another one"

    assert has_session(harness)
    kickstart(harness)
    harness.clock.advance(3)

    assert harness.mac.files.read("/etc/kcpassword") == SEALED


@pytest.mark.parametrize("missing", ["user", "file"])
def test_automatic_login_needs_both_the_user_and_the_password(
    harness: MacHarness, missing: str
) -> None:
    harness.set_up_login()
    paths = {"user": "/Library/Preferences/com.apple.loginwindow.plist", "file": "/etc/kcpassword"}
    harness.mac.files.remove(paths[missing])

    kickstart(harness)
    harness.clock.advance(3)

    assert not has_session(harness)


@pytest.mark.parametrize("content", [b"no list", b"<plist><string>m1</string></plist>"])
def test_unreadable_preferences_disable_automatic_login(
    harness: MacHarness, content: bytes
) -> None:
    harness.set_up_login()
    harness.mac.files.write("/Library/Preferences/com.apple.loginwindow.plist", content)

    kickstart(harness)
    harness.clock.advance(3)

    assert not has_session(harness)


def test_root_has_no_password(harness: MacHarness) -> None:
    harness.set_up_login("*", user="root")

    kickstart(harness)
    harness.clock.advance(3)

    assert harness.mac.state["console"]["user"] is None
    assert harness.run("dscl", ".", "-authonly", "root", "*").code == 10


def test_filevault_prevents_automatic_login(tmp_path: Path) -> None:
    harness = MacHarness(tmp_path, filevault=True)
    harness.set_up_login()

    kickstart(harness)
    harness.clock.advance(3)

    assert not has_session(harness)
    # Nothing was tried, so nothing was sealed.
    assert harness.mac.files.read("/etc/kcpassword") != SEALED


def test_kickstart_ends_the_session_and_its_processes(harness: MacHarness) -> None:
    harness.log_in()
    harness.program("/usr/local/bin/work")
    content = {"Label": "dev.test.agent", "Program": "/usr/local/bin/work", "KeepAlive": True}
    harness.plist("/Users/m1/agent.plist", content, owner="m1:staff")
    harness.run("launchctl", "bootstrap", "gui/501", "/Users/m1/agent.plist")
    with harness.mac.change() as state:
        state["processes"].append({"pid": 77, "command": "/usr/local/bin/tart run vm"})
    assert harness.run("pgrep", "-f", "tart run ").code == 0

    kickstart(harness)

    assert not has_session(harness)
    assert harness.run("pgrep", "-f", "tart run ").code == 1
    harness.clock.advance(3)
    assert has_session(harness)
    assert launchd.find(harness.mac.state, "gui/501/dev.test.agent") is None


def test_loginwindow_is_not_restarted_after_a_hang_up(harness: MacHarness) -> None:
    harness.log_in()

    assert harness.as_root("killall", "-HUP", "loginwindow").code == 0

    harness.clock.advance(3600)
    assert not has_session(harness)
    assert "\tstate = not running\n" in harness.run("launchctl", "print", LOGINWINDOW).out


def test_second_hang_up_finds_no_process_and_kickstart_starts_one(harness: MacHarness) -> None:
    harness.log_in()
    harness.as_root("killall", "-HUP", "loginwindow")

    result = harness.as_root("killall", "-HUP", "loginwindow")
    assert (result.code, result.err) == (1, "No matching processes were found\n")

    kickstart(harness)
    harness.clock.advance(3)
    assert has_session(harness)


def test_only_root_may_hang_up_or_kickstart(harness: MacHarness) -> None:
    harness.log_in()

    result = harness.run("killall", "-HUP", "loginwindow")
    assert (result.code, result.err) == (1, "No matching processes belonging to you were found\n")
    assert harness.run(*KICK).code == 1

    assert has_session(harness)


def test_agents_of_a_user_are_loaded_with_the_session(harness: MacHarness) -> None:
    harness.program("/usr/local/bin/work")
    harness.mac.files.make_folder("/Users/m1/Library/LaunchAgents", owner="m1:staff")
    path = "/Users/m1/Library/LaunchAgents/dev.test.agent.plist"
    content = {"Label": "dev.test.agent", "Program": "/usr/local/bin/work", "KeepAlive": True}
    harness.plist(path, content, owner="m1:staff")

    harness.log_in()

    assert launchd.pid_of(harness.mac.state, "dev.test.agent", "gui/501") is not None


def test_password_may_have_any_length(tmp_path: Path) -> None:
    for length in (1, 10, 11, 12, 22):
        harness = MacHarness(tmp_path / str(length), password="p" * length)
        harness.set_up_login("p" * length)

        kickstart(harness)
        harness.clock.advance(3)

        assert has_session(harness), length


def test_password_of_a_bare_mac_is_the_one_of_its_settings(harness: MacHarness) -> None:
    assert harness.run("dscl", ".", "-authonly", "m1", PASSWORD).code == 0
