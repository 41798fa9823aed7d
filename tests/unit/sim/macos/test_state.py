"""The state of a simulated Mac: changed whole or not at all, and the same for everybody who opens the folder."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bramley.sim.macos.mac import Mac
from bramley.sim.macos.state import lasting
from tests.unit.sim.macos.macs import Bench


def test_a_change_is_seen_by_everybody_who_opens_the_folder(tmp_path: Path) -> None:
    mac = Bench(tmp_path).mac
    other = Mac(mac.root)
    assert not other.state["filevault"]

    with mac.change() as state:
        state["filevault"] = True

    assert other.state["filevault"]


def test_what_others_change_is_seen_when_the_moment_is_over(tmp_path: Path) -> None:
    mac = Bench(tmp_path).mac

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


def test_passwords_are_in_no_folder_that_others_may_enter(tmp_path: Path) -> None:
    mac = Bench(tmp_path).mac

    assert (mac.root / ".mac").stat().st_mode & 0o077 == 0


def test_nothing_of_a_change_stays_when_an_error_comes(tmp_path: Path) -> None:
    mac = Bench(tmp_path).mac

    with pytest.raises(RuntimeError, match="midway"):
        _fail_midway(mac)

    assert mac.state["users"]["m1"]["password"] != "another"


def _fail_midway(mac: Mac) -> None:
    with mac.change() as state:
        state["users"]["m1"]["password"] = "another"
        raise RuntimeError("midway")


def test_a_change_within_a_change_is_part_of_it(tmp_path: Path) -> None:
    mac = Bench(tmp_path).mac

    with mac.change() as outer:
        with mac.change() as inner:
            inner["filevault"] = True
        assert outer["filevault"]
        assert mac.state["filevault"]
        assert not Mac(mac.root).store.read()["filevault"]

    assert mac.state["filevault"]


def test_two_at_once_lose_none_of_their_changes(tmp_path: Path) -> None:
    mac = Bench(tmp_path).mac

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


def test_what_differs_from_run_to_run_is_no_part_of_what_lasts() -> None:
    state = {"jobs": [{"pid": 7, "label": "a", "started_at": 1.0, "runs_count": 3, "boot_id": "x"}]}

    assert lasting(state) == {"jobs": [{"label": "a"}]}
