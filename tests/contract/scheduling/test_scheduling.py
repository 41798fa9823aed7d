"""The same Nodes and Pods, the same verdict: on our scheduler and on the real one."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.scheduling import targets
from tests.contract.scheduling.targets import Target, Verdict, until

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "cases.yaml").read_text())
REAL = pytest.param("real", marks=pytest.mark.tier("cluster"))


@pytest.fixture(params=["embedded", REAL])
def target(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Target]:
    """Return the cluster under test."""
    if request.param == "embedded":
        return targets.ours()
    # Verdicts count all Nodes of the cluster, so nobody else's may be there.
    return targets.real(request.getfixturevalue("lone_cluster").kubeconfig)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "-"))
async def test_verdicts(target: AbstractAsyncContextManager[Target], case: dict[str, Any]) -> None:
    async with target as cluster:
        for node in case["nodes"]:
            await cluster.node(node)
        for pod in case.get("pods", []):
            await cluster.pod(pod["name"], pod)
        await cluster.seen()

        await cluster.pod("p", case["pod"])

        wanted = {Verdict(node, "") for node in case.get("node", [])}
        wanted |= {Verdict("", case["message"])} if "message" in case else set()

        async def is_as_wanted() -> bool:
            return await cluster.verdict("p") in wanted

        await until(is_as_wanted)
        assert await cluster.verdict("p") in wanted


async def test_a_more_important_pod_sends_another_away(
    target: AbstractAsyncContextManager[Target],
) -> None:
    async with target as cluster, cluster.importance(1000) as great:
        await cluster.node({"name": "a", "offers": {"pods": "1"}})
        await cluster.pod("x", {"node": "a"})
        await cluster.seen()

        await cluster.pod("p", {"priorityClassName": great})

        async def is_sent_away() -> bool:
            return (await cluster.end("x"), await cluster.nominated("p")) == (
                "PreemptionByScheduler",
                "a",
            )

        assert await until(is_sent_away)


def test_cases_have_names_of_their_own_and_one_end() -> None:
    names = [case["name"] for case in CASES]

    assert len(names) == len(set(names))
    assert all(("node" in case) != ("message" in case) for case in CASES)
