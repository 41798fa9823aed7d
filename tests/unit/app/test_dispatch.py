"""The webhook secrets of a running dispatch server: a rotation is noticed, and an invalid file changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bramley.app.dispatch import SecretFile, webhook_secrets

OLD, NEW = "canary-old-0123456789", "canary-new-0123456789"


def opened(path: Path) -> SecretFile:
    path.write_text(f"{OLD}\n")
    return SecretFile(path, webhook_secrets(path))


def in_force(file: SecretFile) -> list[str]:
    return [each.reveal() for each in file.current()]


def test_two_secrets_are_in_force_during_a_rotation(tmp_path: Path) -> None:
    file = opened(tmp_path / "secret")
    assert in_force(file) == [OLD]

    file.path.write_text(f"{OLD}\r\n{NEW}")
    assert in_force(file) == [OLD, NEW]


@pytest.mark.parametrize("content", ["", "\n", "short", f"{OLD}\n{NEW}\n{NEW}2\n"])
def test_invalid_file_is_reported_and_keeps_the_last_secrets(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = opened(tmp_path / "secret")

    # Before the first webhook.
    file.path.write_text(content)
    assert [in_force(file) for _ in range(2)] == [[OLD], [OLD]]
    assert [record.getMessage() for record in caplog.records] == [
        "Webhook secret file is invalid; keeping its last content"
    ]
    assert "canary" not in str(caplog.records[0].__dict__)


def test_deleted_file_keeps_the_last_secrets(tmp_path: Path) -> None:
    file = opened(tmp_path / "secret")

    file.path.unlink()
    assert in_force(file) == [OLD]


def test_file_that_is_emptied_and_written_at_the_same_time_is_read_again(tmp_path: Path) -> None:
    file = opened(tmp_path / "secret")
    for content in ("", f"{NEW}\n"):
        file.path.write_text(content)
        os.utime(file.path, ns=(0, 0))
        found = in_force(file)

    assert found == [NEW]
