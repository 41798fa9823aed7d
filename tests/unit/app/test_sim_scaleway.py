"""`bramley sim scaleway` reports invalid settings before it serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bramley.app import sim_scaleway
from bramley.app.listen_address import Address
from bramley.base.errors import BadConfiguration
from bramley.cli import sim_scaleway as command
from bramley.sim.scaleway import catalog, scaleway, ssh_macs


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"type": "M9"}, "--type 'M9' does not exist; use M1-M"),
        ({"zone": "us-east-1"}, "--zone 'us-east-1' does not exist; use fr-par-1"),
        ({"servers": 101}, "--servers 101 is not 0 to 100"),
        ({"servers": -1}, "--servers -1 is not 0 to 100"),
        ({"builders": 4}, "--builders 4 is not 0 to 3"),
        ({"builders": -1}, "--builders -1 is not 0 to 3"),
        ({"builder_type": "M9"}, "--builder-type 'M9' does not exist; use M1-M"),
        ({"github_url": "http://192.0.2.7"}, "URL of GitHub's API must begin with"),
        ({"ssh_port": 70_000}, "--ssh-port 70000 is not a port"),
        ({"speed": 0}, "--speed 0 is not in the range"),
        ({"speed": float("nan")}, "--speed nan is not in the range"),
        ({"project_id": "mine"}, "--project-id 'mine' is not a UUID"),
        ({"secret_key_file": "text"}, "does not contain a secret key"),
    ],
)
def test_invalid_setting_is_refused(tmp_path: Path, given: dict[str, Any], match: str) -> None:
    (tmp_path / "text").write_text("canary")
    files = {name: tmp_path / value for name, value in given.items() if name.endswith("_file")}
    settings = sim_scaleway.Settings(
        **{
            "listen": Address("127.0.0.1", 0),
            "root": tmp_path / "macs",
            "secret_key_file": tmp_path / "secret-key",
            **given,
            **files,
        }
    )

    with pytest.raises(BadConfiguration, match=match) as raised:
        sim_scaleway.run(settings, lambda _served: pytest.fail("it serves"))

    assert "canary" not in str(raised.value)
    assert not (tmp_path / "macs").exists()


def test_defaults_of_the_command_are_those_of_the_simulation() -> None:
    defaults = command.scaleway.__kwdefaults__ or {}

    assert defaults["type"] == catalog.DEFAULT_TYPE
    assert defaults["zone"] == catalog.ZONES[0]
    assert defaults["project_id"] == scaleway.PROJECT


def test_free_port_is_a_port_of_all_addresses() -> None:
    assert 1024 < ssh_macs.free_port(3) < 65_536
