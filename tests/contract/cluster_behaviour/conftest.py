"""The parameter of the suite: each test runs on our cluster, in process and over HTTP, and on the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.cluster_behaviour import targets
from tests.contract.cluster_behaviour.targets import Open
from tests.contract.kube_client.targets import serving

REAL = pytest.param("real", marks=pytest.mark.tier("cluster"))


@pytest.fixture(scope="session")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run our server, controllers included, for the whole session, and yield its kubeconfig."""
    with serving(tmp_path_factory.mktemp("cluster")) as kubeconfig:
        yield kubeconfig


@pytest.fixture(params=["in-process", "over-http", REAL])
def target(request: pytest.FixtureRequest) -> str:
    """Return the name of the cluster under test."""
    name: str = request.param
    return name


@pytest.fixture
def opening(target: str, request: pytest.FixtureRequest) -> Open:
    """Return the function that opens a client of the cluster under test."""
    if target == "in-process":
        return targets.in_process
    if target == "over-http":
        kubeconfig = request.getfixturevalue("own_cluster")
    else:
        kubeconfig = request.getfixturevalue("real_cluster").kubeconfig
    return lambda: targets.behind(kubeconfig)
