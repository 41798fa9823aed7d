"""The answers that our schemas are held to are those of a real kube-apiserver, asked again each time."""

from __future__ import annotations

import pytest

from tests.contract.crd import asking, tables
from tests.contract.crd.real_server import plain
from tools.kube.control_plane import RealCluster


@pytest.mark.tier("cluster")
@pytest.mark.parametrize("name", tables.NAMES)
def test_recorded_answers_are_what_a_real_server_says(name: str, real_cluster: RealCluster) -> None:
    table = plain(tables.load(name))

    with asking.caller(real_cluster) as call:
        answers = getattr(asking, name)(call, table)

    assert table == plain(answers)
