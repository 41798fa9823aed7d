"""launchd of a simulated Mac: loading, starting, stopping and KeepAlive, with launchctl's messages and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.sim.macos import faults, launchd
from bramley.sim.macos.launchd import Exited
from bramley.sim.macos.mac import Mac
from tests.unit.sim.macos.harness import MacHarness

LABEL = "dev.test.work"
TARGET = f"system/{LABEL}"


def load(harness: MacHarness, path: str) -> None:
    assert harness.as_root("launchctl", "bootstrap", "system", path).code == 0


def pid(harness: MacHarness) -> int | None:
    return launchd.pid_of(harness.mac.state, LABEL)


def test_daemon_that_runs_at_load_has_a_process(harness: MacHarness) -> None:
    load(harness, harness.daemon(LABEL, KeepAlive=True))

    result = harness.run("launchctl", "print", TARGET)

    assert f"\tpid = {pid(harness)}\n" in result.out
    assert "\tstate = running\n" in result.out
    assert "\tlast exit code = (never exited)\n" in result.out


def test_job_that_is_not_loaded_is_not_found_113(harness: MacHarness) -> None:
    for words in (("print", TARGET), ("kickstart", "-k", TARGET)):
        result = harness.as_root("launchctl", *words)

        assert result.code == 113
        assert f'Could not find service "{LABEL}" in domain for system\n' in result.err


def test_loaded_label_is_not_loaded_again_5(harness: MacHarness) -> None:
    path = harness.daemon(LABEL)
    load(harness, path)

    result = harness.as_root("launchctl", "bootstrap", "system", path)

    assert (result.code, result.err) == (5, "Bootstrap failed: 5: Input/output error\n")


def test_bootout_of_a_job_that_is_not_loaded_fails_with_3(harness: MacHarness) -> None:
    result = harness.as_root("launchctl", "bootout", TARGET)

    assert (result.code, result.err) == (3, "Boot-out failed: 3: No such process\n")


def test_bootout_by_a_file_that_is_not_loaded_fails_with_5(harness: MacHarness) -> None:
    result = harness.as_root("launchctl", "bootout", "system", harness.daemon(LABEL))

    assert (result.code, result.err) == (5, "Boot-out failed: 5: Input/output error\n")


def test_booted_out_daemon_is_gone(harness: MacHarness) -> None:
    path = harness.daemon(LABEL, KeepAlive=True)
    load(harness, path)

    assert harness.as_root("launchctl", "bootout", "system", path).code == 0
    harness.clock.advance(1)

    assert harness.run("launchctl", "print", TARGET).code == 113
    load(harness, path)


def test_label_is_in_use_until_its_process_is_gone(tmp_path: Path) -> None:
    harness = MacHarness(tmp_path, bootout_seconds=5)
    path = harness.daemon(LABEL, KeepAlive=True)
    load(harness, path)

    assert harness.as_root("launchctl", "bootout", TARGET).code == 0

    assert harness.as_root("launchctl", "bootstrap", "system", path).code == 5
    harness.clock.advance(5)
    load(harness, path)


@pytest.mark.parametrize(
    ("mode", "owner"), [(0o666, "root:wheel"), (0o664, "root:wheel"), (0o644, "m1:staff")]
)
def test_property_list_that_others_may_write_is_refused_122(
    harness: MacHarness, mode: int, owner: str
) -> None:
    path = harness.daemon(LABEL)
    harness.mac.files.at(path).chmod(mode)
    harness.mac.files.chown(path, owner)

    result = harness.as_root("launchctl", "bootstrap", "system", path)

    assert (result.code, result.err) == (
        122,
        "Bootstrap failed: 122: Path had bad ownership/permissions\n",
    )


@pytest.mark.parametrize("content", [b"", b"<plist><dict>", b"not a property list"])
def test_invalid_property_list_is_refused_109(harness: MacHarness, content: bytes) -> None:
    harness.mac.files.write("/Library/LaunchDaemons/broken.plist", content)

    result = harness.as_root(
        "launchctl", "bootstrap", "system", "/Library/LaunchDaemons/broken.plist"
    )

    assert (result.code, result.err) == (109, "Bootstrap failed: 109: Invalid property list\n")


def test_only_root_changes_the_system(harness: MacHarness) -> None:
    path = harness.daemon(LABEL)

    result = harness.run("launchctl", "bootstrap", "system", path)

    assert result.code == 1
    assert result.err == (
        "Bootstrap failed: 1: Operation not permitted\nTry re-running the command as root for richer errors.\n"
    )
    load(harness, path)
    assert harness.run("launchctl", "kickstart", "-k", TARGET).code == 1
    assert harness.run("launchctl", "bootout", TARGET).code == 1
    assert harness.run("launchctl", "disable", TARGET).code == 1


def test_disabled_service_is_not_loaded_until_it_is_enabled(harness: MacHarness) -> None:
    path = harness.daemon(LABEL)
    harness.as_root("launchctl", "disable", TARGET)

    result = harness.as_root("launchctl", "bootstrap", "system", path)

    assert (result.code, result.err) == (119, "Bootstrap failed: 119: Service is disabled\n")
    assert f'"{LABEL}" => disabled' in harness.run("launchctl", "print-disabled", "system").out
    harness.as_root("launchctl", "enable", TARGET)
    load(harness, path)


def test_kickstart_k_restarts_a_running_daemon(harness: MacHarness) -> None:
    load(harness, harness.daemon(LABEL, KeepAlive=True))
    before = pid(harness)

    assert harness.as_root("launchctl", "kickstart", TARGET).code == 0
    assert pid(harness) == before
    result = harness.as_root("launchctl", "kickstart", "-kp", TARGET)

    assert pid(harness) != before
    assert result.out == f"{pid(harness)}\n"


def test_protected_job_is_not_restarted_even_by_root(harness: MacHarness) -> None:
    load(harness, harness.daemon(LABEL, KeepAlive=True))
    before = pid(harness)
    faults.protect(harness.mac, LABEL)

    result = harness.as_root("launchctl", "kickstart", "-k", TARGET)

    message = f'Could not kickstart service "{LABEL}": 1: Operation not permitted\n'
    assert (result.code, result.err, pid(harness)) == (1, message, before)
    assert harness.as_root("launchctl", "kickstart", TARGET).code == 0


def test_keep_alive_restarts_after_the_throttle_interval(harness: MacHarness) -> None:
    load(harness, harness.daemon(LABEL, KeepAlive=True, ThrottleInterval=10))
    before = pid(harness)
    harness.clock.advance(4)
    with harness.mac.change() as state:
        launchd.on_exit(harness.mac, state, TARGET, 1)

    assert pid(harness) is None
    assert "\tlast exit code = 1\n" in harness.run("launchctl", "print", TARGET).out
    harness.clock.advance(5)
    assert pid(harness) is None
    harness.clock.advance(1)
    assert pid(harness) not in {None, before}


def test_daemon_without_keep_alive_is_not_restarted(harness: MacHarness) -> None:
    load(harness, harness.daemon(LABEL))
    with harness.mac.change() as state:
        launchd.on_exit(harness.mac, state, TARGET, 0)

    harness.clock.advance(60)

    assert pid(harness) is None


@pytest.mark.parametrize("code", [0, 1])
def test_keep_alive_may_depend_on_the_exit_code(harness: MacHarness, code: int) -> None:
    load(harness, harness.daemon(LABEL, KeepAlive={"SuccessfulExit": False}))
    with harness.mac.change() as state:
        launchd.on_exit(harness.mac, state, TARGET, code)

    harness.clock.advance(60)

    assert (pid(harness) is not None) == (code != 0)


def test_crash_fault_lasts_until_it_is_removed(harness: MacHarness) -> None:
    faults.crash(harness.mac, LABEL, 3)
    load(harness, harness.daemon(LABEL, KeepAlive=True))

    harness.clock.advance(60)

    assert pid(harness) is None
    assert "\tlast exit code = 3\n" in harness.run("launchctl", "print", TARGET).out
    faults.crash(harness.mac, LABEL, None)
    harness.clock.advance(60)
    assert pid(harness) is not None


def test_daemon_without_its_program_ends_with_78(harness: MacHarness) -> None:
    path = harness.daemon(LABEL, KeepAlive=True)
    harness.mac.files.remove("/usr/local/bin/work")

    load(harness, path)

    assert "\tlast exit code = 78: EX_CONFIG\n" in harness.run("launchctl", "print", TARGET).out


def test_job_with_a_program_of_the_model_runs_to_its_end_at_once(harness: MacHarness) -> None:
    load(harness, harness.daemon(LABEL, "/bin/chmod"))

    # Without arguments it fails, which shows that it ran.
    assert "\tlast exit code = 64\n" in harness.run("launchctl", "print", TARGET).out


def test_job_with_an_interval_is_started_again(harness: MacHarness) -> None:
    load(harness, harness.daemon(LABEL, "/usr/bin/true", StartInterval=60))

    harness.clock.advance(61)

    assert "\truns = 2\n" in harness.run("launchctl", "print", TARGET).out


def test_list_has_pid_status_and_label(harness: MacHarness) -> None:
    load(harness, harness.daemon(LABEL, KeepAlive=True))

    assert f"{pid(harness)}\t0\t{LABEL}\n" in harness.as_root("launchctl", "list").out
    assert f'"PID" = {pid(harness)};' in harness.as_root("launchctl", "list", LABEL).out
    result = harness.as_root("launchctl", "list", "no.such.job")
    assert (result.code, result.err) == (
        113,
        'Could not find service "no.such.job" in domain for port\n',
    )


def test_domains_of_users_are_shown_to_root_only(harness: MacHarness) -> None:
    harness.log_in()

    for target in ("gui/501", "gui/501/some.agent", "user/501", "gui/502"):
        result = harness.run("launchctl", "print", target)
        assert (result.code, result.err) == (
            1,
            "Could not print domain: 1: Operation not permitted\n",
        )
    assert "session = Aqua" in harness.as_root("launchctl", "print", "gui/501").out
    assert harness.run("launchctl", "print", "system").code == 0


def test_there_is_no_graphical_domain_without_a_session(harness: MacHarness) -> None:
    result = harness.as_root("launchctl", "print", "gui/501")
    assert (result.code, result.err) == (
        112,
        "Bad request.\nCould not find domain for user gui: 501\n",
    )

    harness.program("/usr/local/bin/work")
    harness.plist("/tmp/agent.plist", {"Label": LABEL, "Program": "/usr/local/bin/work"})
    result = harness.run("launchctl", "bootstrap", "gui/501", "/tmp/agent.plist")
    assert result.code == 125
    assert result.err.startswith(
        "Bootstrap failed: 125: Domain does not support specified action\n"
    )


def test_user_loads_agents_into_the_session(harness: MacHarness) -> None:
    harness.log_in()
    harness.program("/usr/local/bin/work")
    content = {"Label": LABEL, "Program": "/usr/local/bin/work", "KeepAlive": True}
    harness.plist("/Users/m1/agent.plist", content, owner="m1:staff")

    assert harness.run("launchctl", "bootstrap", "gui/501", "/Users/m1/agent.plist").code == 0

    assert launchd.pid_of(harness.mac.state, LABEL, "gui/501") is not None
    assert f"\t{LABEL}\n" in harness.run("launchctl", "list").out


def test_legacy_load_fails_with_code_0(harness: MacHarness) -> None:
    result = harness.run("launchctl", "load", "/tmp/agent.plist")

    assert result.code == 0
    assert result.err.startswith("Load failed: 5: Input/output error\n")


def test_unknown_arguments_are_a_usage_error_64(harness: MacHarness) -> None:
    assert harness.run("launchctl", "no-such-command").code == 64
    assert harness.run("launchctl", "bootout", "--wait", TARGET).code == 64
    assert harness.run("launchctl", "print", "nowhere/x").code == 64


class RecordingSpawner:
    """Starts nothing and records the calls."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def start(self, mac: Mac, state: dict[str, object], target: str) -> int | Exited:
        del mac, state
        self.seen.append(f"start {target}")
        return 1000 + len(self.seen)

    def stop(self, mac: Mac, pid: int) -> None:
        del mac
        self.seen.append(f"stop {pid}")


def test_spawner_starts_and_stops_processes(harness: MacHarness) -> None:
    path = harness.daemon(LABEL, KeepAlive=True)
    spawner = RecordingSpawner()
    harness.mac.spawner = spawner

    load(harness, path)
    harness.as_root("launchctl", "kickstart", "-k", TARGET)
    harness.as_root("launchctl", "bootout", TARGET)

    assert spawner.seen == [f"start {TARGET}", "stop 1001", f"start {TARGET}", "stop 1003"]
