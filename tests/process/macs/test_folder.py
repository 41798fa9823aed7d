"""The programs of a simulated Mac in a folder, as real processes that reach nothing of the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bramley.sim.mac import shim
from bramley.sim.mac.folder import MacFolder
from tests.process.serving.processes import until
from tests.programs import run_program

PRINT = ("sudo", "-n", "launchctl", "print", "gui/501")
KICKSTART = ("sudo", "-n", "launchctl", "kickstart", "-k", "system/com.apple.loginwindow")


@pytest.fixture
def mac(tmp_path: Path) -> MacFolder:
    made = MacFolder(tmp_path / "mac-1")
    made.lay_out({"scale": 0.01})
    return made


def run(mac: MacFolder, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = mac.environment()
    program = shutil.which(argv[0], path=environment["PATH"])
    assert program is not None
    return run_program([program, *argv[1:]], env=environment)


def test_lost_session_is_reported_and_restored_by_kickstart(mac: MacFolder) -> None:
    assert "session = Aqua" in run(mac, *PRINT).stdout
    lost = mac.root / shim.NO_SESSION
    lost.parent.mkdir(parents=True, exist_ok=True)
    lost.touch()
    assert run(mac, *PRINT).returncode == 112

    assert run(mac, *KICKSTART).returncode == 0

    assert run(mac, *PRINT).returncode == 0
    assert (mac.root / shim.LOGINWINDOW_COMMANDS).read_text() == " ".join(
        ["launchctl", *KICKSTART[3:]]
    ) + "\n"


def test_kickstart_restores_no_session_without_automatic_login(mac: MacFolder) -> None:
    (mac.root / shim.NO_LOGIN).touch()

    assert run(mac, *KICKSTART).returncode == 0

    assert run(mac, *PRINT).returncode == 112


def test_hang_up_is_recorded_and_changes_nothing(mac: MacFolder) -> None:
    assert run(mac, "sudo", "-n", "killall", "-HUP", "loginwindow").returncode == 0

    assert (mac.root / shim.LOGINWINDOW_COMMANDS).read_text() == "killall -HUP loginwindow\n"


def test_only_root_may_kickstart_and_root_has_only_programs_of_this_mac(mac: MacFolder) -> None:
    assert run(mac, *KICKSTART[2:]).returncode == 1
    assert run(mac, *PRINT[2:]).returncode == 1

    refused = run(mac, "sudo", "-n", sys.executable, "-c", "print('reached')")

    assert refused.returncode == 1
    assert "command not found" in refused.stderr
    assert "reached" not in refused.stdout


def test_programs_of_the_mac_hide_those_of_the_machine(mac: MacFolder) -> None:
    path = mac.environment()["PATH"]

    found = {name: shutil.which(name, path=path) for name in (*shim.NAMES, "tart")}

    assert found == {name: str(mac.programs / name) for name in found}
    for name in ("launchctl", "sudo", "killall", "tailscale", "tart"):
        assert not (mac.programs / name).is_symlink()
    assert shutil.which("python3", path=path) is None
    assert run(mac, "tailscale", "ip", "-4").stdout == "100.64.0.11\n"


def test_tart_of_the_mac_uses_its_own_home(mac: MacFolder) -> None:
    assert run(mac, "tart", "create", "--linux", "vm").returncode == 0

    assert run(mac, "tart", "list", "-q").stdout == "vm\n"
    assert (mac.folders.tart_home / "vms" / "vm").is_dir()


def test_processes_of_the_mac_are_found_and_those_of_a_user_are_not(mac: MacFolder) -> None:
    run(mac, "tart", "create", "--linux", "vm")
    environment = {**mac.environment(), "PATH": os.environ["PATH"]}
    vm = subprocess.Popen([mac.programs / "tart", "run", "vm"], env=environment)
    mac.log.touch()
    person = subprocess.Popen(["tail", "-f", str(mac.log)], stdout=subprocess.DEVNULL)
    try:
        until(lambda: len(mac.vms()) == 2)

        assert vm.pid in mac.vms()
        assert person.pid not in mac.processes()
        assert mac.agents() == []
    finally:
        for process in (vm, person):
            process.kill()
            process.wait()
    until(lambda: mac.processes() == [])


def test_short_call_of_tart_does_not_count_as_a_vm(mac: MacFolder) -> None:
    (mac.programs / "tart").write_text("input()")
    command = [sys.executable, "-ISE", str(mac.programs / "tart")]
    calls = [
        subprocess.Popen([*command, *words], stdin=subprocess.PIPE)
        for words in (["run", "vm"], ["list"])
    ]
    try:
        # A process that has just begun is without its command line for a moment.
        until(lambda: set(mac.processes()) == {call.pid for call in calls})
        assert mac.vms() == [calls[0].pid]
    finally:
        for call in calls:
            call.communicate(b"\n")


def test_mac_that_is_laid_out_again_keeps_its_disk(mac: MacFolder) -> None:
    run(mac, "tart", "create", "--linux", "vm")

    mac.lay_out({"scale": 0.01, "version": "2.35.0"})

    assert run(mac, "tart", "list", "-q").stdout == "vm\n"
    assert run(mac, "tart", "--version").stdout == "2.35.0\n"
