"""Snapshots compare the files and lasting state of two simulated Macs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.sim.macos.harness import LOGINWINDOW, MacHarness


def test_two_bare_macs_are_the_same(tmp_path: Path) -> None:
    one, two = MacHarness(tmp_path / "1"), MacHarness(tmp_path / "2")
    two.clock.advance(100)

    assert one.mac.snapshot() == two.mac.snapshot()


def test_restarts_and_wrong_passwords_are_not_in_a_snapshot(tmp_path: Path) -> None:
    harness = MacHarness(tmp_path)
    before = harness.mac.snapshot()

    harness.as_root("launchctl", "kickstart", "-k", LOGINWINDOW)
    harness.run("dscl", ".", "-authonly", "m1", "wrong")
    harness.as_root("reboot")
    harness.clock.advance(100)

    assert harness.mac.snapshot() == before


def test_contents_owners_modes_and_targets_are_in_a_snapshot(tmp_path: Path) -> None:
    harness = MacHarness(tmp_path)
    files = harness.mac.files
    files.write("/opt/file", b"1")
    files.link("/opt/link", "file")
    seen = [harness.mac.snapshot()["files"]]

    files.write("/opt/file", b"2")
    seen.append(harness.mac.snapshot()["files"])
    files.chown("/opt/file", "m1:staff")
    seen.append(harness.mac.snapshot()["files"])
    files.at("/opt/file").chmod(0o600)
    seen.append(harness.mac.snapshot()["files"])
    files.link("/opt/link", "elsewhere")
    seen.append(harness.mac.snapshot()["files"])

    assert all(before != after for before, after in pairwise(seen))
    assert seen[0]["/opt/link"] == ["link", "root:wheel", "file"]


def test_console_user_and_loaded_jobs_are_in_a_snapshot(tmp_path: Path) -> None:
    harness = MacHarness(tmp_path)
    before = harness.mac.snapshot()["state"]

    harness.log_in()
    harness.as_root("launchctl", "bootstrap", "system", harness.daemon("dev.test.work"))
    after = harness.mac.snapshot()["state"]

    assert (before["console"], after["console"]) == ({"user": None}, {"user": "m1"})
    assert (
        "system/dev.test.work" in after["launchd"]["jobs"].keys() - before["launchd"]["jobs"].keys()
    )
    assert "owners" not in after


@pytest.mark.parametrize("can_chown", [True, False])
def test_copy_is_equal_and_independent(tmp_path: Path, *, can_chown: bool) -> None:
    harness = MacHarness(tmp_path, can_chown=can_chown)
    harness.log_in()
    harness.mac.files.write("/opt/file", b"", owner="m1:staff", mode=0o600)

    twin = harness.mac.copy(tmp_path / "twin")

    assert twin.snapshot() == harness.mac.snapshot()
    assert twin.files.owner("/Users/m1") == twin.files.owner("/opt/file") == "m1:staff"
    twin.reboot()
    assert harness.mac.is_up
