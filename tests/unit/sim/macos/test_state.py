"""The state of a simulated Mac: atomic changes that every process sees."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bramley.sim.macos.mac import Mac
from bramley.sim.macos.state import persistent_state
from tests.unit.sim.macos.harness import MacHarness


def test_change_is_visible_in_every_open_mac(tmp_path: Path) -> None:
    mac = MacHarness(tmp_path).mac
    other = Mac(mac.root)
    assert not other.state["filevault"]

    with mac.change() as state:
        state["filevault"] = True

    assert other.state["filevault"]


def test_other_changes_are_read_after_caching(tmp_path: Path) -> None:
    mac = MacHarness(tmp_path).mac

    with mac.caching():
        assert not mac.state["filevault"]
        with Mac(mac.root).change() as state:
            state["filevault"] = True
        with mac.change() as state:
            assert state["filevault"], "a change begins with what is there"
            state["sip"] = False
        assert mac.state["sip"] is False
        with Mac(mac.root).change() as state:
            state["filevault"] = False

    assert not mac.state["filevault"]
    with Mac(mac.root).change() as state:
        state["filevault"] = True
    assert mac.state["filevault"], "what was read after it is not kept"


def test_state_folder_is_private(tmp_path: Path) -> None:
    mac = MacHarness(tmp_path).mac

    assert (mac.root / ".mac").stat().st_mode & 0o077 == 0


def test_failed_change_is_discarded(tmp_path: Path) -> None:
    mac = MacHarness(tmp_path).mac

    with pytest.raises(RuntimeError, match="midway"):
        _fail_midway(mac)

    assert mac.state["users"]["m1"]["password"] != "another"


def _fail_midway(mac: Mac) -> None:
    with mac.change() as state:
        state["users"]["m1"]["password"] = "another"
        raise RuntimeError("midway")


def test_nested_change_is_part_of_the_outer_one(tmp_path: Path) -> None:
    mac = MacHarness(tmp_path).mac

    with mac.change() as outer:
        with mac.change() as inner:
            inner["filevault"] = True
        assert outer["filevault"]
        assert mac.state["filevault"]
        assert not Mac(mac.root).store.read()["filevault"]

    assert mac.state["filevault"]


def test_concurrent_changes_are_not_lost(tmp_path: Path) -> None:
    mac = MacHarness(tmp_path).mac

    # Each opens the folder for itself, as two processes do.
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_count, (mac.root, mac.root)))

    assert mac.state["console"]["counted_count"] == 100


def _count(root: Path) -> None:
    mac = Mac(root)
    for _ in range(50):
        with mac.change() as state:
            console = state["console"]
            console["counted_count"] = console.get("counted_count", 0) + 1


def test_transient_values_are_not_lasting() -> None:
    state = {"jobs": [{"pid": 7, "label": "a", "started_at": 1.0, "runs_count": 3, "boot_id": "x"}]}

    assert persistent_state(state) == {"jobs": [{"label": "a"}]}
