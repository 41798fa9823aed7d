"""`bramley sim mac` reports invalid settings before it writes anything."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bramley.app import sim_mac
from bramley.app.listen_address import Address
from bramley.base.errors import Refused
from bramley.sim.macos.mac import Mac


async def refused(root: Path, match: str, **given: Any) -> None:
    settings = sim_mac.Settings(root=root, listen=Address("127.0.0.1", 0))
    with pytest.raises(Refused, match=match):
        async with sim_mac.host(replace(settings, **given)):
            pass


async def test_invalid_flag_creates_no_folder(tmp_path: Path) -> None:
    nowhere, empty = tmp_path / "nope", tmp_path / "empty"
    empty.touch()

    for flag, given in (("password", "password_file"), ("authorized-key", "authorized_key")):
        await refused(tmp_path / "mac", f"--{flag}.*No such file", **{given: nowhere})
    await refused(tmp_path / "mac", "is empty", password_file=empty)

    assert not (tmp_path / "mac").exists()


async def test_invalid_settings_are_refused_before_anything_is_created(tmp_path: Path) -> None:
    root = tmp_path / "mac"
    key = tmp_path / "key.pub"
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("--user '' must be", {"user": ""}),
        ("--user root", {"user": "root"}),
        ("--macos 'abc' must be", {"macos_version": "abc"}),
        ("is not a public key", {"authorized_key": key}),
    ]

    for content in ("", "# only a comment\n", "not a key\n"):
        key.write_text(content)
        for match, given in wrong:
            await refused(root, match, **given)

    assert not root.exists()


async def test_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("dear")

    await refused(tmp_path, "is not empty and not a simulated Mac; use an empty folder")

    assert os.listdir(tmp_path) == ["letter.txt"]  # noqa: PTH208 - nothing blocks in a test


async def test_existing_mac_keeps_its_password(tmp_path: Path) -> None:
    Mac.create(tmp_path / "mac")
    (tmp_path / "password").write_text("another")

    await refused(
        tmp_path / "mac", "already has its password and keys", password_file=tmp_path / "password"
    )
