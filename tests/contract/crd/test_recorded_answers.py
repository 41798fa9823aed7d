"""The recorded answers, which our schemas must reproduce, are still those of a real kube-apiserver."""

from __future__ import annotations

import pytest

from tests.contract.crd import server_answers, tables
from tests.contract.crd.real_server import plain
from tools.kube.control_plane import RealCluster


@pytest.mark.tier("cluster")
@pytest.mark.parametrize("name", tables.NAMES)
def test_recorded_answers_equal_a_real_servers(name: str, real_cluster: RealCluster) -> None:
    table = plain(tables.load(name))

    with server_answers.caller(real_cluster) as call:
        answers = getattr(server_answers, name)(call, table)

    assert table == plain(answers)
