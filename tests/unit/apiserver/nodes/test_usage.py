"""metrics.k8s.io: computed from the reports of agents, each about its own Node and Pods; missing values are left out."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.apiserver.nodes.fake_agents import AT, Agents, bind, place, used
from tests.unit.apiserver.world import World, a_world

NODES = "/apis/metrics.k8s.io/v1beta1/nodes"
PODS = "/apis/metrics.k8s.io/v1beta1/namespaces/t/pods"
ONE, TWO = "https://192.0.2.1:10251", "https://192.0.2.2:10251"


def pod_stats(uid: str, name: str = "p", cores: int | None = 250_000_000) -> dict[str, object]:
    reference = {"name": name, "namespace": "t", "uid": uid}
    return {"podRef": reference, "containers": [{"name": "vm", **used(cores)}]}


async def test_metrics_have_the_form_of_metrics_server() -> None:
    agents = Agents()
    async with a_world(nodes=agents.nodes) as world:
        await place(world, "n", "192.0.2.1", zone="a")
        uid = await bind(world, "p", "n", app="x")
        agents.summaries[ONE] = {"node": used(1_500_000_000), "pods": [pod_stats(uid)]}

        node = (await world.get(f"{NODES}/n")).json
        assert node["usage"] == {"cpu": "1500000000n", "memory": "2Ki"}
        assert (node["timestamp"], node["window"]) == (AT, "10s")
        assert node["metadata"]["labels"] == {"zone": "a"}
        listed = (await world.get(PODS)).json
        assert (listed["kind"], listed["apiVersion"]) == (
            "PodMetricsList",
            "metrics.k8s.io/v1beta1",
        )
        (pod,) = listed["items"]
        usage = {"cpu": "250000000n", "memory": "2Ki"}
        assert pod["containers"] == [{"name": "vm", "usage": usage}]
        assert (await world.get(f"{PODS}?labelSelector=app%3Dx")).names == ["p"]
        assert (await world.get(f"{PODS}?labelSelector=app%3Dy")).names == []
        everywhere = await world.get("/apis/metrics.k8s.io/v1beta1/pods")
        assert everywhere.names == ["p"]


async def test_usage_of_pods_on_other_nodes_is_ignored() -> None:
    agents = Agents()
    async with a_world(nodes=agents.nodes) as world:
        await place(world, "one", "192.0.2.1")
        await place(world, "two", "192.0.2.2")
        mine, theirs = await bind(world, "mine", "one"), await bind(world, "theirs", "two")
        claims = [pod_stats(mine, "mine"), pod_stats(theirs, "theirs"), pod_stats("older", "mine")]
        agents.summaries[ONE] = {"node": used(1), "pods": claims}
        agents.summaries[TWO] = {"node": used(1), "pods": []}

        assert (await world.get(PODS)).names == ["mine"]
        assert (await world.get(f"{PODS}/theirs")).code == 404


async def test_a_node_that_does_not_respond_delays_a_list_briefly() -> None:
    agents = Agents()
    async with a_world(nodes=agents.nodes) as world:
        await place(world, "one", "192.0.2.1")
        await place(world, "two", "192.0.2.2")
        await world.create("/api/v1/nodes", {"metadata": {"name": "without-an-address"}})
        agents.summaries[ONE] = {"node": used(1), "pods": []}
        began = asyncio.get_running_loop().time()

        assert (await world.get(NODES)).names == ["one"]
        assert asyncio.get_running_loop().time() - began <= 5.1
        # It is not queried again at once.
        assert (await world.get(NODES)).names == ["one"]
        assert [url for url, _, _ in agents.requests].count(TWO) == 1


@pytest.mark.parametrize("answer", [b"no json", b"{}", b'{"node":{"cpu":"much"}}'])
async def test_node_with_an_invalid_summary_is_left_out(answer: bytes) -> None:
    agents = Agents(summaries={ONE: answer})
    async with a_world(nodes=agents.nodes) as world:
        await place(world, "one", "192.0.2.1")

        assert (await world.get(NODES)).names == []
        assert (await world.get(f"{NODES}/one")).code == 404


async def test_usage_without_a_rate_is_left_out() -> None:
    agents = Agents()
    async with a_world(nodes=agents.nodes) as world:
        await place(world, "n", "192.0.2.1")
        uid = await bind(world, "p", "n")
        agents.summaries[ONE] = {"node": used(None), "pods": [pod_stats(uid, cores=None)]}

        assert ((await world.get(NODES)).names, (await world.get(PODS)).names) == ([], [])


async def test_summaries_are_cached_and_fetched_once() -> None:
    agents = Agents(summaries={ONE: {"node": used(1), "pods": []}})
    async with a_world(nodes=agents.nodes) as world:
        await place(world, "n", "192.0.2.1")

        await asyncio.gather(*(world.get(NODES) for _ in range(20)))
        assert len(agents.requests) == 1
        await asyncio.sleep(6)
        await world.get(NODES)
        assert len(agents.requests) == 2


async def test_metrics_are_read_only() -> None:
    agents = Agents()
    async with a_world(nodes=agents.nodes) as world:
        body = {"metadata": {"name": "x"}}

        codes = [
            (await world.request(method, path, body)).code
            for method, path in (("POST", NODES), ("PUT", f"{NODES}/x"), ("DELETE", f"{NODES}/x"))
        ]
        assert codes == [405, 405, 405]
        assert (await world.get(f"{NODES}?watch=true")).code == 405


async def test_without_a_kubelet_client_metrics_are_unavailable(world: World) -> None:
    refused = await world.get(NODES)

    assert (refused.code, refused.json["reason"]) == (503, "ServiceUnavailable")
    assert "not connected to nodes" in refused.message


async def test_view_role_includes_pod_metrics() -> None:
    agents = Agents()
    async with a_world(nodes=agents.nodes) as world:
        world.users["their-token"] = "bob"

        assert (await world.request("GET", NODES, token="their-token")).code == 403
        role = {"kind": "ClusterRole", "name": "system:aggregated-metrics-reader"}
        group = "rbac.authorization.k8s.io"
        subject = {"kind": "User", "name": "bob", "apiGroup": group}
        binding = {
            "metadata": {"name": "b"},
            "roleRef": {**role, "apiGroup": group},
            "subjects": [subject],
        }
        await world.create(f"/apis/{group}/v1/clusterrolebindings", binding)
        assert (await world.request("GET", NODES, token="their-token")).code == 200
