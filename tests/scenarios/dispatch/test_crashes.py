"""A server that is killed at any statement, GitHub call or write neither loses a job nor runs it twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.dispatch.crashes import live

SAMPLE = 23
SHARDS = 8


@pytest.fixture(scope="module")
def checkpoint_count(tmp_path_factory: pytest.TempPathFactory) -> int:
    return live(tmp_path_factory.mktemp("uninterrupted"), None).count


@pytest.mark.parametrize("shard", range(2))
def test_kill_at_a_sample_of_checkpoints_loses_and_doubles_no_job(
    tmp_path: Path, checkpoint_count: int, shard: int
) -> None:
    for kill_at in range(1 + shard, checkpoint_count, 2 * SAMPLE):
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        life = live(folder, kill_at)
        # Threads make the count vary by a few, so the last kill may lie after the end of its life.
        assert life.is_dead or life.count < kill_at


@pytest.mark.soak
@pytest.mark.parametrize("shard", range(SHARDS))
def test_kill_at_every_checkpoint_loses_and_doubles_no_job(
    tmp_path: Path, checkpoint_count: int, shard: int
) -> None:
    for kill_at in range(1 + shard, checkpoint_count + 1, SHARDS):
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        live(folder, kill_at)
