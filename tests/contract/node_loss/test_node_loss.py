"""Nodes that are lost, recover, are tainted, drained or deleted: the outcome is the same on every cluster.

`outcomes.yaml` holds those of the real control plane; `python -m tests.contract.node_loss.record` records them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.node_loss.scenarios import AT_ONCE, SLOW, all_nodes_lost

OUTCOMES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "outcomes.yaml").read_text())
SCENARIOS = [scenario.__name__ for scenario in (*AT_ONCE, *SLOW, all_nodes_lost)]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_outcome_is_that_of_a_real_cluster(scenario: str, outcomes: dict[str, Any]) -> None:
    assert outcomes[scenario] == OUTCOMES[scenario]


@pytest.mark.tier("cluster")
def test_kubectl_drains_a_node_once_the_budget_allows(
    outcomes: dict[str, Any], target: str
) -> None:
    # In process there is no address for kubectl.
    expected = None if target == "in-process" else OUTCOMES["drained"]

    assert outcomes.get("drained") == expected


def test_every_scenario_has_a_recorded_outcome() -> None:
    assert sorted([*SCENARIOS, "drained"]) == sorted(OUTCOMES)
