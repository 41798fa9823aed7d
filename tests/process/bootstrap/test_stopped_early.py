"""Whoever stops `bramley up --bootstrap` while the agent's archives are made does not wait for them, and nothing of them stays."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bramley.app.agent_bundle import agent_archives
from bramley.app.bootstrapped_macs import ARCHIVES, BootstrappedMacs
from bramley.app.up import MacSettings, News, Waiting
from bramley.base.clock import SystemClock
from bramley.base.errors import BadConfiguration
from tests.process.bootstrap.kept import until


async def test_archives_that_nobody_waits_for_any_more_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, cache = tmp_path / "scratch", tmp_path / "macs" / ARCHIVES
    scratch.mkdir()
    # As a start leaves it that was stopped just as early.
    cache.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(scratch))
    macs = BootstrappedMacs(MacSettings(tmp_path / "macs"), tmp_path / "none", clock=SystemClock())
    news: list[News] = []

    async def is_made() -> bool:
        return any(scratch.glob("agent-bundle-*/stage")) and any(cache.glob(".making-*"))

    async with asyncio.TaskGroup() as group:
        bringing = group.create_task(macs._brought(news.append))
        await until(is_made)
        macs.stop()

    assert bringing.result() is None
    # They are made, so it is told that this takes long.
    assert [type(one) for one in news] == [Waiting]
    assert [*scratch.iterdir(), *cache.iterdir()] == []


async def test_a_folder_that_cannot_hold_them_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(BadConfiguration, match="file"):
        await agent_archives.cached_by_child_process(tmp_path / "file")
