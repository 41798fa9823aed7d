"""loginwindow of a simulated Mac: kicks, hang-ups, automatic login, and the marker in place of a wrong password."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.host import kcpassword
from bramley.sim.macos import launchd
from tests.unit.sim.macos.macs import LOGINWINDOW, PASSWORD, Bench

KICK = ("launchctl", "kickstart", "-k", LOGINWINDOW)
SEALED = bytes.fromhex("41fa3742bed9b9d4a3b91f")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def has_session(bench: Bench) -> bool:
    said = bench.run("launchctl", "print", "gui/501")
    return said.code == 0 and "session = Aqua" in said.out


def kick(bench: Bench) -> None:
    assert bench.as_root(*KICK).code == 0


def test_nobody_is_logged_in_on_a_bare_mac(bench: Bench) -> None:
    bench.clock.turn(3600)

    assert not has_session(bench)


def test_a_kick_logs_the_user_in_after_about_two_seconds(bench: Bench) -> None:
    bench.set_up_login()

    kick(bench)

    assert not has_session(bench)
    bench.clock.turn(1.9)
    assert not has_session(bench)
    bench.clock.turn(0.2)
    assert has_session(bench)


def test_without_a_kick_nothing_comes_of_the_settings(bench: Bench) -> None:
    bench.set_up_login()

    bench.clock.turn(3600)

    assert not has_session(bench)


def test_a_wrong_password_is_replaced_by_the_marker_and_nobody_is_told(bench: Bench) -> None:
    bench.set_up_login("not the password")

    said = bench.as_root(*KICK)
    bench.clock.turn(3)

    assert (said.code, said.err) == (0, "")
    assert not has_session(bench)
    assert bench.mac.files.read("/etc/kcpassword") == SEALED
    assert kcpassword.is_rejected(SEALED)
    assert bench.mac.files.mode("/etc/kcpassword") == 0o600


def test_a_marker_stays_until_somebody_writes_a_password(bench: Bench) -> None:
    bench.set_up_login("not the password")
    kick(bench)
    bench.clock.turn(3)
    kick(bench)
    bench.clock.turn(3)
    assert bench.mac.files.read("/etc/kcpassword") == SEALED

    bench.set_up_login()
    kick(bench)
    bench.clock.turn(3)

    assert has_session(bench)


def test_a_password_that_was_changed_is_sealed_at_the_next_login(bench: Bench) -> None:
    bench.log_in()
    with bench.mac.change() as state:
        state["users"]["m1"]["password"] = "another one"

    assert has_session(bench)
    kick(bench)
    bench.clock.turn(3)

    assert bench.mac.files.read("/etc/kcpassword") == SEALED


@pytest.mark.parametrize("missing", ["user", "file"])
def test_automatic_login_needs_both_the_user_and_the_password(bench: Bench, missing: str) -> None:
    bench.set_up_login()
    paths = {
        "user": "/Library/Preferences/com.apple.loginwindow.plist",
        "file": "/etc/kcpassword",
    }
    bench.mac.files.remove(paths[missing])

    kick(bench)
    bench.clock.turn(3)

    assert not has_session(bench)


@pytest.mark.parametrize("content", [b"no list", b"<plist><string>m1</string></plist>"])
def test_preferences_that_cannot_be_read_name_nobody(bench: Bench, content: bytes) -> None:
    bench.set_up_login()
    bench.mac.files.write("/Library/Preferences/com.apple.loginwindow.plist", content)

    kick(bench)
    bench.clock.turn(3)

    assert not has_session(bench)


def test_root_has_no_password_at_all(bench: Bench) -> None:
    bench.set_up_login("*", user="root")

    kick(bench)
    bench.clock.turn(3)

    assert bench.mac.state["console"]["user"] is None
    assert bench.run("dscl", ".", "-authonly", "root", "*").code == 10


def test_filevault_makes_automatic_login_impossible(tmp_path: Path) -> None:
    bench = Bench(tmp_path, filevault=True)
    bench.set_up_login()

    kick(bench)
    bench.clock.turn(3)

    assert not has_session(bench)
    # Nothing was tried, so nothing was sealed.
    assert bench.mac.files.read("/etc/kcpassword") != SEALED


def test_a_kick_ends_the_session_and_all_that_runs_in_it(bench: Bench) -> None:
    bench.log_in()
    bench.program("/usr/local/bin/work")
    content = {"Label": "dev.test.agent", "Program": "/usr/local/bin/work", "KeepAlive": True}
    bench.plist("/Users/m1/agent.plist", content, owner="m1:staff")
    bench.run("launchctl", "bootstrap", "gui/501", "/Users/m1/agent.plist")
    with bench.mac.change() as state:
        state["processes"].append({"pid": 77, "command": "/usr/local/bin/tart run vm"})
    assert bench.run("pgrep", "-f", "tart run ").code == 0

    kick(bench)

    assert not has_session(bench)
    assert bench.run("pgrep", "-f", "tart run ").code == 1
    bench.clock.turn(3)
    assert has_session(bench)
    assert launchd.find(bench.mac.state, "gui/501/dev.test.agent") is None


def test_loginwindow_does_not_come_back_from_a_hang_up(bench: Bench) -> None:
    bench.log_in()

    assert bench.as_root("killall", "-HUP", "loginwindow").code == 0

    bench.clock.turn(3600)
    assert not has_session(bench)
    assert "\tstate = not running\n" in bench.run("launchctl", "print", LOGINWINDOW).out


def test_a_second_hang_up_finds_nobody_and_a_kick_starts_afresh(bench: Bench) -> None:
    bench.log_in()
    bench.as_root("killall", "-HUP", "loginwindow")

    said = bench.as_root("killall", "-HUP", "loginwindow")
    assert (said.code, said.err) == (1, "No matching processes were found\n")

    kick(bench)
    bench.clock.turn(3)
    assert has_session(bench)


def test_only_root_hangs_up_or_kicks(bench: Bench) -> None:
    bench.log_in()

    said = bench.run("killall", "-HUP", "loginwindow")
    assert (said.code, said.err) == (1, "No matching processes belonging to you were found\n")
    assert bench.run(*KICK).code == 1

    assert has_session(bench)


def test_agents_of_a_user_are_loaded_with_the_session(bench: Bench) -> None:
    bench.program("/usr/local/bin/work")
    bench.mac.files.make_folder("/Users/m1/Library/LaunchAgents", owner="m1:staff")
    path = "/Users/m1/Library/LaunchAgents/dev.test.agent.plist"
    content = {"Label": "dev.test.agent", "Program": "/usr/local/bin/work", "KeepAlive": True}
    bench.plist(path, content, owner="m1:staff")

    bench.log_in()

    assert launchd.pid_of(bench.mac.state, "dev.test.agent", "gui/501") is not None


def test_the_password_may_have_any_length(tmp_path: Path) -> None:
    for length in (1, 10, 11, 12, 22):
        bench = Bench(tmp_path / str(length), password="p" * length)
        bench.set_up_login("p" * length)

        kick(bench)
        bench.clock.turn(3)

        assert has_session(bench), length


def test_the_password_of_a_bare_mac_is_the_one_of_its_settings(bench: Bench) -> None:
    assert bench.run("dscl", ".", "-authonly", "m1", PASSWORD).code == 0
