"""The settings file of the simulated tart: defaults, and errors for unknown keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bramley.sim.tart import settings
from bramley.sim.tart.settings import BadSettings

PAGE = Path(__file__).parents[4] / "docs/reference/simulated-tart.md"


def test_empty_file_is_a_healthy_mac() -> None:
    read = settings.read({}, "/home")

    assert (read.faults, read.host["macos_guests"], read.seconds("address")) == ((), 2, 9.0)
    assert read.registry == "/home/.sim/registry"


def test_every_duration_is_scaled() -> None:
    read = settings.read({"scale": 0.1, "timings": {"clone": 3}}, "/home")

    assert read.seconds("clone") == pytest.approx(0.3)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"nothing": 1},
        {"timings": {"lunch": 1}},
        {"images": {"a/b:1": {"guest": {"wrok": 1}}}},
        {"guests": {"*": {"wrok": 1}}},
        {"faults": [{"on": "get", "do": "half"}]},
        {"faults": [{"on": "clone", "do": "hang", "at": "lunch"}]},
        {"faults": [{"on": "clone", "do": "hang", "time": 1}]},
    ],
)
def test_unknown_keys_and_values_are_refused(content: Any) -> None:
    with pytest.raises(BadSettings):
        settings.read(content, "/home")


def test_refusal_names_the_file_and_the_key(tmp_path: Path) -> None:
    (tmp_path / "sim.json").write_text('{"host": {"disk_byte": 1}}')

    with pytest.raises(BadSettings) as refusal:
        settings.load(str(tmp_path), {})
    assert str(refusal.value) == f"{tmp_path}/sim.json: host: unknown key disk_byte"


@pytest.mark.parametrize(
    ("version", "is_newer"), [("2.9.0", False), ("2.31.0", True), ("10.0.0", True)]
)
def test_releases_are_compared_as_numbers(version: str, *, is_newer: bool) -> None:
    assert settings.read({"version": version}, "/home").is_at_least("2.31") is is_newer


def test_page_names_every_setting_and_every_fault() -> None:
    tables = (
        settings.TOP,
        settings.TIMINGS,
        settings.HOST,
        settings.IMAGE,
        settings.GUEST,
        settings.Fault._field_defaults,
    )
    documented = {name for table in tables for name in table}
    documented |= settings.ANY_FAULTS | {
        each for kinds in settings.FAULTS.values() for each in kinds
    }

    text = PAGE.read_text()

    assert [name for name in sorted(documented) if f"`{name}`" not in text] == []
