from __future__ import annotations

import asyncio
import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent.vm_logs import Limits, VmLogs, redact
from bramley.base.clock import SystemClock

LIMITS = Limits(max_log_bytes=1000, max_total_bytes=2500, max_age=timedelta(days=7))


def some_logs(folder: Path) -> VmLogs:
    return VmLogs(folder, clock=SystemClock(), limits=LIMITS)


def a_log(folder: Path, vm: str, content: bytes, *, days_old: float = 0) -> Path:
    path = folder / f"{vm}.log"
    path.write_bytes(content)
    then = SystemClock().now().timestamp() - days_old * 86400
    os.utime(path, (then, then))
    return path


def test_oversized_log_is_rotated_with_its_later_half(tmp_path: Path) -> None:
    path = a_log(tmp_path, "vm", b"a" * 1000 + b"b" * 500)

    some_logs(tmp_path).enforce_limits()

    older = tmp_path / "vm.log.1"
    assert path.read_bytes() == b""
    assert older.read_bytes() == b"b" * 500
    assert stat.S_IMODE(older.stat().st_mode) == 0o600


def test_writer_appends_at_the_new_end(tmp_path: Path) -> None:
    logs = some_logs(tmp_path)
    handle = logs.open("vm")
    os.write(handle, b"x" * 1500)

    logs.enforce_limits()
    os.write(handle, b"later\n")
    os.close(handle)

    assert (tmp_path / "vm.log").read_bytes() == b"later\n"


def test_log_within_its_limit_is_unchanged(tmp_path: Path) -> None:
    path = a_log(tmp_path, "vm", b"a" * 1000)

    some_logs(tmp_path).enforce_limits()

    assert path.read_bytes() == b"a" * 1000


def test_old_logs_are_deleted_then_the_oldest(tmp_path: Path) -> None:
    ancient = a_log(tmp_path, "ancient", b"a", days_old=8)
    older = a_log(tmp_path, "older", b"a" * 900, days_old=3)
    others = [a_log(tmp_path, f"vm-{day}", b"a" * 900, days_old=day) for day in (1, 2)]
    foreign = tmp_path / "notes.txt"
    foreign.write_text("x" * 5000)

    some_logs(tmp_path).enforce_limits()

    assert not ancient.exists()
    assert not older.exists()
    assert all(path.exists() for path in [*others, foreign])


def test_link_in_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/vm.log").symlink_to(target)

    with pytest.raises(OSError, match="symbolic links"):
        some_logs(tmp_path / "logs").open("vm")


def test_no_folder_is_no_error(tmp_path: Path) -> None:
    logs = some_logs(tmp_path / "none")

    logs.enforce_limits()

    assert logs.tail("vm") == ""


def test_tail_is_bounded_within_one_line(tmp_path: Path) -> None:
    a_log(tmp_path, "vm", b"x" * 1_000_000)

    assert len(some_logs(tmp_path).tail("vm")) == 64 * 1024


def test_line_of_which_only_the_end_was_read_is_not_shown(tmp_path: Path) -> None:
    line = b"vnc://:secret-words@127.0.0.1:5900\n"
    a_log(tmp_path, "vm", line + b"x" * (64 * 1024 - 29) + b"\nend\n")

    shown = some_logs(tmp_path).tail("vm")

    assert "words" not in shown
    assert shown.endswith("end")


async def test_logs_are_rotated_periodically(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        tending = group.create_task(some_logs(tmp_path).run())
        await asyncio.sleep(1)
        path = a_log(tmp_path, "vm", b"a" * 1500)
        await asyncio.sleep(60)
        tending.cancel()

    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("vnc://:a-b-c-d@127.0.0.1:5900", "vnc://:REDACTED@127.0.0.1:5900"),
        ("at vnc://user:pw@h:1 and vnc://:x@h:2", "at vnc://:REDACTED@h:1 and vnc://:REDACTED@h:2"),
        ("vnc://127.0.0.1:5900", "vnc://127.0.0.1:5900"),
        ("mail a@b", "mail a@b"),
    ],
)
def test_vnc_passwords_are_redacted(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize("earlier", [b"", b"first\n"])
def test_rotated_part_of_an_earlier_run_is_not_in_the_tail(tmp_path: Path, earlier: bytes) -> None:
    logs = some_logs(tmp_path)
    (tmp_path / "vm.log.1").write_bytes(b"guest has stopped the virtual machine\n")
    a_log(tmp_path, "vm", earlier)

    os.close(logs.open("vm"))

    assert logs.tail("vm", start=len(earlier)) == ""


@pytest.mark.parametrize("earlier", [b"", b"first\n"])
@pytest.mark.parametrize("later", [b"", b"y\n"])
def test_tail_has_the_last_lines_also_after_a_rotation(
    tmp_path: Path, earlier: bytes, later: bytes
) -> None:
    logs = some_logs(tmp_path)
    a_log(tmp_path, "vm", earlier)
    handle = logs.open("vm")
    os.write(handle, b"x\n" * 1000 + b"Stopping VM...\n")

    logs.enforce_limits()
    os.write(handle, later)
    os.close(handle)

    assert (tmp_path / "vm.log").read_bytes() == later
    tail = logs.tail("vm", 20, start=len(earlier)).splitlines()
    assert "Stopping VM..." in tail[-2:]
    assert "first" not in tail


def test_log_that_grew_again_after_a_rotation_has_the_tail_of_its_own_run(tmp_path: Path) -> None:
    logs = some_logs(tmp_path)
    a_log(tmp_path, "vm", b"first\n")
    handle = logs.open("vm")
    os.write(handle, b"x\n" * 1000)
    logs.enforce_limits()
    os.write(handle, b"second\nthird\n")
    os.close(handle)

    assert logs.tail("vm", 1, start=6) == "third"


def test_unreadable_log_has_no_tail(tmp_path: Path) -> None:
    (tmp_path / "vm.log").mkdir()

    assert some_logs(tmp_path).tail("vm") == ""


def test_log_of_a_run_is_kept_although_nothing_was_printed_for_a_week(tmp_path: Path) -> None:
    paths = [a_log(tmp_path, vm, b"x", days_old=8) for vm in ("vm", "other", "")]
    logs = VmLogs(tmp_path, clock=SystemClock(), limits=LIMITS, is_in_use=lambda name: name == "vm")

    logs.enforce_limits()

    assert [path.exists() for path in paths] == [True, False, False]
