"""What two simulated Macs are compared by: what they have become, and not how long it took."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.sim.macos.macs import LOGINWINDOW, Bench


def test_two_bare_macs_are_the_same(tmp_path: Path) -> None:
    one, two = Bench(tmp_path / "1"), Bench(tmp_path / "2")
    two.clock.turn(100)

    assert one.mac.snapshot() == two.mac.snapshot()


def test_restarts_kicks_and_wrong_passwords_leave_no_trace(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    before = bench.mac.snapshot()

    bench.as_root("launchctl", "kickstart", "-k", LOGINWINDOW)
    bench.run("dscl", ".", "-authonly", "m1", "wrong")
    bench.as_root("reboot")
    bench.clock.turn(100)

    assert bench.mac.snapshot() == before


def test_contents_owners_modes_and_targets_count(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    files = bench.mac.files
    files.write("/opt/file", b"1")
    files.link("/opt/link", "file")
    seen = [bench.mac.snapshot()["files"]]

    files.write("/opt/file", b"2")
    seen.append(bench.mac.snapshot()["files"])
    files.own("/opt/file", "m1:staff")
    seen.append(bench.mac.snapshot()["files"])
    files.at("/opt/file").chmod(0o600)
    seen.append(bench.mac.snapshot()["files"])
    files.link("/opt/link", "elsewhere")
    seen.append(bench.mac.snapshot()["files"])

    assert all(before != after for before, after in pairwise(seen))
    assert seen[0]["/opt/link"] == ["link", "root:wheel", "file"]


def test_who_is_logged_in_and_what_is_loaded_count(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    before = bench.mac.snapshot()["state"]

    bench.log_in()
    bench.as_root("launchctl", "bootstrap", "system", bench.daemon("dev.test.work"))
    after = bench.mac.snapshot()["state"]

    assert (before["console"], after["console"]) == ({"user": None}, {"user": "m1"})
    assert (
        "system/dev.test.work" in after["launchd"]["jobs"].keys() - before["launchd"]["jobs"].keys()
    )
    assert "owners" not in after


@pytest.mark.parametrize("can_chown", [True, False])
def test_a_copy_is_the_same_and_goes_its_own_way(tmp_path: Path, *, can_chown: bool) -> None:
    bench = Bench(tmp_path, can_chown=can_chown)
    bench.log_in()
    bench.mac.files.write("/opt/file", b"", owner="m1:staff", mode=0o600)

    twin = bench.mac.copy(tmp_path / "twin")

    assert twin.snapshot() == bench.mac.snapshot()
    assert twin.files.owner("/Users/m1") == twin.files.owner("/opt/file") == "m1:staff"
    twin.reboot()
    assert bench.mac.is_up
