"""A program is not left alone: it ends when its time is over and when whoever asked for it is gone, with all that it started."""

from __future__ import annotations

import contextlib
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.host.commands import Run
from bramley.host.rendering import doing
from tests.unit.host.rendering.shells import TOKEN, WITHIN, Shell, available

# Ignores what asks it politely, and so does its child.
STUBBORN = 'trap \'\' TERM; sh -c \'echo $$ >"$0.child"; while :; do sleep 1; done\' "$0" & echo $$ >"$0"; while :; do sleep 1; done'


@pytest.fixture(params=available())
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    return Shell.make(tmp_path, request.param)


def is_alive(pid: int) -> bool:
    told = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return bool(told.stdout.strip()) and not told.stdout.strip().startswith("Z")


def pid_of(file: Path) -> int:
    until = time.monotonic() + WITHIN
    while time.monotonic() < until:
        with contextlib.suppress(OSError, ValueError):
            return int(file.read_text())
        time.sleep(0.02)
    raise AssertionError(f"{file} has no pid")


def group_of(leader: int) -> list[int]:
    told = subprocess.run(
        ["ps", "-A", "-o", "pid=,pgid="], capture_output=True, text=True, check=True
    ).stdout
    pairs = [[int(number) for number in line.split()] for line in told.splitlines()]
    return [pid for pid, group in pairs if group == leader]


def wait_for_end_of(*pids: int) -> None:
    until = time.monotonic() + WITHIN
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < until, pids
        time.sleep(0.1)


def test_a_program_and_its_children_end_when_nobody_waits_for_them(shell: Shell) -> None:
    file = shell.home / "pid"
    run = Run(argv=("sh", "-c", STUBBORN, str(file)), purpose="p")
    with shell.running(doing.render(run, token=TOKEN).line) as process:
        pids = pid_of(file), pid_of(Path(f"{file}.child"))
        for file_of_it in (process.stdout, process.stderr, process.stdin):
            assert file_of_it is not None
            file_of_it.close()

        wait_for_end_of(*pids)
        # Nor does anybody who watched over them stay.
        wait_for_end_of(process.pid, *group_of(process.pid))


def test_a_program_ends_by_itself_when_its_time_is_over(shell: Shell) -> None:
    run = Run(
        argv=("sh", "-c", "echo $$ >&2; sleep 600"), purpose="p", within=timedelta(seconds=-4)
    )

    result = shell.do(run)

    assert result.code == 124
    # A busy machine may not come to the first line within a second.
    assert not any(is_alive(int(word)) for word in result.said.split()[:1] if word.isdigit())


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 77"), 77),
        (("sh", "-c", "kill -KILL $$"), 137),
        (("none-such",), 127),
    ],
)
def test_the_code_is_the_programs_own(shell: Shell, argv: tuple[str, ...], code: int) -> None:
    result = shell.do(Run(argv=argv, purpose="p", as_root=True))

    assert (result.code, result.has_begun) == (code, True)


def test_what_a_program_prints_is_said_on_one_output(shell: Shell) -> None:
    result = shell.do(Run(argv=("sh", "-c", "echo out; echo err >&2"), purpose="p"))

    assert (result.said, result.output) == (b"out\nerr\n", f"{TOKEN}\n".encode())


def test_a_program_without_input_does_not_hear_the_line(shell: Shell) -> None:
    result = shell.do(Run(argv=("cat",), purpose="p"), given=b"meant for nobody\n")

    assert (result.code, result.said) == (0, b"")


def test_nothing_begins_where_sudo_lets_nobody_in(shell: Shell) -> None:
    shell.install("sudo", "echo 'sudo: a password is required' >&2\nexit 1\n")

    result = shell.do(Run(argv=("true",), purpose="p", as_root=True, accepts=(1,)))

    assert (result.code, result.has_begun) == (1, False)


def test_a_program_whose_input_did_not_come_whole_is_not_started(shell: Shell) -> None:
    run = Run(argv=("touch", str(shell.home / "started")), purpose="p", stdin=b"all of this")

    result = shell.do(run, given=b"YWxs", is_cut=True)

    assert (result.code, result.said) == (125, b"the line was cut before everything had come\n")
    assert not (shell.home / "started").exists()
