"""The stories of lost Nodes, played once on each cluster."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.contract.node_loss import ahead, playing
from tests.contract.node_loss.ahead import Playing
from tests.contract.node_loss.playing import Ends

REAL = pytest.param(ahead.REAL, marks=pytest.mark.tier("cluster"))


@pytest.fixture(scope="module", params=[ahead.IN_PROCESS, ahead.OVER_HTTP, REAL])
def target(request: pytest.FixtureRequest) -> str:
    """Return which cluster is asked."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def ends(target: str, stories: Mapping[str, Playing]) -> Ends:
    """Play the stories on the cluster, unless they are played already, and return how they ended."""
    return playing.in_process() if target == ahead.IN_PROCESS else stories[target].ends()
