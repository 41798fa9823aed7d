"""kubectl sessions on the embedded API and on a real cluster, each with nobody else on it: a person sees the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.kubectl_sessions import server, session
from tests.cluster.kubectl_sessions.session import Said, Session
from tools.kube.control_plane import RealCluster

SESSIONS = session.load()
Told = Mapping[str, Mapping[str, "Future[list[Said]]"]]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with server.serving(tmp_path_factory.mktemp("embedded")) as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="module")
def said(
    request: pytest.FixtureRequest,
    embedded: Path,
    lone_cluster: RealCluster,
    kubectl: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Told:
    """Tell the sessions that are asked for to both servers, those at the same time that do not disturb each other."""
    asked = {each.name for each in SESSIONS if is_asked_for(each, request.session.items)}
    servers = {"ours": embedded, "real": lone_cluster.kubeconfig}
    told: dict[str, dict[str, Future[list[Said]]]] = {}

    def tell(one: Session, kubeconfig: Path) -> list[Said]:
        folder = tmp_path_factory.mktemp(one.name)
        return session.tell(one, kubectl=kubectl, kubeconfig=kubeconfig, folder=folder)

    for company in sorted({each.beside for each in SESSIONS}):
        together = [each for each in SESSIONS if each.beside == company and each.name in asked]
        with ThreadPoolExecutor(len(servers) * len(SESSIONS)) as threads:
            for one in together:
                told[one.name] = {
                    name: threads.submit(tell, one, place) for name, place in servers.items()
                }
    return told


def is_asked_for(one: Session, items: list[pytest.Item]) -> bool:
    here = Path(__file__)
    return any(each.path == here and each.name.endswith(f"[{one.name}]") for each in items)


@pytest.mark.parametrize("told", SESSIONS, ids=lambda each: each.name)
def test_kubectl_says_the_same_on_both_servers(told: Session, said: Told) -> None:
    here, there = (said[told.name][side].result() for side in ("ours", "real"))

    differing = {
        f"{number}: kubectl {ours.step.run}": found
        for number, (ours, theirs) in enumerate(zip(here, there, strict=True), 1)
        if (found := session.difference(ours, theirs))
    }
    shown = "\n".join("\n  ".join([step, *found]) for step, found in differing.items())
    assert not differing, f"\n{shown}"
