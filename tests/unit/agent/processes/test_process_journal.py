from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bramley.agent import platform
from bramley.agent.platform import fd_events
from bramley.agent.processes import ProcessJournal, SystemPrograms

pytestmark = pytest.mark.real_time
ENVIRONMENT = {"PATH": os.environ["PATH"]}
AGENT = """
import asyncio, os, sys
from pathlib import Path
from bramley.agent import platform
from bramley.agent.processes import ProcessJournal
from bramley.agent.processes import SystemPrograms

journal = ProcessJournal(Path(sys.argv[1]), platform.current())
programs = SystemPrograms(os.environ, journal=journal)
asyncio.run(programs.run(["/bin/sh", "-c", "sleep 600 & wait"]))
"""


def journal_in(folder: Path) -> ProcessJournal:
    return ProcessJournal(folder, platform.current())


def notes(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir()] if folder.exists() else []


async def noted(folder: Path) -> int:
    async with asyncio.timeout(60):
        while not notes(folder):
            await asyncio.sleep(0.01)
    return notes(folder)[0]


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Kill an agent while it runs a program."""
    with subprocess.Popen([sys.executable, "-c", AGENT, str(tmp_path / "programs")]) as agent:
        yield agent
        agent.kill()


@pytest.fixture
def later() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


async def test_programs_of_a_killed_agent_are_killed_by_the_next(
    killed: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "programs"
    left = await noted(folder)
    killed.send_signal(signal.SIGKILL)
    await fd_events.wait_for_exit(killed.pid)
    assert platform.current().start_time(left) is not None

    await journal_in(folder).kill_leftovers()

    async with asyncio.timeout(60):
        await fd_events.wait_for_exit(left)
    assert notes(folder) == []


async def test_program_that_has_ended_leaves_no_entry(tmp_path: Path) -> None:
    programs = SystemPrograms(ENVIRONMENT, journal=journal_in(tmp_path))

    await programs.run(["true"])
    async with asyncio.TaskGroup() as group:
        running = group.create_task(programs.run(["sleep", "600"]))
        await noted(tmp_path)
        running.cancel()

    assert notes(tmp_path) == []


async def test_own_programs_are_not_killed(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    programs = SystemPrograms(ENVIRONMENT, journal=journal)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(programs.run(["/bin/sh", "-c", "sleep 0.3; exit 4"]))
        await noted(tmp_path)
        await journal.kill_leftovers()

    assert running.result().code == 4


@pytest.mark.parametrize("note", ["{boot} 1", "another-boot {began}", "", "{boot}"])
async def test_later_process_with_the_same_pid_is_not_killed(
    note: str, later: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    system = platform.current()
    text = note.format(boot=system.boot_id(), began=system.start_time(later.pid))
    (tmp_path / str(later.pid)).write_text(text)

    await journal_in(tmp_path).kill_leftovers()
    await asyncio.sleep(0.05)

    assert later.poll() is None
    assert notes(tmp_path) == []


async def test_empty_journal_is_no_error(tmp_path: Path) -> None:
    await journal_in(tmp_path / "none").kill_leftovers()
