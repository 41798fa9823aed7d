"""kubectl sessions on the embedded API and on a real cluster, each with nobody else on it: a person sees the same."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.kubectl_sessions import session
from tests.cluster.kubectl_sessions.session import Said, Session
from tests.process.serving.processes import running
from tools.kube.control_plane import RealCluster

SESSIONS = session.load()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running(tmp_path_factory.mktemp("embedded")) as server:
        yield server.kubeconfig


@pytest.mark.parametrize("told", SESSIONS, ids=lambda each: each.name)
def test_kubectl_says_the_same_on_both_servers(
    told: Session, embedded: Path, lone_cluster: RealCluster, kubectl: Path, tmp_path: Path
) -> None:
    def tell(name: str, kubeconfig: Path) -> list[Said]:
        (folder := tmp_path / name).mkdir()
        return session.tell(told, kubectl=kubectl, kubeconfig=kubeconfig, folder=folder)

    with ThreadPoolExecutor() as side_by_side:
        here = side_by_side.submit(tell, "ours", embedded)
        there = side_by_side.submit(tell, "real", lone_cluster.kubeconfig)

    differing = {
        f"{number}: kubectl {ours.step.run}": found
        for number, (ours, theirs) in enumerate(zip(here.result(), there.result(), strict=True), 1)
        if (found := session.difference(ours, theirs))
    }
    shown = "\n".join("\n  ".join([step, *found]) for step, found in differing.items())
    assert not differing, f"\n{shown}"
