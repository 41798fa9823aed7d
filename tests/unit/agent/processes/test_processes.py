"""Behaviour of real processes only; what real and simulated processes share is in the contract suite."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import stat
import time
from pathlib import Path

import pytest

from bramley.agent import platform, processes
from bramley.agent.platform import fd_events, linux
from bramley.agent.processes import MAX_STDERR_BYTES, MAX_STDOUT_BYTES, SystemPrograms
from bramley.agent.programs import ProgramMissing
from bramley.base import errors

pytestmark = pytest.mark.real_time
PATH = {"PATH": os.environ["PATH"]}


def a_shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def zombies() -> list[str]:
    """Return our zombie children, where the system has a /proc."""
    stats = [
        linux.parse_stat(text) for text in map(read, Path("/proc").glob("[0-9]*/stat")) if text
    ]
    ours = [each for each in stats if each.state == "Z" and each.parent == os.getpid()]
    return sorted(each.start_ticks for each in ours)


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def number(path: Path) -> int | None:
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text else None


async def number_in(path: Path) -> int:
    async with asyncio.timeout(60):
        while (found := number(path)) is None:
            await asyncio.sleep(0.005)
    return found


async def ends(pid: int) -> None:
    async with asyncio.timeout(60):
        await fd_events.wait_for_exit(pid)


async def test_grandchild_that_holds_the_pipes_is_waited_for_two_seconds_at_most() -> None:
    began = time.monotonic()

    finished = await SystemPrograms(PATH).run(a_shell("sleep 20 & echo $!; exit 3"))

    assert finished.code == 3
    assert time.monotonic() - began < 2 * processes.EXIT_GRACE_SECONDS
    os.kill(int(finished.stdout), signal.SIGKILL)


async def test_cancelling_kills_grandchildren_too_at_once(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {shlex.quote(str(pid_file))}; wait"

    async with asyncio.TaskGroup() as group:
        running = group.create_task(SystemPrograms(PATH).run(a_shell(script)))
        grandchild = await number_in(pid_file)
        began = time.monotonic()
        running.cancel()

    assert time.monotonic() - began < processes.EXIT_GRACE_SECONDS
    await ends(grandchild)


async def test_program_that_ignores_signals_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = (
        f"trap '' TERM INT HUP; echo $$ > {shlex.quote(str(pid_file))}; while :; do sleep 1; done"
    )

    async with asyncio.TaskGroup() as group:
        running = group.create_task(SystemPrograms(PATH).run(a_shell(script)))
        pid = await number_in(pid_file)
        running.cancel()

    assert platform.current().start_time(pid) is None


async def test_no_descriptor_and_no_zombie_is_left() -> None:
    programs = SystemPrograms(PATH)
    await programs.run(["true"])
    before = open_descriptors(), zombies()

    for _ in range(5):
        await programs.run(a_shell("cat >/dev/null; exit 1"), stdin=b"x")
        async with asyncio.TaskGroup() as group:
            running = group.create_task(programs.run(["sleep", "600"]))
            await asyncio.sleep(0.02)
            running.cancel()
    with pytest.raises(ProgramMissing):
        await programs.run(["/no/such/program"])

    assert (open_descriptors(), zombies()) == before


async def test_endless_output_is_bounded() -> None:
    script = f"head -c {MAX_STDOUT_BYTES + 1000} /dev/zero; (head -c {2 * MAX_STDERR_BYTES} /dev/zero; printf end) >&2; exit 0"

    finished = await SystemPrograms(PATH).run(a_shell(script))

    assert len(finished.stdout) == MAX_STDOUT_BYTES
    assert len(finished.stderr) == MAX_STDERR_BYTES
    assert finished.stderr.endswith("end")


async def test_large_input_passes_while_output_comes_back() -> None:
    content = b"0123456789abcdef" * 20_000

    finished = await SystemPrograms(PATH).run(["cat"], stdin=content)

    assert finished.stdout == content.decode()


async def test_program_need_not_read_its_input() -> None:
    finished = await SystemPrograms(PATH).run(a_shell("exec <&-; exit 4"), stdin=b"x" * 1_000_000)

    assert finished.code == 4


async def test_program_has_a_session_of_its_own() -> None:
    finished = await SystemPrograms(PATH).run(a_shell("echo $$; ps -o sid= -p $$ 2>/dev/null || :"))

    pid, *session = finished.stdout.split()
    assert session in ([], [pid])
    assert int(pid) != os.getsid(0)


async def test_programs_are_found_on_the_given_path(tmp_path: Path) -> None:
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)

    finished = await SystemPrograms({"PATH": str(tmp_path)}).run(["only-here"])

    assert finished.stdout == "found\n"


@pytest.mark.parametrize("mode", [0o644, 0o755])
async def test_file_that_is_not_executable_is_missing(tmp_path: Path, mode: int) -> None:
    program = tmp_path / "broken"
    program.write_text("no program at all")
    program.chmod(stat.S_IFREG | mode)

    with pytest.raises(ProgramMissing):
        await SystemPrograms(PATH).run([str(program)])


async def test_argument_with_a_null_byte_is_refused() -> None:
    for argv, environment in ((["echo", "a\0b"], {}), (["echo"], {"A": "a\0b"})):
        with pytest.raises(errors.Refused, match="with these arguments"):
            await SystemPrograms(PATH).run(argv, environment=environment)


async def test_script_with_a_missing_program_exits_with_127() -> None:
    finished = await SystemPrograms(PATH).run(a_shell("exec /no/such/tart get vm"))

    assert finished.code == 127


async def test_signal_is_a_negative_exit_code() -> None:
    finished = await SystemPrograms(PATH).run(a_shell("kill -TERM $$"))

    assert finished.code == -signal.SIGTERM


async def test_exit_is_noticed_without_a_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> int:
        raise OSError(24, "Too many open files")

    if hasattr(os, "pidfd_open"):
        monkeypatch.setattr(os, "pidfd_open", refuse)

    finished = await SystemPrograms(PATH).run(a_shell("sleep 0.1; exit 5"))

    assert finished.code == 5
