"""The acceptance script for owners of a Mac, on a simulated one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bramley.sim.mac.folder import MacFolder
from tests.contract.programs.macs import CONTENT, IMAGE
from tests.programs import run_program

ROOT = Path(__file__).parents[3]


def accept(mac: MacFolder, *more: str) -> subprocess.CompletedProcess[str]:
    tart = str(mac.programs / "tart")
    command = [sys.executable, "-m", "tools.acceptance", "--tart", tart, "--folder", str(mac.root)]
    return run_program(
        [*command, *more],
        cwd=ROOT,
        env={**mac.environment(), "PATH": os.environ["PATH"]},
        timeout=600,
    )


def test_correct_machine_passes_the_acceptance(tmp_path: Path) -> None:
    mac = MacFolder(tmp_path / "mac")
    mac.lay_out(CONTENT)

    done = accept(mac, "--image", IMAGE)

    assert done.stderr == ""
    assert [line for line in done.stdout.splitlines() if not line.startswith("ok ")] == [
        "all as it should be"
    ]
    assert done.returncode == 0
    assert mac.vms() == []


def test_failed_checks_are_reported_and_the_others_run(tmp_path: Path) -> None:
    mac = MacFolder(tmp_path / "mac")
    settings = mac.lay_out(CONTENT)
    settings.fault("run", "no_session")

    done = accept(mac, "--image", IMAGE)

    wrong = [line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("WRONG")]
    assert wrong == ["WRONG vm boots", "WRONG vm stops"]
    assert "ok    vm is deleted: twice" in done.stdout
    assert done.returncode == 1
    assert mac.vms() == []
