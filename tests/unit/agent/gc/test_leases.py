"""Leases are held by a lock, end with their holder, and exclude deletions."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from bramley.agent.gc import leases, plan
from bramley.agent.gc.leases import Lease
from bramley.agent.host import HostProcess


def test_lease_is_listed_while_it_is_held_and_removed_afterwards(tmp_path: Path) -> None:
    lease = Lease(vms=("bake",), command="packer", pid=7)
    handle = leases.acquire(tmp_path, lease)
    assert leases.held(tmp_path) == [lease]

    os.close(handle)
    assert leases.held(tmp_path) == []
    assert list(tmp_path.glob("*.lease")) == []


def test_lease_without_names_covers_everything() -> None:
    assert Lease().covers_everything
    assert not Lease(vms=("bake",)).covers_everything


def test_unreadable_lease_covers_everything(tmp_path: Path) -> None:
    file = tmp_path / "1-x.lease"
    file.write_text("{")
    handle = os.open(file, os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)

    assert leases.held(tmp_path) == [Lease()]
    os.close(handle)


def test_lease_waits_for_a_deletion(tmp_path: Path) -> None:
    with leases.guard(tmp_path) as is_quiet, leases.guard(tmp_path) as is_quiet_too:
        assert is_quiet
        assert not is_quiet_too


def test_folder_that_does_not_exist_has_no_leases(tmp_path: Path) -> None:
    assert leases.held(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (("/usr/local/bin/tart", "push", "vm", "ghcr.io/a/b:1"), True),
        (("/bin/bash", "/usr/local/bin/tart", "push", "--concurrency", "8", "vm"), True),
        (("/opt/mytart", "push", "vm"), True),
        (("git", "push", "tart"), False),
        (("tart", "run", "push"), False),
        (("tart",), False),
    ],
)
def test_running_push_is_recognised_by_its_command_line(
    line: tuple[str, ...], *, expected: bool
) -> None:
    evidence = plan.read_process_table([HostProcess(1, line)], tart="/opt/mytart")

    assert evidence.has_push is expected
    assert evidence.arguments == set(line)
