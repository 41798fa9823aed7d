"""`tart-kubelet lease` as an image bake uses it: real processes, locks and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bramley.agent.gc import leases
from bramley.agent.gc.leases import Lease
from tests.process.serving.processes import TIMEOUT_SECONDS, until


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

    bake.communicate("go\n", timeout=TIMEOUT_SECONDS)
    assert bake.returncode == 3
    assert held(tmp_path) == []


def test_lease_without_a_vm_covers_everything(tmp_path: Path) -> None:
    bake = lease(tmp_path, "--", "cat")
    until(lambda: [each.covers_everything for each in held(tmp_path)] == [True])

    bake.communicate("", timeout=TIMEOUT_SECONDS)
    assert bake.returncode == 0


def test_killed_command_frees_its_lease(tmp_path: Path) -> None:
    bake = lease(tmp_path, "--vm", "bake", "--", "cat")
    until(lambda: len(held(tmp_path)) == 1)

    bake.send_signal(signal.SIGKILL)
    bake.communicate(timeout=TIMEOUT_SECONDS)
    assert held(tmp_path) == []


def test_background_child_of_the_command_keeps_the_lease(tmp_path: Path) -> None:
    bake = lease(tmp_path, "--vm", "bake", "--", "sh", "-c", "sleep 600 >&- 2>&- & echo $!")
    stdout, _ = bake.communicate(timeout=TIMEOUT_SECONDS)
    assert len(held(tmp_path)) == 1

    os.kill(int(stdout), signal.SIGKILL)
    until(lambda: held(tmp_path) == [])


def test_lease_waits_until_a_deletion_is_over(tmp_path: Path) -> None:
    with leases.guard(tmp_path / "leases") as is_quiet:
        assert is_quiet
        bake = lease(tmp_path, "--", "echo", "begun")
        until(lambda: bool(list((tmp_path / "leases").glob("*.draft"))))
        assert bake.poll() is None

    stdout, _ = bake.communicate(timeout=TIMEOUT_SECONDS)
    assert stdout == "begun\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((), 2), (("--",), 2), (("--", "no-such-command-here"), 127), (("--", "/"), 126)],
)
def test_command_that_cannot_run_is_an_error(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    bake = lease(tmp_path, *arguments)
    _, stderr = bake.communicate(timeout=TIMEOUT_SECONDS)

    assert bake.returncode == code
    assert stderr.startswith("tart-kubelet lease: ")
    assert held(tmp_path) == []


def test_unusable_state_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "leases").write_text("")
    bake = lease(tmp_path, "--", "true")
    _, stderr = bake.communicate(timeout=TIMEOUT_SECONDS)

    assert bake.returncode == 1
    assert "cannot acquire a lease" in stderr
    assert stderr.endswith("; run this as the agent's user, or set its folder with --state-dir\n")
    assert "Errno" not in stderr


def test_state_folder_without_an_agent_is_warned_about_and_the_command_runs(tmp_path: Path) -> None:
    _, stderr = lease(tmp_path, "--", "true").communicate(timeout=TIMEOUT_SECONDS)
    assert stderr.startswith(f"tart-kubelet lease: no agent has used {tmp_path} yet; ")

    (tmp_path / "agent.lock").touch()
    _, stderr = lease(tmp_path, "--", "true").communicate(timeout=TIMEOUT_SECONDS)
    assert stderr == ""
