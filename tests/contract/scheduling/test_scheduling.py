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
    # Messages count all Nodes of the cluster, so there must be no others.
    return targets.real(request.getfixturevalue("lone_cluster").kubeconfig)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "-"))
async def test_scheduling_outcome_equals_kube_schedulers(
    target: Target, case: dict[str, Any]
) -> None:
    for node in case["nodes"]:
        await target.node(node)
    for pod in case.get("pods", []):
        await target.pod(pod["name"], pod)
    await target.wait_for_scheduler()

    await target.pod("p", case["pod"])

    expected = {Verdict(node, "") for node in case.get("node", [])}
    expected |= {Verdict("", case["message"])} if "message" in case else set()

    async def is_expected() -> bool:
        return await target.verdict("p") in expected

    await until(is_expected)
    assert await target.verdict("p") in expected


async def test_a_pod_of_higher_priority_preempts_another(target: Target) -> None:
    async with target.priority_class(1000) as high:
        await target.node({"name": "a", "capacity": {"pods": "1"}})
        await target.pod("x", {"node": "a"})
        await target.wait_for_scheduler()

        await target.pod("p", {"priorityClassName": high})

        async def is_preempted() -> bool:
            return (await target.disruption_reason("x"), await target.nominated("p")) == (
                "PreemptionByScheduler",
                "a",
            )

        assert await until(is_preempted)


def test_case_names_are_unique_and_each_has_one_outcome() -> None:
    names = [case["name"] for case in CASES]

    assert len(names) == len(set(names))
    assert all(("node" in case) != ("message" in case) for case in CASES)
