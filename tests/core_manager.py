"""Fixtures of Cluster API's core manager, one per server for the whole session: two of them would reconcile the same objects.

Every run of pytest loads this file, so its imports are inside the fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.kube import pytest_plugin


@pytest.fixture(scope="session")
def core_on_embedded(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Run our server and the core manager for the whole session, and yield the kubeconfig."""
    from tests.contract.cluster_api import targets
    from tests.contract.kube_client.targets import serving

    pytest_plugin.prepare(pytestconfig, "cluster-api")
    with (
        serving(tmp_path_factory.mktemp("cluster")) as kubeconfig,
        targets.with_core_manager(kubeconfig),
    ):
        yield kubeconfig


@pytest.fixture(scope="session")
def core_on_real(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Run the core manager on the real control plane for the whole session, and yield the kubeconfig."""
    from tests.contract.cluster_api import targets

    pytest_plugin.prepare(pytestconfig, "cluster-api")
    kubeconfig = request.getfixturevalue("real_cluster").kubeconfig
    with targets.with_core_manager(kubeconfig):
        yield kubeconfig
