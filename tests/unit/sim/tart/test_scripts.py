"""What a guest is told: by its image, by its VM's name, by the environment of its Pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.sim.tart import scripts, settings
from bramley.sim.tart.effects import Plan, Surroundings
from bramley.sim.tart.world import World


def plan(env: Path | None = None) -> Plan:
    shares = {"env": {"path": str(env), "read_only": True}} if env else {}
    return Plan("pod-1", "02:00:00:00:00:01", shares, outlives=False)


def world(**content: object) -> World:
    around = Surroundings("/home", {}, lambda: 0.0, bytes, 1)
    return World(around, settings.read(content, "/home"))


def test_the_vm_s_name_wins_over_its_image() -> None:
    disk = {"facts": {"guest": {"work": 5, "code": 4}}}

    script = scripts.of_vm(world(guests={"pod-*": {"work": 7}, "x": {"code": 9}}), plan(), disk)

    assert (script["work"], script["code"], script["then"]) == (7, 4, "halt")


@pytest.mark.parametrize(
    ("written", "read"),
    [("plain", "plain"), (r"a\nb", "a\nb"), (r"a\\nb", r"a\nb"), (r"\r\\", "\r\\"), ("a\\", "a\\")],
)
def test_escapes_of_the_environment_are_undone(written: str, read: str, tmp_path: Path) -> None:
    (tmp_path / "tuist.env").write_text(f"KEY={written}\n")

    assert scripts.environment(plan(tmp_path)) == {"KEY": read}


def test_no_share_is_an_empty_environment(tmp_path: Path) -> None:
    assert scripts.environment(plan()) == scripts.environment(plan(tmp_path)) == {}


def test_the_environment_changes_only_fields_that_there_are() -> None:
    script = scripts.told_by(settings.GUEST, {"BRAMLEY_SIM_CODE": "3", "BRAMLEY_SIM_X": "1"})

    assert script == {**settings.GUEST, "code": 3}


def test_what_is_no_json_is_a_text() -> None:
    assert scripts.told_by(settings.GUEST, {"BRAMLEY_SIM_THEN": "stay"})["then"] == "stay"
