"""The servers in front of the agent: ours as a process, and the real one in the tier that needs a control plane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.kube_client.targets import serving
from tests.contract.kubelet.stage import Target

REAL = pytest.param("real", marks=pytest.mark.tier("cluster"))


@pytest.fixture(scope="session")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run our server for the whole session; return its folder."""
    folder = tmp_path_factory.mktemp("kubelet")
    with serving(folder):
        yield folder


@pytest.fixture
def embedded(own_server: Path, kubectl: Path) -> Target:
    """Return our server."""
    authority = own_server / "data" / "tls" / "ca.crt"
    return Target("embedded", own_server / "kubeconfig", authority, kubectl)


@pytest.fixture(params=["embedded", REAL])
def target(request: pytest.FixtureRequest, kubectl: Path) -> Target:
    """Return the server under test."""
    if request.param == "embedded":
        found: Target = request.getfixturevalue("embedded")
        return found
    real: Path = request.getfixturevalue("real_cluster").kubeconfig
    return Target("real", real, real.parent / "pki" / "ca.crt", kubectl)
