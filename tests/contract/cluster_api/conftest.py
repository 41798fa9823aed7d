"""The parameter of the suite: the small controllers, and Cluster API's core manager on our API and on the real one."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.contract.cluster_api import targets

CLUSTER_TIER = pytest.mark.tier("cluster")
TARGETS = (
    "small controllers",
    pytest.param("core manager on the embedded API", marks=CLUSTER_TIER),
    pytest.param("core manager on kube-apiserver", marks=CLUSTER_TIER),
)


@pytest.fixture(params=TARGETS)
def opening(request: pytest.FixtureRequest) -> Any:
    """Return the function that opens a world on the implementation under test."""
    if request.param == "small controllers":
        return partial(targets.a_world, targets.small_controllers, None)
    is_embedded = request.param == "core manager on the embedded API"
    kubeconfig = request.getfixturevalue("core_on_embedded" if is_embedded else "core_on_real")
    return partial(targets.a_world, partial(targets.behind, kubeconfig), kubeconfig)
