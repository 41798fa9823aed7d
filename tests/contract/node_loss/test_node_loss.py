"""Nodes that fall silent, come back, are tainted, drained or deleted: their Pods end the same on every cluster.

`ends.yaml` holds what the real control plane said; `python -m tests.contract.node_loss.record` asks it again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.node_loss.stories import AT_ONCE, SLOW, everyone

ENDS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "ends.yaml").read_text())
STORIES = [story.__name__ for story in (*AT_ONCE, *SLOW, everyone)]


@pytest.mark.parametrize("story", STORIES)
def test_a_story_ends_as_it_does_on_a_real_cluster(story: str, ends: dict[str, Any]) -> None:
    assert ends[story] == ENDS[story]


@pytest.mark.tier("cluster")
def test_kubectl_drains_a_node_once_the_budget_gives_way(ends: dict[str, Any], target: str) -> None:
    # In process there is no address for kubectl to go to.
    expected = None if target == "in-process" else ENDS["drained"]

    assert ends.get("drained") == expected


def test_every_story_has_an_end_and_every_end_a_story() -> None:
    assert sorted([*STORIES, "drained"]) == sorted(ENDS)
