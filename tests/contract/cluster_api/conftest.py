"""The parameter of the suite: the small controllers, and Cluster API's core manager on our API and on the real one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.contract.cluster_api import targets
from tests.contract.kube_client.targets import serving
from tools.kube import pytest_plugin

CLUSTER_TIER = pytest.mark.tier("cluster")
TARGETS = (
    "small controllers",
    pytest.param("core manager on the embedded API", marks=CLUSTER_TIER),
    pytest.param("core manager on kube-apiserver", marks=CLUSTER_TIER),
)


@pytest.fixture(scope="session")
def core_on_embedded(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Run our server and the core manager for the whole session, and yield the kubeconfig."""
    pytest_plugin.prepare(pytestconfig, "cluster-api")
    with (
        serving(tmp_path_factory.mktemp("cluster")) as kubeconfig,
        targets.with_core_manager(kubeconfig),
    ):
        yield kubeconfig


@pytest.fixture(scope="session")
def core_on_real(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Run the core manager on the real control plane for the whole session, and yield the kubeconfig."""
    pytest_plugin.prepare(pytestconfig, "cluster-api")
    kubeconfig = request.getfixturevalue("real_cluster").kubeconfig
    with targets.with_core_manager(kubeconfig):
        yield kubeconfig


@pytest.fixture(params=TARGETS)
def opening(request: pytest.FixtureRequest) -> Any:
    """Return the function that opens a world on the implementation under test."""
    if request.param == "small controllers":
        return partial(targets.a_world, targets.small_controllers, None)
    is_embedded = request.param == "core manager on the embedded API"
    kubeconfig = request.getfixturevalue("core_on_embedded" if is_embedded else "core_on_real")
    return partial(targets.a_world, partial(targets.behind, kubeconfig), kubeconfig)
