"""kubectl sessions print the same on the embedded API and on a real cluster, neither of which has other clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.kubectl_sessions import server, session
from tests.cluster.kubectl_sessions.session import Session, StepOutput
from tools.kube.control_plane import RealCluster

SESSIONS = session.load()
Outputs = Mapping[str, Mapping[str, "Future[list[StepOutput]]"]]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with server.serving(tmp_path_factory.mktemp("embedded")) as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="module")
def outputs(
    request: pytest.FixtureRequest,
    embedded: Path,
    lone_cluster: RealCluster,
    kubectl: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Outputs:
    """Run the selected sessions on both servers, concurrently where they do not disturb each other."""
    selected = {each.name for each in SESSIONS if is_selected(each, request.session.items)}
    servers = {"ours": embedded, "real": lone_cluster.kubeconfig}
    results: dict[str, dict[str, Future[list[StepOutput]]]] = {}

    def run(one: Session, kubeconfig: Path) -> list[StepOutput]:
        folder = tmp_path_factory.mktemp(one.name)
        return session.run(one, kubectl=kubectl, kubeconfig=kubeconfig, folder=folder)

    for beside in sorted({each.beside for each in SESSIONS}):
        together = [each for each in SESSIONS if each.beside == beside and each.name in selected]
        with ThreadPoolExecutor(len(servers) * len(SESSIONS)) as threads:
            for one in together:
                results[one.name] = {
                    name: threads.submit(run, one, place) for name, place in servers.items()
                }
    return results


def is_selected(one: Session, items: list[pytest.Item]) -> bool:
    here = Path(__file__)
    return any(each.path == here and each.name.endswith(f"[{one.name}]") for each in items)


@pytest.mark.parametrize("one", SESSIONS, ids=lambda each: each.name)
def test_kubectl_prints_the_same_on_both_servers(one: Session, outputs: Outputs) -> None:
    here, there = (outputs[one.name][side].result() for side in ("ours", "real"))

    differing = {
        f"{number}: kubectl {ours.step.run}": found
        for number, (ours, theirs) in enumerate(zip(here, there, strict=True), 1)
        if (found := session.difference(ours, theirs))
    }
    shown = "\n".join("\n  ".join([step, *found]) for step, found in differing.items())
    assert not differing, f"\n{shown}"
