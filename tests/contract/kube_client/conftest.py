"""The parameter of the suite: each test runs on each target, the real one in the tier that needs a control plane."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.contract.kube_client import targets
from tests.contract.kube_client.targets import Target, World

REAL = pytest.param("real", marks=pytest.mark.tier("cluster"))


@pytest.fixture(scope="session")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run our server for the whole session, and yield its kubeconfig."""
    with targets.serving(tmp_path_factory.mktemp("apiserver")) as kubeconfig:
        yield kubeconfig


@pytest.fixture(params=["in-process", "over-http", REAL])
def target(request: pytest.FixtureRequest) -> Target:
    """Return the server under test."""
    if request.param == "in-process":
        return Target(request.param, targets.in_process)
    if request.param == "over-http":
        kubeconfig = request.getfixturevalue("own_server")
    else:
        kubeconfig = request.getfixturevalue("real_cluster").kubeconfig
    return Target(request.param, lambda: targets.behind(kubeconfig))


@pytest.fixture
def world(target: Target) -> AbstractAsyncContextManager[World]:
    """Return a namespace on the server under test; tests that run side by side open their own."""
    return target.world()
