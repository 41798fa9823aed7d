"""Behaviour of real supervisors only; what real and simulated ones share is in the contract suite."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bramley.agent import platform, supervised_runs
from bramley.agent.runs import Run
from bramley.agent.supervised_runs import SupervisedRuns
from bramley.base import errors
from bramley.base.clock import SystemClock
from tests.programs import run_program

pytestmark = pytest.mark.real_time
VM = "ns-pod-0123456789ab"
SHELLS = [name for name in ("dash", "bash") if shutil.which(name)] or ["sh"]


def an_agent(folder: Path) -> SupervisedRuns:
    environment = {"PATH": os.environ["PATH"]}
    return SupervisedRuns(folder / "state", folder / "logs", SystemClock(), environment=environment)


def a_run(script: str) -> Run:
    return Run(VM, ["/bin/sh", "-c", script])


def noted(folder: Path, name: str) -> int:
    return int((folder / "state/runs" / VM / name).read_text().split()[0])


async def until_gone(pid: int) -> None:
    system = platform.current()
    async with asyncio.timeout(60):
        while system.start_time(pid) is not None:
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    for name in ("tart", "supervisor"):
        with contextlib.suppress(OSError, ValueError):
            os.kill(noted(tmp_path, name), signal.SIGKILL)


async def test_supervisor_has_a_session_of_its_own(tmp_path: Path) -> None:
    await an_agent(tmp_path).start(a_run("sleep 600"))

    supervisor, tart = noted(tmp_path, "supervisor"), noted(tmp_path, "tart")

    assert os.getsid(supervisor) == os.getsid(tart) == supervisor
    assert os.getsid(0) != supervisor


async def test_run_files_are_private(tmp_path: Path) -> None:
    runs = an_agent(tmp_path)
    await runs.start(a_run("echo hello"))
    await runs.wait(VM)

    folder = tmp_path / "state/runs" / VM
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}

    names = {path.name for path in folder.iterdir()}
    assert names == {"run", "output", "supervisor", "tart", "ended"}
    assert modes == {0o600}
    assert stat.S_IMODE((tmp_path / "logs" / f"{VM}.log").stat().st_mode) == 0o600


async def test_log_of_an_older_agent_becomes_private(tmp_path: Path) -> None:
    log = tmp_path / "logs" / f"{VM}.log"
    log.parent.mkdir()
    log.write_text("older\n")
    log.chmod(0o644)
    runs = an_agent(tmp_path)

    await runs.start(a_run("echo newer"))
    await runs.wait(VM)

    assert log.read_text() == "older\nnewer\n"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_stop_signal_reaches_tart_and_its_exit_code_is_recorded(tmp_path: Path) -> None:
    """Programs that a shell starts in the background ignore this signal; tart would then never stop cleanly."""
    runs = an_agent(tmp_path)
    await runs.start(a_run("trap 'exit 7' INT; echo ready; while :; do sleep 0.05; done"))
    async with asyncio.timeout(60):
        while not runs.output_tail(VM):
            await asyncio.sleep(0.005)

    os.kill(noted(tmp_path, "tart"), signal.SIGINT)

    assert (await asyncio.wait_for(runs.wait(VM), timeout=60)).code == 7


async def test_supervisor_ignores_sigterm_until_it_has_recorded_the_exit(tmp_path: Path) -> None:
    runs = an_agent(tmp_path)
    await runs.start(a_run("sleep 0.3; exit 5"))

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(noted(tmp_path, "supervisor"), number)

    assert (await asyncio.wait_for(runs.wait(VM), timeout=60)).code == 5


async def test_children_of_tart_end_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    runs = an_agent(tmp_path)
    await runs.start(a_run(f"sleep 600 & echo $! > {pid_file}; exit 0"))
    await runs.wait(VM)

    await until_gone(int(pid_file.read_text()))


async def test_kill_without_a_supervisor_ends_the_whole_process_group(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    runs = an_agent(tmp_path)
    await runs.start(a_run(f"sleep 600 & echo $! > {pid_file}; wait"))
    async with asyncio.timeout(60):
        while not pid_file.exists() or not pid_file.read_text():
            await asyncio.sleep(0.005)
    os.kill(noted(tmp_path, "supervisor"), signal.SIGKILL)
    await until_gone(noted(tmp_path, "supervisor"))
    assert runs.is_alive(VM)

    runs.kill(VM)

    assert (await asyncio.wait_for(runs.wait(VM), timeout=60)).code is None
    await until_gone(int(pid_file.read_text()))


@pytest.fixture
def later() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


async def test_later_process_with_the_same_pid_is_not_ours(
    later: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    runs = an_agent(tmp_path)
    await runs.start(a_run("exit 0"))
    await runs.wait(VM)
    folder = tmp_path / "state/runs" / VM
    (folder / "ended").unlink()
    for name in ("supervisor", "tart"):
        (folder / name).write_text(f"{later.pid} 1\n")

    assert not runs.is_alive(VM)
    runs.kill(VM)
    await asyncio.sleep(0.05)
    assert later.poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a start is always noted")
async def test_process_without_a_recorded_start_counts_as_ours(tmp_path: Path) -> None:
    runs = an_agent(tmp_path)
    await runs.start(a_run("sleep 600"))

    (tmp_path / "state/runs" / VM / "tart").write_text(f"{noted(tmp_path, 'tart')} \n")

    assert runs._living_process(VM, "tart") is not None


async def test_run_without_a_pid_yet_may_be_alive(tmp_path: Path) -> None:
    """The agent may have been killed between the start of a supervisor and its first record."""
    runs = an_agent(tmp_path)
    runs._claim(VM)

    assert runs.exists(VM)
    assert runs.is_alive(VM)
    assert runs.find_exit(VM) is None

    long_ago = SystemClock().now().timestamp() - 60
    os.utime(tmp_path / "state/runs" / VM / "run", (long_ago, long_ago))
    assert not runs.is_alive(VM)
    ended = runs.find_exit(VM)
    assert ended is not None
    assert ended.code is None


async def test_missing_program_ends_with_exit_code_127(tmp_path: Path) -> None:
    runs = an_agent(tmp_path)
    await runs.start(Run(VM, ["/no/such/tart", "run", VM]))

    assert (await asyncio.wait_for(runs.wait(VM), timeout=60)).code == 127
    assert "/no/such/tart" in runs.output_tail(VM)


async def test_supervisor_that_does_not_start_in_time_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = tmp_path / "stuck.sh"
    stuck.write_text('echo $$ > "$1/pid"; sleep 600\n')
    monkeypatch.setattr(supervised_runs, "SCRIPT", stuck)
    monkeypatch.setattr(supervised_runs, "START_LIMIT", supervised_runs.START_LIMIT / 20)
    runs = an_agent(tmp_path)

    with pytest.raises(errors.TimedOut):
        await runs.start(a_run("true"))

    await until_gone(noted(tmp_path, "pid"))


async def test_run_whose_log_cannot_be_opened_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")
    runs = an_agent(tmp_path)

    with pytest.raises(errors.Unavailable):
        await runs.start(a_run("true"))

    # Otherwise it would count as a run that was lost, and the Pod would fail for a full disk.
    assert not runs.exists(VM)
    assert runs.find_exit(VM) is None


async def test_supervisors_leave_no_zombie_behind(tmp_path: Path) -> None:
    runs = an_agent(tmp_path)
    await runs.start(a_run("exit 0"))
    supervisor = noted(tmp_path, "supervisor")
    await runs.wait(VM)
    async with asyncio.timeout(60):
        while runs.is_alive(VM):
            await asyncio.sleep(0.005)
    runs.forget(VM)

    with pytest.raises(ProcessLookupError):
        os.kill(supervisor, 0)


async def test_partly_removed_runs_are_removed_by_the_next_agent(tmp_path: Path) -> None:
    left = tmp_path / "state/runs" / f".forgotten-{VM}"
    left.mkdir(parents=True)
    (left / "ended").write_text("0 1\n")

    an_agent(tmp_path)

    assert not left.exists()


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".x"])
async def test_vm_name_cannot_escape_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a valid VM name"):
        await an_agent(tmp_path).start(Run(name, ["true"]))


@pytest.mark.parametrize("shell", SHELLS)
def test_script_works_in_every_shell(shell: str, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    words = ["sh", "-c", 'printf "%s|" "$@"; exit 9', "sh", "a b", "", "*", "c'd"]

    done = run_program(
        [shell, str(supervised_runs.SCRIPT), str(folder), *words],
        start_new_session=True,
        timeout=60,
    )

    assert done.stdout == "a b||*|c'd|"
    assert done.stderr == ""
    assert (folder / "ended").read_text().split()[0] == "9"
    pid, began = (folder / "tart").read_text().split(maxsplit=1)
    assert int(pid) > 1
    assert began.strip()
    assert [path.name for path in folder.glob("*.tmp")] == []


def test_start_time_of_the_script_is_that_of_the_agent(tmp_path: Path) -> None:
    script = f'{supervised_runs.SCRIPT.read_text().split("trap")[0]}\nstart_time "$2"\nprintf %s "$start"'
    shown = run_program(
        ["/bin/sh", "-c", script, "sh", str(tmp_path), "x", str(os.getpid())],
        check=True,
        timeout=60,
    )

    assert shown.stdout == platform.current().start_time(os.getpid())
