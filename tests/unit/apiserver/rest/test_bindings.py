"""Binding Pods to nodes, and what needs a node's agent."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.apiserver.world import PODS, Json, Reply, World, a_pod

GATE = [{"name": "example.com/gate"}]


async def bind(world: World, name: str, node: str, **metadata: object) -> Reply:
    body: Json = {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}
    return await world.request("POST", f"{PODS}/{name}/binding", body)


async def test_pod_is_bound_once_with_a_pod_scheduled_condition(world: World) -> None:
    await world.create(PODS, a_pod("a"))

    answers = await asyncio.gather(bind(world, "a", "n1"), bind(world, "a", "n2"))

    assert sorted(each.code for each in answers) == [201, 409]
    pod = (await world.get(f"{PODS}/a")).json
    assert pod["spec"]["nodeName"] == ("n1" if answers[0].code == 201 else "n2")
    assert pod["metadata"]["generation"] == 1
    scheduled = pod["status"]["conditions"][0]
    assert (scheduled["type"], scheduled["status"]) == ("PodScheduled", "True")
    assert scheduled["lastTransitionTime"]


async def test_binding_adds_annotations_and_clears_the_nomination(world: World) -> None:
    await world.create(PODS, a_pod("a"))
    await world.merge(f"{PODS}/a/status", {"status": {"nominatedNodeName": "n"}})

    await bind(world, "a", "n", annotations={"k": "v"})

    pod = (await world.get(f"{PODS}/a")).json
    assert pod["metadata"]["annotations"] == {"k": "v"}
    assert "nominatedNodeName" not in pod["status"]


async def test_gated_or_recreated_pod_is_not_bound(world: World) -> None:
    await world.create(PODS, a_pod("gated", schedulingGates=GATE))
    await world.create(PODS, a_pod("a"))

    gated, other = await bind(world, "gated", "n"), await bind(world, "a", "n", uid="other")

    assert (gated.code, other.code) == (409, 409)
    assert "nodeName" not in (await world.get(f"{PODS}/a")).json["spec"]


async def test_a_dry_run_binds_nothing(world: World) -> None:
    await world.create(PODS, a_pod("a"))

    body = {"metadata": {"name": "a"}, "target": {"name": "n"}}
    tried = await world.request("POST", f"{PODS}/a/binding?dryRun=All", body)

    assert tried.code == 201
    assert "nodeName" not in (await world.get(f"{PODS}/a")).json["spec"]


async def test_deprecated_bindings_path_works(world: World) -> None:
    await world.create(PODS, a_pod("a"))

    body = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
    bound = await world.request("POST", "/api/v1/namespaces/t/bindings", body)

    assert bound.code == 201
    assert (await world.get(f"{PODS}?fieldSelector=spec.nodeName=n")).names == ["a"]


@pytest.mark.parametrize("part", ["exec", "attach", "portforward"])
async def test_subresource_that_needs_a_node_is_refused_without_one(
    world: World, part: str
) -> None:
    await world.create(PODS, a_pod("a"))

    refused = await world.request("POST", f"{PODS}/a/{part}")

    assert (refused.code, refused.message) == (400, "pod a does not have a host assigned")


async def test_refused_log_names_the_address_of_the_node(world: World) -> None:
    addresses = [{"type": "InternalIP", "address": "192.0.2.7"}]
    node = {"metadata": {"name": "n"}, "status": {"addresses": addresses}}
    await world.create("/api/v1/nodes", node)
    await world.create(PODS, a_pod("a", nodeName="n"))

    refused = await world.get(f"{PODS}/a/log")

    assert refused.code == 500
    assert "https://192.0.2.7:10250/containerLogs/t/a/vm" in refused.message


async def test_proxy_of_a_pod_is_refused(world: World) -> None:
    await world.create(PODS, a_pod("a"))

    assert (await world.get(f"{PODS}/a/proxy/some/path")).code == 503
    assert (await world.get(f"{PODS}/nothing/proxy/x")).code == 404


async def test_node_selector_of_a_gated_pod_may_only_be_narrowed(world: World) -> None:
    await world.create(PODS, a_pod("a", schedulingGates=GATE, nodeSelector={"a": "b"}))

    wider = await world.merge(f"{PODS}/a", {"spec": {"nodeSelector": {"a": None}}})
    narrower = await world.merge(f"{PODS}/a", {"spec": {"nodeSelector": {"c": "d"}}})
    opened = await world.merge(f"{PODS}/a", {"spec": {"schedulingGates": None}})
    late = await world.merge(f"{PODS}/a", {"spec": {"nodeSelector": {"e": "f"}}})

    assert [each.code for each in (wider, narrower, opened, late)] == [422, 200, 200, 422]


async def test_terminated_container_cannot_become_running(world: World) -> None:
    await world.create(PODS, a_pod("a", restartPolicy="Never"))
    ended = {"name": "c", "state": {"terminated": {"exitCode": 0}}}
    await world.merge(f"{PODS}/a/status", {"status": {"containerStatuses": [ended]}})

    again = {"name": "c", "state": {"running": {}}}
    refused = await world.merge(f"{PODS}/a/status", {"status": {"containerStatuses": [again]}})

    assert refused.causes == [("status.containerStatuses[0].state", "FieldValueForbidden")]
