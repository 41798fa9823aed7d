"""launchd of a simulated Mac: loading, starting, ending and keeping alive, in launchctl's words and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.sim.macos import faults, launchd
from bramley.sim.macos.launchd import Exited
from bramley.sim.macos.mac import Mac
from tests.unit.sim.macos.macs import Bench

LABEL = "dev.test.work"
TARGET = f"system/{LABEL}"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def load(bench: Bench, path: str) -> None:
    assert bench.as_root("launchctl", "bootstrap", "system", path).code == 0


def pid(bench: Bench) -> int | None:
    return launchd.pid_of(bench.mac.state, LABEL)


def test_a_daemon_that_runs_at_load_has_a_process(bench: Bench) -> None:
    load(bench, bench.daemon(LABEL, KeepAlive=True))

    said = bench.run("launchctl", "print", TARGET)

    assert f"\tpid = {pid(bench)}\n" in said.out
    assert "\tstate = running\n" in said.out
    assert "\tlast exit code = (never exited)\n" in said.out


def test_what_is_not_loaded_is_not_found_113(bench: Bench) -> None:
    for words in (("print", TARGET), ("kickstart", "-k", TARGET)):
        said = bench.as_root("launchctl", *words)

        assert said.code == 113
        assert f'Could not find service "{LABEL}" in domain for system\n' in said.err


def test_a_label_that_is_loaded_is_not_loaded_again_5(bench: Bench) -> None:
    path = bench.daemon(LABEL)
    load(bench, path)

    said = bench.as_root("launchctl", "bootstrap", "system", path)

    assert (said.code, said.err) == (5, "Bootstrap failed: 5: Input/output error\n")


def test_booting_out_what_is_not_loaded_is_no_such_process_3(bench: Bench) -> None:
    said = bench.as_root("launchctl", "bootout", TARGET)

    assert (said.code, said.err) == (3, "Boot-out failed: 3: No such process\n")


def test_booting_out_by_a_file_that_is_not_loaded_is_an_input_output_error_5(bench: Bench) -> None:
    said = bench.as_root("launchctl", "bootout", "system", bench.daemon(LABEL))

    assert (said.code, said.err) == (5, "Boot-out failed: 5: Input/output error\n")


def test_a_booted_out_daemon_is_gone(bench: Bench) -> None:
    path = bench.daemon(LABEL, KeepAlive=True)
    load(bench, path)

    assert bench.as_root("launchctl", "bootout", "system", path).code == 0
    bench.clock.turn(1)

    assert bench.run("launchctl", "print", TARGET).code == 113
    load(bench, path)


def test_a_label_stays_taken_until_its_process_has_gone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, bootout_seconds=5)
    path = bench.daemon(LABEL, KeepAlive=True)
    load(bench, path)

    assert bench.as_root("launchctl", "bootout", TARGET).code == 0

    assert bench.as_root("launchctl", "bootstrap", "system", path).code == 5
    bench.clock.turn(5)
    load(bench, path)


@pytest.mark.parametrize(
    ("mode", "owner"), [(0o666, "root:wheel"), (0o664, "root:wheel"), (0o644, "m1:staff")]
)
def test_a_property_list_that_others_could_write_is_refused_122(
    bench: Bench, mode: int, owner: str
) -> None:
    path = bench.daemon(LABEL)
    bench.mac.files.at(path).chmod(mode)
    bench.mac.files.own(path, owner)

    said = bench.as_root("launchctl", "bootstrap", "system", path)

    assert (said.code, said.err) == (
        122,
        "Bootstrap failed: 122: Path had bad ownership/permissions\n",
    )


@pytest.mark.parametrize("content", [b"", b"<plist><dict>", b"no list at all"])
def test_what_is_no_property_list_is_refused_109(bench: Bench, content: bytes) -> None:
    bench.mac.files.write("/Library/LaunchDaemons/broken.plist", content)

    said = bench.as_root("launchctl", "bootstrap", "system", "/Library/LaunchDaemons/broken.plist")

    assert (said.code, said.err) == (109, "Bootstrap failed: 109: Invalid property list\n")


def test_only_root_changes_the_system(bench: Bench) -> None:
    path = bench.daemon(LABEL)

    said = bench.run("launchctl", "bootstrap", "system", path)

    assert said.code == 1
    assert said.err == (
        "Bootstrap failed: 1: Operation not permitted\nTry re-running the command as root for richer errors.\n"
    )
    load(bench, path)
    assert bench.run("launchctl", "kickstart", "-k", TARGET).code == 1
    assert bench.run("launchctl", "bootout", TARGET).code == 1
    assert bench.run("launchctl", "disable", TARGET).code == 1


def test_a_disabled_service_is_not_loaded_until_it_is_enabled(bench: Bench) -> None:
    path = bench.daemon(LABEL)
    bench.as_root("launchctl", "disable", TARGET)

    said = bench.as_root("launchctl", "bootstrap", "system", path)

    assert (said.code, said.err) == (119, "Bootstrap failed: 119: Service is disabled\n")
    assert f'"{LABEL}" => disabled' in bench.run("launchctl", "print-disabled", "system").out
    bench.as_root("launchctl", "enable", TARGET)
    load(bench, path)


def test_a_kick_gives_a_running_daemon_another_process(bench: Bench) -> None:
    load(bench, bench.daemon(LABEL, KeepAlive=True))
    before = pid(bench)

    assert bench.as_root("launchctl", "kickstart", TARGET).code == 0
    assert pid(bench) == before
    said = bench.as_root("launchctl", "kickstart", "-kp", TARGET)

    assert pid(bench) != before
    assert said.out == f"{pid(bench)}\n"


def test_a_job_may_be_protected_from_being_killed_even_by_root(bench: Bench) -> None:
    load(bench, bench.daemon(LABEL, KeepAlive=True))
    before = pid(bench)
    faults.protect(bench.mac, LABEL)

    said = bench.as_root("launchctl", "kickstart", "-k", TARGET)

    told = f'Could not kickstart service "{LABEL}": 1: Operation not permitted\n'
    assert (said.code, said.err, pid(bench)) == (1, told, before)
    assert bench.as_root("launchctl", "kickstart", TARGET).code == 0


def test_a_daemon_that_is_kept_alive_comes_back_after_its_throttle(bench: Bench) -> None:
    load(bench, bench.daemon(LABEL, KeepAlive=True, ThrottleInterval=10))
    before = pid(bench)
    bench.clock.turn(4)
    with bench.mac.change() as state:
        launchd.ended(bench.mac, state, TARGET, 1)

    assert pid(bench) is None
    assert "\tlast exit code = 1\n" in bench.run("launchctl", "print", TARGET).out
    bench.clock.turn(5)
    assert pid(bench) is None
    bench.clock.turn(1)
    assert pid(bench) not in {None, before}


def test_a_daemon_that_is_not_kept_alive_stays_ended(bench: Bench) -> None:
    load(bench, bench.daemon(LABEL))
    with bench.mac.change() as state:
        launchd.ended(bench.mac, state, TARGET, 0)

    bench.clock.turn(60)

    assert pid(bench) is None


@pytest.mark.parametrize("code", [0, 1])
def test_a_daemon_may_be_kept_alive_only_after_failures(bench: Bench, code: int) -> None:
    load(bench, bench.daemon(LABEL, KeepAlive={"SuccessfulExit": False}))
    with bench.mac.change() as state:
        launchd.ended(bench.mac, state, TARGET, code)

    bench.clock.turn(60)

    assert (pid(bench) is not None) == (code != 0)


def test_a_daemon_may_crash_again_and_again(bench: Bench) -> None:
    faults.crash(bench.mac, LABEL, 3)
    load(bench, bench.daemon(LABEL, KeepAlive=True))

    bench.clock.turn(60)

    assert pid(bench) is None
    assert "\tlast exit code = 3\n" in bench.run("launchctl", "print", TARGET).out
    faults.crash(bench.mac, LABEL, None)
    bench.clock.turn(60)
    assert pid(bench) is not None


def test_a_daemon_without_its_program_ends_with_78(bench: Bench) -> None:
    path = bench.daemon(LABEL, KeepAlive=True)
    bench.mac.files.remove("/usr/local/bin/work")

    load(bench, path)

    assert "\tlast exit code = 78: EX_CONFIG\n" in bench.run("launchctl", "print", TARGET).out


def test_a_job_that_is_a_program_of_the_mac_runs_to_its_end_at_once(bench: Bench) -> None:
    load(bench, bench.daemon(LABEL, "/bin/chmod"))

    # Without arguments it fails, which shows that it ran.
    assert "\tlast exit code = 64\n" in bench.run("launchctl", "print", TARGET).out


def test_a_job_with_an_interval_is_started_again(bench: Bench) -> None:
    load(bench, bench.daemon(LABEL, "/usr/bin/true", StartInterval=60))

    bench.clock.turn(61)

    assert "\truns = 2\n" in bench.run("launchctl", "print", TARGET).out


def test_the_list_has_pid_status_and_label(bench: Bench) -> None:
    load(bench, bench.daemon(LABEL, KeepAlive=True))

    assert f"{pid(bench)}\t0\t{LABEL}\n" in bench.as_root("launchctl", "list").out
    assert f'"PID" = {pid(bench)};' in bench.as_root("launchctl", "list", LABEL).out
    said = bench.as_root("launchctl", "list", "no.such.job")
    assert (said.code, said.err) == (
        113,
        'Could not find service "no.such.job" in domain for port\n',
    )


def test_there_is_no_graphical_domain_without_a_session(bench: Bench) -> None:
    said = bench.run("launchctl", "print", "gui/501")
    assert (said.code, said.err) == (112, "Bad request.\nCould not find domain for user gui: 501\n")

    bench.program("/usr/local/bin/work")
    bench.plist("/tmp/agent.plist", {"Label": LABEL, "Program": "/usr/local/bin/work"})
    said = bench.run("launchctl", "bootstrap", "gui/501", "/tmp/agent.plist")
    assert said.code == 125
    assert said.err.startswith("Bootstrap failed: 125: Domain does not support specified action\n")


def test_a_user_loads_agents_into_the_own_session(bench: Bench) -> None:
    bench.log_in()
    bench.program("/usr/local/bin/work")
    content = {"Label": LABEL, "Program": "/usr/local/bin/work", "KeepAlive": True}
    bench.plist("/Users/m1/agent.plist", content, owner="m1:staff")

    assert bench.run("launchctl", "bootstrap", "gui/501", "/Users/m1/agent.plist").code == 0

    assert launchd.pid_of(bench.mac.state, LABEL, "gui/501") is not None
    assert f"\t{LABEL}\n" in bench.run("launchctl", "list").out


def test_the_old_interface_reaches_no_session_and_calls_that_success(bench: Bench) -> None:
    said = bench.run("launchctl", "load", "/tmp/agent.plist")

    assert said.code == 0
    assert said.err.startswith("Load failed: 5: Input/output error\n")


def test_what_launchctl_does_not_know_is_a_usage_error_64(bench: Bench) -> None:
    assert bench.run("launchctl", "unheard-of").code == 64
    assert bench.run("launchctl", "bootout", "--wait", TARGET).code == 64
    assert bench.run("launchctl", "print", "nowhere/x").code == 64


class Recording:
    """Runs nothing and remembers what it was asked to."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def start(self, mac: Mac, state: dict[str, object], target: str) -> int | Exited:
        del mac, state
        self.seen.append(f"start {target}")
        return 1000 + len(self.seen)

    def stop(self, mac: Mac, pid: int) -> None:
        del mac
        self.seen.append(f"stop {pid}")


def test_processes_are_a_spawners_matter(bench: Bench) -> None:
    path = bench.daemon(LABEL, KeepAlive=True)
    spawner = Recording()
    bench.mac.spawner = spawner

    load(bench, path)
    bench.as_root("launchctl", "kickstart", "-k", TARGET)
    bench.as_root("launchctl", "bootout", TARGET)

    assert spawner.seen == [f"start {TARGET}", "stop 1001", f"start {TARGET}", "stop 1003"]
