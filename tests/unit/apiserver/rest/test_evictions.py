"""Evicting Pods: what their disruption budget allows, what it costs, and who goes without being counted."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.apiserver.world import PODS, Json, Reply, World, a_pod

BUDGETS = "/apis/policy/v1/namespaces/t/poddisruptionbudgets"


async def a_running_pod(world: World, name: str, *, ready: str = "True") -> None:
    pod = a_pod(name, nodeName="n")
    pod["metadata"]["labels"] = {"x": "y"}
    await world.create(PODS, pod)
    conditions = [{"type": "Ready", "status": ready}]
    status = {"phase": "Running", "conditions": conditions}
    await world.merge(f"{PODS}/{name}/status", {"status": status})


async def a_budget(world: World, *, allowed: int, **spec: Any) -> None:
    body = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"x": "y"}}, **spec},
    }
    await world.create(BUDGETS, body)
    counted = {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 2}
    await world.merge(f"{BUDGETS}/b/status", {"status": {**counted, "observedGeneration": 1}})


async def evict(world: World, name: str, **options: Any) -> Reply:
    body: Json = {"metadata": {"name": name}, "deleteOptions": options}
    return await world.request("POST", f"{PODS}/{name}/eviction", body)


async def status_of(world: World) -> Json:
    status: Json = (await world.get(f"{BUDGETS}/b")).json["status"]
    return status


async def test_eviction_decrements_the_budget_and_records_the_pod(world: World) -> None:
    await a_budget(world, allowed=1)
    await a_running_pod(world, "a")

    evicted = await evict(world, "a")

    assert evicted.code == 201
    seen = await status_of(world)
    assert (seen["disruptionsAllowed"], list(seen["disruptedPods"])) == (0, ["a"])
    pod = (await world.get(f"{PODS}/a")).json
    assert "deletionTimestamp" in pod["metadata"]
    assert pod["status"]["conditions"][-1]["reason"] == "EvictionByEvictionAPI"


async def test_exhausted_budget_refuses_the_eviction(world: World) -> None:
    await a_budget(world, allowed=0)
    await a_running_pod(world, "a")

    refused = await evict(world, "a")

    assert (refused.code, refused.json["reason"]) == (429, "TooManyRequests")
    assert refused.json["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "deletionTimestamp" not in (await world.get(f"{PODS}/a")).json["metadata"]


async def test_concurrent_evictions_use_a_budget_of_one_only_once(world: World) -> None:
    await a_budget(world, allowed=1)
    await a_running_pod(world, "a")
    await a_running_pod(world, "c")

    answers = await asyncio.gather(evict(world, "a"), evict(world, "c"))

    assert sorted(each.code for each in answers) == [201, 429]


async def test_uncounted_budget_is_refused_with_retry_after(world: World) -> None:
    await a_budget(world, allowed=1)
    await world.merge(f"{BUDGETS}/b", {"spec": {"minAvailable": 2}})
    await a_running_pod(world, "a")

    refused = await evict(world, "a")

    assert (refused.code, refused.header("retry-after")) == (429, ["10"])


async def test_a_dry_run_consumes_no_budget_and_evicts_no_pod(world: World) -> None:
    await a_budget(world, allowed=1)
    await a_running_pod(world, "a")

    tried = await evict(world, "a", dryRun=["All"])

    assert tried.code == 201
    assert (await status_of(world))["disruptionsAllowed"] == 1
    assert "deletionTimestamp" not in (await world.get(f"{PODS}/a")).json["metadata"]


async def test_unready_pod_is_evicted_without_budget_only_by_policy(world: World) -> None:
    await a_budget(world, allowed=0)
    await a_running_pod(world, "a", ready="False")

    guarded = await evict(world, "a")
    policy = {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}
    await world.merge(f"{BUDGETS}/b", policy)
    free = await evict(world, "a")

    assert (guarded.code, free.code) == (429, 201)


async def test_a_pod_that_ended_or_never_ran_needs_no_budget(world: World) -> None:
    await a_budget(world, allowed=0)
    await a_running_pod(world, "a")
    await world.merge(f"{PODS}/a/status", {"status": {"phase": "Failed"}})
    waiting = a_pod("w")
    waiting["metadata"]["labels"] = {"x": "y"}
    await world.create(PODS, waiting)

    assert [(await evict(world, name)).code for name in ("a", "w")] == [201, 201]
    assert [(await world.get(f"{PODS}/{name}")).code for name in ("a", "w")] == [404, 404]


async def test_another_pod_of_the_name_is_not_evicted(world: World) -> None:
    await a_running_pod(world, "a")

    refused = await evict(world, "a", preconditions={"uid": "other"})

    assert refused.code == 409
    conditions = (await world.get(f"{PODS}/a")).json["status"]["conditions"]
    assert [each["type"] for each in conditions] == ["Ready"]
