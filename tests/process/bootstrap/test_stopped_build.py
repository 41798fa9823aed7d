"""Stopping `bramley up --bootstrap` while it builds the agent's archives does not wait for them and leaves nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bramley.app.agent_bundle import agent_archives
from bramley.app.managed_macs import build_artifacts
from bramley.base.errors import BadConfiguration
from tests.process.bootstrap.shared_loop import wait_until


async def test_stopped_build_of_archives_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, cache = tmp_path / "scratch", tmp_path / "archives"
    scratch.mkdir()
    # Left by an earlier start that was stopped in the same way.
    cache.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(scratch))

    async def is_building() -> bool:
        return any(scratch.glob("agent-bundle-*/stage")) and any(cache.glob(".making-*"))

    building = asyncio.create_task(build_artifacts(cache, tmp_path / "artifacts"))
    await wait_until(is_building)
    building.cancel()
    await asyncio.wait([building])

    assert building.cancelled()
    assert [*scratch.iterdir(), *cache.iterdir()] == []


async def test_unusable_cache_folder_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(BadConfiguration, match="file"):
        await agent_archives.cached_by_child_process(tmp_path / "file")
