"""The stories of lost Nodes, played once on each cluster."""

from __future__ import annotations

import os

import pytest

from tests.contract.node_loss import playing, timings
from tests.contract.node_loss.playing import Ends
from tools import tiers
from tools.kube.pytest_plugin import prepare

REAL = pytest.param("real", marks=pytest.mark.tier("cluster"))


@pytest.fixture(scope="module", params=["in-process", "over-http", REAL])
def target(request: pytest.FixtureRequest) -> str:
    """Return which cluster is asked."""
    name: str = request.param
    return name


def has_kubectl(request: pytest.FixtureRequest) -> bool:
    """Tell whether kubectl is there, after it was built if tests of a real cluster are wanted at all."""
    wanted = tiers.chosen(os.environ.get("TIERS", ""))
    if "cluster" not in wanted or tiers.missing_for("cluster"):
        return False
    prepare(request.config, "kubectl")
    return True


@pytest.fixture(scope="module")
def ends(target: str, request: pytest.FixtureRequest) -> Ends:
    """Play the stories on the cluster and return how they ended."""
    if target == "in-process":
        return playing.in_process()
    if target == "over-http":
        folders: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        return playing.over_http(folders.mktemp("node-loss"), has_kubectl=has_kubectl(request))
    prepare(request.config, *timings.REAL.servers, "kubectl")
    return playing.real()
