from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tools.kube import processes


def eventually(ask: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not ask():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_started_process_runs_in_its_own_group_and_logs_to_a_file(tmp_path: Path) -> None:
    record = processes.start("greeter", ["sh", "-c", "echo hello; sleep 60"], folder=tmp_path)

    eventually(lambda: processes.tail(record.log) == "hello")
    assert os.getpgid(record.pid) == record.pid
    assert processes.is_running(record)
    processes.stop([record])
    assert not processes.is_running(record)


def test_stop_kills_a_process_that_ignores_sigterm_with_its_children(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 60 & echo $!; wait; wait; sleep 60"
    record = processes.start("deaf", ["sh", "-c", script], folder=tmp_path)
    eventually(lambda: processes.tail(record.log) != "")
    child = int(processes.tail(record.log))

    processes.stop([record], patience=0.1)

    assert not processes.is_running(record)
    eventually(lambda: processes.identity(child) is None)


def test_other_process_with_the_same_pid_is_not_stopped(tmp_path: Path) -> None:
    stranger = processes.start("stranger", ["sleep", "60"], folder=tmp_path)
    outdated = msgspec.structs.replace(stranger, started="long ago")

    processes.stop([outdated])

    assert not processes.is_running(outdated)
    assert processes.is_running(stranger)
    processes.stop([stranger])


def test_a_zombie_does_not_run(tmp_path: Path) -> None:
    record = processes.start("brief", ["true"], folder=tmp_path)

    eventually(lambda: processes.identity(record.pid) is None)

    assert not processes.is_running(record)


def test_ps_identifies_a_process_where_there_is_no_proc(tmp_path: Path) -> None:
    record = processes.start("sleeper", ["sleep", "60"], folder=tmp_path)

    first = processes.identity_by_ps(record.pid)

    assert first
    assert processes.identity_by_ps(record.pid) == first
    os.killpg(record.pid, signal.SIGKILL)
    eventually(lambda: processes.identity_by_ps(record.pid) is None)
    processes.stop([record])


def test_an_empty_log_is_reported_as_empty(tmp_path: Path) -> None:
    assert processes.tail(tmp_path / "none.log") == "(no log)"


def test_resident_memory_is_that_of_the_process() -> None:
    assert 5e6 < processes.resident_bytes(os.getpid()) < 5e9
