"""The parameter of the suite: each test runs on each target, the real one in the tier that needs a control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.kube_client import targets
from tests.contract.kube_client.targets import Target

REAL = pytest.param("real", marks=pytest.mark.tier("cluster"))


@pytest.fixture(params=["in-process", "over-http", REAL])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """Return the server under test; the real one is started once for the whole session."""
    if request.param == "in-process":
        return Target(request.param, targets.in_process)
    if request.param == "over-http":
        return Target(request.param, lambda: targets.over_http(tmp_path))
    cluster = request.getfixturevalue("real_cluster")
    return Target(request.param, lambda: targets.real(cluster.kubeconfig))
