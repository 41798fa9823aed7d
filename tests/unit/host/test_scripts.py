"""Scripts that are installed on Macs, run with real shells: rotation of open logs, and the listen address of node_exporter."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bramley.host import scripts
from tests.programs import run_program

SHELLS = [name for name in ("dash", "bash") if shutil.which(name)] or ["sh"]


def run(shell: str, script: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a script, with the programs of a folder first in PATH."""
    return run_program(
        [shell, str(script), *words],
        timeout=60,
        env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}".lstrip(":")},
    )


def write_script(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("shell", SHELLS)
def test_open_log_continues_from_its_beginning(tmp_path: Path, shell: str) -> None:
    """launchd opens a log once, for appending: after a rename it would keep writing to the renamed file."""
    script = write_script(tmp_path, "rotate", scripts.text("rotate_logs"))
    log, small = tmp_path / "agent.log", tmp_path / "small.log"
    small.write_text("little\n")
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, b"old line\n" * 20)
        result = run(shell, script, "100", str(log), str(small), str(tmp_path / "none.log"))
        os.write(descriptor, b"new line\n")
    finally:
        os.close(descriptor)

    assert (result.returncode, result.stderr) == (0, "")
    assert log.read_text() == "new line\n"
    assert (tmp_path / "agent.log.1").read_text() == "old line\n" * 20
    assert small.read_text() == "little\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("agent.log", "agent.log.1", "rotate", "small.log")
    ]


@pytest.mark.parametrize("shell", SHELLS)
def test_logs_are_truncated_if_the_disk_is_full(tmp_path: Path, shell: str) -> None:
    """The cp fails as on a full disk and leaves a partial copy."""
    script = write_script(tmp_path, "rotate", scripts.text("rotate_logs"))
    write_script(
        tmp_path, "cp", b'#!/bin/sh\nprintf part >"$3"\necho "No space left" >&2\nexit 1\n'
    )
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    for log in logs:
        log.write_text("line\n" * 100)
    (tmp_path / "first.log.1").write_text("kept\n")

    result = run(shell, script, "100", *map(str, logs), path=str(tmp_path))

    assert (result.returncode, [log.read_text() for log in logs]) == (0, ["", ""])
    assert (tmp_path / "first.log.1").read_text() == "kept\n"
    assert not list(tmp_path.glob("*.new"))


def test_link_is_not_followed(tmp_path: Path) -> None:
    script = write_script(tmp_path, "rotate", scripts.text("rotate_logs"))
    foreign = tmp_path / "foreign"
    foreign.write_text("precious\n" * 100)
    (tmp_path / "agent.log").symlink_to(foreign)

    run("sh", script, "10", str(tmp_path / "agent.log"))

    assert foreign.read_text() == "precious\n" * 100


def wrapper(folder: Path, tailscale: str) -> Path:
    """Return the wrapper with a node_exporter that prints its arguments, and without its sleep."""
    write_script(folder, "tailscale", f"#!/bin/sh\n{tailscale}\n".encode())
    write_script(folder, "node_exporter", b'#!/bin/sh\nprintf "%s\\n" "$@"\n')
    text = scripts.text(
        "node_exporter_wrapper",
        tailscale=str(folder / "tailscale"),
        node_exporter=str(folder / "node_exporter"),
        port=9100,
    )
    return write_script(folder, "wrapper", text.replace(b"sleep 2", b":"))


@pytest.mark.parametrize("shell", SHELLS)
def test_metrics_are_served_on_the_tailnet_only(tmp_path: Path, shell: str) -> None:
    result = run(shell, wrapper(tmp_path, 'echo 100.101.102.103; test "$*" = "ip -4"'))

    assert result.stdout.splitlines()[:2] == [
        "--web.listen-address=100.101.102.103:9100",
        "--collector.disable-defaults",
    ]


@pytest.mark.parametrize("tailscale", ["exit 1", "echo 192.168.1.7", "echo", "echo 0.0.0.0"])
def test_nothing_is_served_without_a_tailnet_address(tmp_path: Path, tailscale: str) -> None:
    result = run("sh", wrapper(tmp_path, tailscale))

    assert result.returncode == 1
    assert result.stdout == ""
    assert "no tailnet address" in result.stderr


def test_missing_template_value_is_an_error() -> None:
    with pytest.raises(KeyError):
        scripts.text("node_exporter_wrapper", tailscale="x")
