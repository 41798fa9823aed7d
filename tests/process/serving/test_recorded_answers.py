"""The whole server, over TLS, answers about custom resources as a real kube-apiserver did; see tests/contract/crd."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.crd import server_answers, tables
from tests.contract.crd.real_server import plain
from tests.process.serving.processes import running


@pytest.mark.parametrize("name", tables.NAMES)
def test_served_answers_are_the_recorded_ones(name: str, tmp_path: Path) -> None:
    table = plain(tables.load(name))

    with running(tmp_path) as server:
        answers = getattr(server_answers, name)(server.request, table)

    assert table == plain(answers)
