"""The script of a guest: from its image, its VM's name and the environment of its Pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.sim.tart import guest, settings
from bramley.sim.tart.effects import Plan
from bramley.sim.tart.settings import Context


def plan(env: Path | None = None) -> Plan:
    shares = {"env": {"path": str(env), "read_only": True}} if env else {}
    return Plan("pod-1", "02:00:00:00:00:01", shares, outlives=False)


def context(**content: object) -> Context:
    return Context("/home", {}, lambda: 0.0, bytes, settings.read(content, "/home"))


def test_vm_s_name_wins_over_its_image() -> None:
    disk = {"facts": {"guest": {"work": 5, "code": 4}}}

    script = guest.initial_script(
        context(guests={"pod-*": {"work": 7}, "x": {"code": 9}}), plan(), disk
    )

    assert (script["work"], script["code"], script["then"]) == (7, 4, "halt")


@pytest.mark.parametrize(
    ("written", "read"),
    [("plain", "plain"), (r"a\nb", "a\nb"), (r"a\\nb", r"a\nb"), (r"\r\\", "\r\\"), ("a\\", "a\\")],
)
def test_escapes_of_the_environment_are_undone(written: str, read: str, tmp_path: Path) -> None:
    (tmp_path / "tuist.env").write_text(f"KEY={written}\n")

    assert guest.read_environment(plan(tmp_path)) == {"KEY": read}


def test_no_share_is_an_empty_environment(tmp_path: Path) -> None:
    assert guest.read_environment(plan()) == guest.read_environment(plan(tmp_path)) == {}


def test_environment_changes_only_existing_fields() -> None:
    script = guest.apply_environment(
        settings.GUEST, {"BRAMLEY_SIM_CODE": "3", "BRAMLEY_SIM_X": "1"}
    )

    assert script == {**settings.GUEST, "code": 3}


def test_value_that_is_not_json_is_a_string() -> None:
    assert guest.apply_environment(settings.GUEST, {"BRAMLEY_SIM_THEN": "stay"})["then"] == "stay"
