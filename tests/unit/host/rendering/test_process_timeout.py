"""A program ends after its timeout and when the connection is lost, together with all its children."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.host.commands import Run
from bramley.host.rendering import command_scripts
from tests.programs import run_program
from tests.unit.host.rendering.shells import TOKEN, WITHIN, Shell, available

# Ignores SIGTERM, and so does its child.
STUBBORN = 'trap \'\' TERM; sh -c \'echo $$ >"$0.child"; while :; do sleep 1; done\' "$0" & echo $$ >"$0"; while :; do sleep 1; done'


@pytest.fixture(params=available())
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    return Shell.make(tmp_path, request.param)


def is_alive(pid: int) -> bool:
    listing = run_program(["ps", "-o", "stat=", "-p", str(pid)])
    return bool(listing.stdout.strip()) and not listing.stdout.strip().startswith("Z")


def pid_of(file: Path) -> int:
    end = time.monotonic() + WITHIN
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError):
            return int(file.read_text())
        time.sleep(0.02)
    raise AssertionError(f"{file} has no pid")


def group_of(leader: int) -> list[int]:
    listing = run_program(["ps", "-A", "-o", "pid=,pgid="], check=True).stdout
    pairs = [[int(number) for number in line.split()] for line in listing.splitlines()]
    return [pid for pid, group in pairs if group == leader]


def wait_for_end_of(*pids: int) -> None:
    end = time.monotonic() + WITHIN
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < end, pids
        time.sleep(0.1)


def test_program_and_children_end_when_the_connection_is_lost(shell: Shell) -> None:
    file = shell.home / "pid"
    run = Run(argv=("sh", "-c", STUBBORN, str(file)), purpose="p")
    with shell.running(command_scripts.render(run, token=TOKEN).line) as process:
        pids = pid_of(file), pid_of(Path(f"{file}.child"))
        for stream in (process.stdout, process.stderr, process.stdin):
            assert stream is not None
            stream.close()

        wait_for_end_of(*pids)
        # Nor do the processes that watched them remain.
        wait_for_end_of(process.pid, *group_of(process.pid))


def test_program_ends_after_its_timeout(shell: Shell) -> None:
    run = Run(
        argv=("sh", "-c", "echo $$ >&2; sleep 600"), purpose="p", timeout=timedelta(seconds=-4)
    )

    result = shell.execute(run)

    assert result.code == 124
    # A busy machine may not reach the first line within a second.
    assert not any(is_alive(int(word)) for word in result.stderr.split()[:1] if word.isdigit())


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 77"), 77),
        (("sh", "-c", "kill -KILL $$"), 137),
        (("none-such",), 127),
    ],
)
def test_exit_code_is_that_of_the_program(shell: Shell, argv: tuple[str, ...], code: int) -> None:
    result = shell.execute(Run(argv=argv, purpose="p", as_root=True))

    assert (result.code, result.has_begun) == (code, True)


def test_output_of_the_program_is_on_stderr(shell: Shell) -> None:
    result = shell.execute(Run(argv=("sh", "-c", "echo out; echo err >&2"), purpose="p"))

    assert (result.stderr, result.output) == (b"out\nerr\n", f"{TOKEN}\n".encode())


def test_program_without_input_does_not_read_the_connection(shell: Shell) -> None:
    result = shell.execute(Run(argv=("cat",), purpose="p"), stdin=b"unread\n")

    assert (result.code, result.stderr) == (0, b"")


def test_refused_sudo_starts_nothing(shell: Shell) -> None:
    shell.install("sudo", "echo 'sudo: a password is required' >&2\nexit 1\n")

    result = shell.execute(Run(argv=("true",), purpose="p", as_root=True, accepted_codes=(1,)))

    assert (result.code, result.has_begun) == (1, False)


def test_program_with_incomplete_input_is_not_started(shell: Shell) -> None:
    run = Run(argv=("touch", str(shell.home / "started")), purpose="p", stdin=b"all of this")

    result = shell.execute(run, stdin=b"YWxs", is_closed=True)

    assert (result.code, result.stderr) == (
        125,
        b"the connection was lost before all input had arrived\n",
    )
    assert not (shell.home / "started").exists()
