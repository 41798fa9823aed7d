"""On a full disk reads work and writes fail atomically; when space is free again, writes succeed without a restart."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.process.durability.mount_namespace import run_in_namespace


@pytest.fixture(params=["tmpfs", "limit"], scope="module")
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    how = str(request.param)
    program = [sys.executable, "-m", "tests.process.durability.full_disk"]
    argv = [*program, how, str(tmp_path_factory.mktemp("full"))]
    if how == "tmpfs":
        return json.loads(run_in_namespace(argv))
    return json.loads(subprocess.run(argv, capture_output=True, timeout=180, check=True).stdout)


def test_a_full_disk_fails_writes_and_no_reads(report: dict[str, Any]) -> None:
    assert report["failed"] >= 40
    assert report["reads_while_full"]


def test_writes_succeed_again_without_a_restart(report: dict[str, Any]) -> None:
    assert report["failed_after_space_was_back"] == 0


def test_watchers_observe_exactly_the_acknowledged_writes(report: dict[str, Any]) -> None:
    assert report["seen_by_watcher"] == sorted(report["acknowledged"])
    assert len(set(report["acknowledged"])) == len(report["acknowledged"])


def test_acknowledged_writes_survive_a_restart(report: dict[str, Any]) -> None:
    assert report["kept"]


def test_a_start_on_a_full_disk_is_refused_clearly_and_damages_nothing(
    report: dict[str, Any],
) -> None:
    assert report["refusals"]
    assert all("cannot be " in refusal for refusal in report["refusals"])
    assert report["kept_after_start_on_full_disk"]
