"""A restart of a simulated Mac: what it loses, what comes back by itself, and what only a restart brings."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.sim.macos import launchd, local_network
from tests.unit.sim.macos.macs import Bench

RANGES = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]
TART = "/usr/local/lib/tart.app"
GUEST = "192.168.64.2"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def reboot(bench: Bench) -> None:
    assert bench.as_root("shutdown", "-r", "now").code == 0
    bench.clock.turn(41)
    assert bench.mac.is_up


def test_a_restart_takes_its_time_and_is_another_boot(bench: Bench) -> None:
    before = bench.mac.state["boot"]["boot_id"]

    bench.as_root("reboot")

    seen = []
    for seconds in (0, 39, 1):
        bench.clock.turn(seconds)
        seen.append(bench.mac.is_up)
    assert seen == [False, False, True]
    assert bench.mac.state["boot"]["boot_id"] != before


def test_only_root_restarts_a_mac(bench: Bench) -> None:
    assert bench.run("shutdown", "-r", "now").err == "shutdown: NOT super-user\n"
    assert bench.mac.is_up


def test_a_restart_ends_the_session_and_a_headless_mac_logs_nobody_in(bench: Bench) -> None:
    bench.log_in()

    reboot(bench)
    bench.clock.turn(3600)

    assert bench.run("launchctl", "print", "gui/501").code == 112


def test_with_a_display_a_restart_logs_the_user_in(tmp_path: Path) -> None:
    bench = Bench(tmp_path, headless=False)
    bench.set_up_login()

    reboot(bench)
    bench.clock.turn(3)

    assert "session = Aqua" in bench.run("launchctl", "print", "gui/501").out


def test_daemons_of_the_folder_come_back_and_others_do_not(bench: Bench) -> None:
    bench.as_root("launchctl", "bootstrap", "system", bench.daemon("dev.test.kept", KeepAlive=True))
    before = launchd.pid_of(bench.mac.state, "dev.test.kept")
    bench.plist(
        "/opt/elsewhere.plist", {"Label": "dev.test.lost", "Program": "/usr/local/bin/work"}
    )
    bench.as_root("launchctl", "bootstrap", "system", "/opt/elsewhere.plist")

    reboot(bench)

    assert launchd.pid_of(bench.mac.state, "dev.test.kept") not in {None, before}
    assert bench.run("launchctl", "print", "system/dev.test.lost").code == 113


def test_a_daemon_that_was_only_put_into_the_folder_is_loaded_by_a_restart(bench: Bench) -> None:
    bench.daemon("dev.test.new", KeepAlive=True)
    assert bench.run("launchctl", "print", "system/dev.test.new").code == 113

    reboot(bench)

    assert bench.run("launchctl", "print", "system/dev.test.new").code == 0


def test_a_disabled_daemon_does_not_come_back(bench: Bench) -> None:
    bench.as_root("launchctl", "bootstrap", "system", bench.daemon("dev.test.off"))
    bench.as_root("launchctl", "disable", "system/dev.test.off")

    reboot(bench)

    assert bench.run("launchctl", "print", "system/dev.test.off").code == 113


def test_one_broken_property_list_does_not_stop_the_others(bench: Bench) -> None:
    bench.mac.files.write("/Library/LaunchDaemons/a-broken.plist", b"no list")
    bench.daemon("dev.test.fine", KeepAlive=True)

    reboot(bench)

    assert launchd.pid_of(bench.mac.state, "dev.test.fine") is not None


def test_loginwindow_that_was_hung_up_is_back_after_a_restart(bench: Bench) -> None:
    bench.as_root("killall", "-HUP", "loginwindow")

    reboot(bench)

    assert launchd.pid_of(bench.mac.state, launchd.LOGINWINDOW) is not None


def test_temporary_files_and_sockets_are_gone(bench: Bench) -> None:
    bench.mac.files.write("/tmp/file", b"")
    bench.mac.files.write("/var/run/daemon.sock", b"")
    bench.mac.files.write("/var/log/daemon.log", b"")

    reboot(bench)

    assert not bench.mac.files.exists("/tmp/file")
    assert not bench.mac.files.exists("/var/run/daemon.sock")
    assert bench.mac.files.exists("/var/log/daemon.log")


def allow(bench: Bench, *keys: str) -> None:
    bench.mac.files.make_folder(local_network.PREFERENCES.rpartition("/")[0])
    bench.plist(local_network.PREFERENCES, dict.fromkeys(keys, RANGES))


def lay_tart(bench: Bench, content: bytes) -> None:
    bench.mac.files.make_folder(f"{TART}/Contents/MacOS")
    bench.mac.files.write(f"{TART}/Contents/MacOS/tart", content, mode=0o755)


def test_the_list_of_allowed_networks_is_answered_only_after_a_restart(bench: Bench) -> None:
    lay_tart(bench, b"tart")
    allow(bench, *local_network.ALLOWED)

    assert not local_network.reaches(bench.mac, TART, GUEST)
    reboot(bench)
    assert local_network.reaches(bench.mac, TART, GUEST)
    assert not local_network.reaches(bench.mac, TART, "203.0.113.1")


def test_half_a_list_allows_nothing(bench: Bench) -> None:
    allow(bench, local_network.ALLOWED[0])

    reboot(bench)

    assert not local_network.reaches(bench.mac, TART, GUEST)


def test_a_list_that_is_taken_away_counts_until_the_next_restart(bench: Bench) -> None:
    allow(bench, *local_network.ALLOWED)
    reboot(bench)

    bench.mac.files.remove(local_network.PREFERENCES)

    assert local_network.reaches(bench.mac, TART, GUEST)
    reboot(bench)
    assert not local_network.reaches(bench.mac, TART, GUEST)


def test_a_grant_belongs_to_one_signature_and_is_lost_with_it(bench: Bench) -> None:
    lay_tart(bench, b"tart 1")
    assert not local_network.reaches(bench.mac, TART, GUEST)
    local_network.grant(bench.mac, TART)
    assert local_network.reaches(bench.mac, TART, GUEST)

    lay_tart(bench, b"tart 2")
    assert not local_network.reaches(bench.mac, TART, GUEST)

    lay_tart(bench, b"tart 1")
    assert local_network.reaches(bench.mac, TART, GUEST)


def test_a_grant_outlives_a_restart(bench: Bench) -> None:
    lay_tart(bench, b"tart")
    local_network.grant(bench.mac, TART)

    reboot(bench)

    assert local_network.reaches(bench.mac, TART, GUEST)


@pytest.mark.parametrize(
    ("macos", "reached"), [("14.8", True), ("15.4.1", False), ("15.5", True), ("26.3", True)]
)
def test_releases_that_do_not_know_the_list_of_allowed_networks_do_not_heed_it(
    macos: str, reached: bool, tmp_path: Path
) -> None:
    bench = Bench(tmp_path, macos=macos)
    lay_tart(bench, b"tart")
    allow(bench, *local_network.ALLOWED)

    reboot(bench)

    assert local_network.reaches(bench.mac, TART, GUEST) is reached


def test_a_mac_whose_disk_is_encrypted_from_the_next_start_on_does_not_come_back(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, filevault_after="restart")

    bench.as_root("reboot")
    bench.clock.turn(3600)

    assert not bench.mac.is_up
