"""`tart-kubelet lease` as a bake uses it: real processes, real locks, real deaths."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bramley.agent.gc import leases
from bramley.agent.gc.leases import Lease
from tests.process.serving.processes import PATIENCE, until


def lease(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bramley.cli.tart_kubelet", "lease"]
    return subprocess.Popen(
        [*command, "--state-dir", str(tmp_path), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def held(tmp_path: Path) -> list[Lease]:
    return leases.held(tmp_path / "leases")


def test_lease_lasts_as_long_as_its_command(tmp_path: Path) -> None:
    bake = lease(tmp_path, "--vm", "bake-1", "--vm", "bake-2", "--", "sh", "-c", "read x; exit 3")
    until(lambda: held(tmp_path) == [Lease(vms=("bake-1", "bake-2"), command="sh", pid=bake.pid)])

    bake.communicate("go\n", timeout=PATIENCE)
    assert bake.returncode == 3
    assert held(tmp_path) == []


def test_lease_without_a_vm_covers_everything(tmp_path: Path) -> None:
    bake = lease(tmp_path, "--", "cat")
    until(lambda: [each.covers_everything for each in held(tmp_path)] == [True])

    bake.communicate("", timeout=PATIENCE)
    assert bake.returncode == 0


def test_killed_command_frees_its_lease(tmp_path: Path) -> None:
    bake = lease(tmp_path, "--vm", "bake", "--", "cat")
    until(lambda: len(held(tmp_path)) == 1)

    bake.send_signal(signal.SIGKILL)
    bake.communicate(timeout=PATIENCE)
    assert held(tmp_path) == []


def test_what_the_command_left_running_keeps_the_lease(tmp_path: Path) -> None:
    bake = lease(tmp_path, "--vm", "bake", "--", "sh", "-c", "sleep 600 >&- 2>&- & echo $!")
    told, _ = bake.communicate(timeout=PATIENCE)
    assert len(held(tmp_path)) == 1

    os.kill(int(told), signal.SIGKILL)
    until(lambda: held(tmp_path) == [])


def test_lease_waits_until_a_deletion_is_over(tmp_path: Path) -> None:
    with leases.guard(tmp_path / "leases") as is_quiet:
        assert is_quiet
        bake = lease(tmp_path, "--", "echo", "begun")
        until(lambda: bool(list((tmp_path / "leases").glob("*.taking"))))
        assert bake.poll() is None

    told, _ = bake.communicate(timeout=PATIENCE)
    assert told == "begun\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((), 2), (("--",), 2), (("--", "no-such-command-here"), 127), (("--", "/"), 126)],
)
def test_command_that_cannot_be_run_is_told(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    bake = lease(tmp_path, *arguments)
    _, told = bake.communicate(timeout=PATIENCE)

    assert bake.returncode == code
    assert told.startswith("tart-kubelet lease: ")
    assert held(tmp_path) == []


def test_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "leases").write_text("")
    bake = lease(tmp_path, "--", "true")
    _, told = bake.communicate(timeout=PATIENCE)

    assert bake.returncode == 1
    assert "no lease can be taken" in told
    assert told.endswith("; run this as the agent's user, or give its folder with --state-dir\n")
    assert "Errno" not in told


def test_folder_of_no_agent_is_told_and_the_command_is_run(tmp_path: Path) -> None:
    _, told = lease(tmp_path, "--", "true").communicate(timeout=PATIENCE)
    assert told.startswith(f"tart-kubelet lease: no agent has run with {tmp_path} yet; ")

    (tmp_path / "agent.lock").touch()
    _, told = lease(tmp_path, "--", "true").communicate(timeout=PATIENCE)
    assert told == ""
