"""Scripts that live on Macs, run for real: what they do to logs that somebody holds open, and where figures are served."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bramley.host import scripts

SHELLS = [name for name in ("dash", "bash") if shutil.which(name)] or ["sh"]


def run(shell: str, script: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a script, with programs of a folder in front of the machine's own."""
    return subprocess.run(
        [shell, str(script), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}".lstrip(":")},
    )


def placed(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("shell", SHELLS)
def test_a_log_that_is_held_open_goes_on_from_its_beginning(tmp_path: Path, shell: str) -> None:
    """launchd opens logs for appending and never again: whoever renames one is written behind its back."""
    script = placed(tmp_path, "rotate", scripts.text("rotate_logs"))
    log, small = tmp_path / "agent.log", tmp_path / "small.log"
    small.write_text("little\n")
    held = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(held, b"old line\n" * 20)
        said = run(shell, script, "100", str(log), str(small), str(tmp_path / "none.log"))
        os.write(held, b"new line\n")
    finally:
        os.close(held)

    assert (said.returncode, said.stderr) == (0, "")
    assert log.read_text() == "new line\n"
    assert (tmp_path / "agent.log.1").read_text() == "old line\n" * 20
    assert small.read_text() == "little\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("agent.log", "agent.log.1", "rotate", "small.log"),
    ]


@pytest.mark.parametrize("shell", SHELLS)
def test_logs_are_emptied_where_the_disk_has_no_room_for_their_lines(
    tmp_path: Path, shell: str
) -> None:
    """A cp that fails as one does on a full disk: a part of the copy is there."""
    script = placed(tmp_path, "rotate", scripts.text("rotate_logs"))
    placed(tmp_path, "cp", b'#!/bin/sh\nprintf part >"$3"\necho "No space left" >&2\nexit 1\n')
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    for log in logs:
        log.write_text("line\n" * 100)
    (tmp_path / "first.log.1").write_text("kept\n")

    said = run(shell, script, "100", *map(str, logs), path=str(tmp_path))

    assert (said.returncode, [log.read_text() for log in logs]) == (0, ["", ""])
    assert (tmp_path / "first.log.1").read_text() == "kept\n"
    assert not list(tmp_path.glob("*.new"))


def test_a_link_leads_nowhere(tmp_path: Path) -> None:
    script = placed(tmp_path, "rotate", scripts.text("rotate_logs"))
    theirs = tmp_path / "theirs"
    theirs.write_text("precious\n" * 100)
    (tmp_path / "agent.log").symlink_to(theirs)

    run("sh", script, "10", str(tmp_path / "agent.log"))

    assert theirs.read_text() == "precious\n" * 100


def wrapper(folder: Path, tailscale: str) -> Path:
    """Return the wrapper with programs that tell what they are started with, and a sleep that takes no time."""
    placed(folder, "tailscale", f"#!/bin/sh\n{tailscale}\n".encode())
    placed(folder, "node_exporter", b'#!/bin/sh\nprintf "%s\\n" "$@"\n')
    text = scripts.text(
        "node_exporter_wrapper",
        tailscale=str(folder / "tailscale"),
        node_exporter=str(folder / "node_exporter"),
        port=9100,
    )
    return placed(folder, "wrapper", text.replace(b"sleep 2", b":"))


@pytest.mark.parametrize("shell", SHELLS)
def test_figures_are_served_on_the_tailnet_alone(tmp_path: Path, shell: str) -> None:
    said = run(shell, wrapper(tmp_path, 'echo 100.101.102.103; test "$*" = "ip -4"'))

    assert said.stdout.splitlines()[:2] == [
        "--web.listen-address=100.101.102.103:9100",
        "--collector.disable-defaults",
    ]


@pytest.mark.parametrize("tailscale", ["exit 1", "echo 192.168.1.7", "echo", "echo 0.0.0.0"])
def test_without_an_address_there_nothing_is_served(tmp_path: Path, tailscale: str) -> None:
    said = run("sh", wrapper(tmp_path, tailscale))

    assert said.returncode == 1
    assert said.stdout == ""
    assert "no address" in said.stderr


def test_a_name_that_is_not_filled_in_is_an_error() -> None:
    with pytest.raises(KeyError):
        scripts.text("node_exporter_wrapper", tailscale="x")
