"""A guest's exit code and log, also from a hostile guest."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bramley.agent.guest import report
from bramley.agent.guest.folders import UserData
from bramley.agent.guest.report import Report
from bramley.agent.runs import RunExit

VM = "ns-build-0123456789ab"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def folders(tmp_path: Path) -> UserData:
    data = UserData(tmp_path)
    data.prepare(VM)
    return data


def status(folders: UserData) -> Path:
    return folders.shares(VM).status


def report_text(folders: UserData, text: str) -> Report:
    (status(folders) / "runner-rc").write_text(text)
    return report.read(folders, VM)


@pytest.mark.parametrize(
    ("text", "code"), [("0", 0), ("3\n", 3), ("143", 143), ("255", 255), (" 007 \n", 7)]
)
def test_exit_code_is_read(folders: UserData, text: str, code: int) -> None:
    assert report_text(folders, text).code == code


@pytest.mark.parametrize(
    "text",
    ["", "\n", "-1", "256", "2147483648", "4294967296", "3.0", "three", "0x3", "٣", "0" * 65],
)
def test_invalid_exit_code_is_not_reported(folders: UserData, text: str) -> None:
    assert report_text(folders, text) == Report()


def test_huge_report_is_not_read_completely(folders: UserData) -> None:
    path = status(folders) / "runner-rc"
    path.touch()
    os.truncate(path, 2**40)

    assert report.read(folders, VM) == Report()


def test_report_is_dated_by_its_file(folders: UserData) -> None:
    (status(folders) / "runner-rc").write_text("0")
    os.utime(status(folders) / "runner-rc", (0, NOON.timestamp()))

    assert report.read(folders, VM) == Report(0, NOON)


def test_without_a_report_there_is_none(folders: UserData) -> None:
    assert report.read(folders, VM) == Report()
    assert report.read(folders, "another") == Report()


@pytest.mark.parametrize(
    ("ended", "at", "finished"),
    [
        (RunExit(0, NOON - MINUTE), NOON - 2 * MINUTE, NOON - MINUTE),
        (RunExit(None, None), NOON - 2 * MINUTE, NOON - 2 * MINUTE),
        (None, NOON - 2 * MINUTE, NOON - 2 * MINUTE),
        (None, None, NOON),
        (None, NOON + MINUTE, NOON),
        (None, NOON - timedelta(days=1), NOON),
    ],
)
def test_finish_time_comes_from_the_most_reliable_source(
    ended: RunExit | None, at: datetime | None, finished: datetime
) -> None:
    started = NOON - timedelta(hours=1)

    found = report.finished_at(ended, Report(0, at), started=started, now=NOON)

    assert found == finished


def write_log(folders: UserData, content: bytes) -> str:
    (status(folders) / "runner.log").write_bytes(content)
    return report.log_tail(folders, VM)


def test_short_log_is_returned_completely(folders: UserData) -> None:
    assert write_log(folders, b"one\ntwo\nthree") == "one\ntwo\nthree"


def test_missing_log_is_empty(folders: UserData) -> None:
    assert report.log_tail(folders, VM) == ""


def test_end_of_a_long_log_is_returned(folders: UserData) -> None:
    lines = [f"line {number}\n" for number in range(1000)]

    assert write_log(folders, "".join(lines).encode()) == "".join(lines[-200:])


def test_first_line_that_is_cut_is_left_out(folders: UserData) -> None:
    long = b"x" * 1000 + b"\n"

    tail = write_log(folders, long * 100)

    assert tail == (long * (report.MAX_TAIL_BYTES // len(long))).decode()
    assert len(tail) <= report.MAX_TAIL_BYTES


def test_first_line_that_just_fits_is_kept(folders: UserData) -> None:
    line = b"x" * 1023 + b"\n"

    assert len(write_log(folders, line * 100)) == report.MAX_TAIL_BYTES


def test_end_of_an_endless_line_is_returned(folders: UserData) -> None:
    assert write_log(folders, b"x" * 200_000) == "x" * report.MAX_TAIL_BYTES


def test_bytes_that_are_not_utf8_are_replaced(folders: UserData) -> None:
    assert write_log(folders, b"a\xff\n") == "a\N{REPLACEMENT CHARACTER}\n"


def test_huge_log_is_read_from_its_end(folders: UserData) -> None:
    path = status(folders) / "runner.log"
    path.write_bytes(b"begin\n")
    os.truncate(path, 2**40)
    with path.open("ab") as file:
        file.write(b"\nend\n")

    assert report.log_tail(folders, VM) == "end\n"


def test_links_pipes_and_folders_are_no_logs(folders: UserData, tmp_path: Path) -> None:
    path = status(folders) / "runner.log"
    secret = tmp_path / "secret"
    secret.write_text("of the host")

    path.symlink_to(secret)
    assert report.log_tail(folders, VM) == ""
    path.unlink()
    os.mkfifo(path)
    assert report.log_tail(folders, VM) == ""
    path.unlink()
    path.mkdir()
    assert report.log_tail(folders, VM) == ""


def test_log_is_logged_as_one_record(folders: UserData, caplog: pytest.LogCaptureFixture) -> None:
    write_log(folders, b"one\ntwo\n")
    caplog.set_level("INFO")

    report.log_output(folders, VM)

    assert [record.message for record in caplog.records] == ["runner log"]
