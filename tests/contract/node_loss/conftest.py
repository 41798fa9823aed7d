"""The scenarios of lost Nodes, run once on each cluster."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.contract.node_loss import background, clusters
from tests.contract.node_loss.background import BackgroundRun
from tests.contract.node_loss.clusters import Outcomes

REAL = pytest.param(background.REAL, marks=pytest.mark.tier("cluster"))


@pytest.fixture(scope="module", params=[background.IN_PROCESS, background.OVER_HTTP, REAL])
def target(request: pytest.FixtureRequest) -> str:
    """Return the name of the cluster."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def outcomes(target: str, node_loss_runs: Mapping[str, BackgroundRun]) -> Outcomes:
    """Return the outcomes of the scenarios on the cluster."""
    if target == background.IN_PROCESS:
        return clusters.in_process()
    return node_loss_runs[target].outcomes()
