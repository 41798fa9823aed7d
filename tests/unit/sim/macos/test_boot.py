"""A restart of a simulated Mac: what it ends, what it starts, and what applies only after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.sim.macos import launchd, local_network
from tests.unit.sim.macos.harness import MacHarness

RANGES = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]
TART = "/usr/local/lib/tart.app"
GUEST = "192.168.64.2"


def reboot(harness: MacHarness) -> None:
    assert harness.as_root("shutdown", "-r", "now").code == 0
    harness.clock.advance(41)
    assert harness.mac.is_up


def test_restart_takes_boot_seconds_and_has_a_new_boot_id(harness: MacHarness) -> None:
    before = harness.mac.state["boot"]["boot_id"]

    harness.as_root("reboot")

    seen = []
    for seconds in (0, 39, 1):
        harness.clock.advance(seconds)
        seen.append(harness.mac.is_up)
    assert seen == [False, False, True]
    assert harness.mac.state["boot"]["boot_id"] != before


def test_only_root_restarts_a_mac(harness: MacHarness) -> None:
    assert harness.run("shutdown", "-r", "now").err == "shutdown: NOT super-user\n"
    assert harness.mac.is_up


def test_restart_ends_the_session_and_a_headless_mac_has_none(harness: MacHarness) -> None:
    harness.log_in()

    reboot(harness)
    harness.clock.advance(3600)

    assert harness.as_root("launchctl", "print", "gui/501").code == 112


def test_with_a_display_a_restart_logs_the_user_in(tmp_path: Path) -> None:
    harness = MacHarness(tmp_path, headless=False)
    harness.set_up_login()

    reboot(harness)
    harness.clock.advance(3)

    assert "session = Aqua" in harness.as_root("launchctl", "print", "gui/501").out


def test_only_daemons_of_the_folder_are_loaded_by_a_restart(harness: MacHarness) -> None:
    harness.as_root(
        "launchctl", "bootstrap", "system", harness.daemon("dev.test.kept", KeepAlive=True)
    )
    before = launchd.pid_of(harness.mac.state, "dev.test.kept")
    harness.plist(
        "/opt/elsewhere.plist", {"Label": "dev.test.lost", "Program": "/usr/local/bin/work"}
    )
    harness.as_root("launchctl", "bootstrap", "system", "/opt/elsewhere.plist")

    reboot(harness)

    assert launchd.pid_of(harness.mac.state, "dev.test.kept") not in {None, before}
    assert harness.run("launchctl", "print", "system/dev.test.lost").code == 113


def test_new_file_in_the_folder_is_loaded_by_a_restart(harness: MacHarness) -> None:
    harness.daemon("dev.test.new", KeepAlive=True)
    assert harness.run("launchctl", "print", "system/dev.test.new").code == 113

    reboot(harness)

    assert harness.run("launchctl", "print", "system/dev.test.new").code == 0


def test_disabled_daemon_is_not_loaded_by_a_restart(harness: MacHarness) -> None:
    harness.as_root("launchctl", "bootstrap", "system", harness.daemon("dev.test.off"))
    harness.as_root("launchctl", "disable", "system/dev.test.off")

    reboot(harness)

    assert harness.run("launchctl", "print", "system/dev.test.off").code == 113


def test_one_broken_property_list_does_not_stop_the_others(harness: MacHarness) -> None:
    harness.mac.files.write("/Library/LaunchDaemons/a-broken.plist", b"no list")
    harness.daemon("dev.test.fine", KeepAlive=True)

    reboot(harness)

    assert launchd.pid_of(harness.mac.state, "dev.test.fine") is not None


def test_loginwindow_runs_again_after_a_restart(harness: MacHarness) -> None:
    harness.as_root("killall", "-HUP", "loginwindow")

    reboot(harness)

    assert launchd.pid_of(harness.mac.state, launchd.LOGINWINDOW) is not None


def test_restart_removes_temporary_files_and_sockets(harness: MacHarness) -> None:
    harness.mac.files.write("/tmp/file", b"")
    harness.mac.files.write("/var/run/daemon.sock", b"")
    harness.mac.files.write("/var/log/daemon.log", b"")

    reboot(harness)

    assert not harness.mac.files.exists("/tmp/file")
    assert not harness.mac.files.exists("/var/run/daemon.sock")
    assert harness.mac.files.exists("/var/log/daemon.log")


def allow(harness: MacHarness, *keys: str) -> None:
    harness.mac.files.make_folder(local_network.PREFERENCES.rpartition("/")[0])
    harness.plist(local_network.PREFERENCES, dict.fromkeys(keys, RANGES))


def lay_tart(harness: MacHarness, content: bytes) -> None:
    harness.mac.files.make_folder(f"{TART}/Contents/MacOS")
    harness.mac.files.write(f"{TART}/Contents/MacOS/tart", content, mode=0o755)


def test_allowed_networks_apply_only_after_a_restart(harness: MacHarness) -> None:
    lay_tart(harness, b"tart")
    allow(harness, *local_network.ALLOWED)

    assert not local_network.reaches(harness.mac, TART, GUEST)
    reboot(harness)
    assert local_network.reaches(harness.mac, TART, GUEST)
    assert not local_network.reaches(harness.mac, TART, "203.0.113.1")


def test_one_of_two_lists_allows_nothing(harness: MacHarness) -> None:
    allow(harness, local_network.ALLOWED[0])

    reboot(harness)

    assert not local_network.reaches(harness.mac, TART, GUEST)


def test_removed_list_applies_until_the_next_restart(harness: MacHarness) -> None:
    allow(harness, *local_network.ALLOWED)
    reboot(harness)

    harness.mac.files.remove(local_network.PREFERENCES)

    assert local_network.reaches(harness.mac, TART, GUEST)
    reboot(harness)
    assert not local_network.reaches(harness.mac, TART, GUEST)


def test_grant_belongs_to_one_signature(harness: MacHarness) -> None:
    lay_tart(harness, b"tart 1")
    assert not local_network.reaches(harness.mac, TART, GUEST)
    local_network.grant(harness.mac, TART)
    assert local_network.reaches(harness.mac, TART, GUEST)

    lay_tart(harness, b"tart 2")
    assert not local_network.reaches(harness.mac, TART, GUEST)

    lay_tart(harness, b"tart 1")
    assert local_network.reaches(harness.mac, TART, GUEST)


def test_grant_survives_a_restart(harness: MacHarness) -> None:
    lay_tart(harness, b"tart")
    local_network.grant(harness.mac, TART)

    reboot(harness)

    assert local_network.reaches(harness.mac, TART, GUEST)


@pytest.mark.parametrize(
    ("macos", "reached"), [("14.8", True), ("15.4.1", False), ("15.5", True), ("26.3", True)]
)
def test_old_releases_ignore_the_allowed_networks(
    macos: str, reached: bool, tmp_path: Path
) -> None:
    harness = MacHarness(tmp_path, macos=macos)
    lay_tart(harness, b"tart")
    allow(harness, *local_network.ALLOWED)

    reboot(harness)

    assert local_network.reaches(harness.mac, TART, GUEST) is reached


def test_mac_does_not_come_back_if_the_restart_turns_filevault_on(tmp_path: Path) -> None:
    harness = MacHarness(tmp_path, filevault_after="restart")

    harness.as_root("reboot")
    harness.clock.advance(3600)

    assert not harness.mac.is_up
