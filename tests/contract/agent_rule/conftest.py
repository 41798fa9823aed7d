"""The parameter of the suite: each test runs on each server, the real one in the tier that needs a control plane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bramley.apiserver.auth.signing_keys import SigningKeys
from tests.contract.agent_rule import targets
from tests.contract.agent_rule.targets import Target
from tests.contract.kube_client.targets import serving

REAL = pytest.param("real", marks=pytest.mark.tier("cluster"))


@pytest.fixture(scope="session")
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run our server for the whole session; return its folder."""
    folder = tmp_path_factory.mktemp("agent-rule")
    with serving(folder):
        yield folder


@pytest.fixture(params=["in-process", "over-http", REAL])
def target(request: pytest.FixtureRequest) -> Target:
    """Return the server under test."""
    if request.param == "in-process":
        return Target(request.param, targets.in_process)
    if request.param == "over-http":
        folder: Path = request.getfixturevalue("own_folder")
        keys = SigningKeys.open(folder / "data")
        kubeconfig = folder / "kubeconfig"
        return Target(request.param, lambda: targets.behind(kubeconfig, keys.sign, is_real=False))
    real = request.getfixturevalue("real_cluster").kubeconfig
    sign = targets.signing_key(real.parent / "pki" / "service-account.key")
    return Target(request.param, lambda: targets.behind(real, sign, is_real=True))
