"""One object that cannot be read, of whatever kind, does not affect lists, watches, permissions or new objects of others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bramley.apiserver.apimachinery.settings import Settings
from tests.unit.apiserver import damaged
from tests.unit.apiserver.world import (
    CONFIG_MAPS,
    CRDS,
    PODS,
    World,
    a_config_map,
    a_pod,
    a_world,
    widget_crd,
)

Json = dict[str, Any]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/t/serviceaccounts"
SERVICES = "/api/v1/namespaces/t/services"
ON_NODES = {"type": "NodePort", "ports": [{"port": 80}]}
FORMS = (
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
)


async def give_rights(world: World) -> None:
    """Allow the owner of the token `reader` to read."""
    world.users["reader"] = "reader"
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    await world.create(f"{RBAC}/clusterroles", {"metadata": {"name": "reading"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reading"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}
    body = {"metadata": {"name": "reading"}, "roleRef": role, "subjects": [subject]}
    await world.create(f"{RBAC}/clusterrolebindings", body)


def path_of(resource: Any) -> str:
    root = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
    inside = "/namespaces/t" if resource.namespaced else ""
    return f"{root}{inside}/{resource.plural}"


async def test_store_with_unreadable_objects_is_listed_watched_and_printed(world: World) -> None:
    await world.create(CRDS, widget_crd())
    await give_rights(world)
    await damaged.put_all(world.store, world.catalog)

    for resource in damaged.stored_kinds(world.catalog):
        path = path_of(resource)
        expected_count = len(
            world.store.list(resource.stored_name, "t" if resource.namespaced else None)
        )
        for form in FORMS:
            reply = await world.request("GET", path, accept=form, token="reader")
            assert reply.code == 200, (path, form, reply.body)
            assert len(reply.json.get("items", reply.json.get("rows"))) == expected_count
        async with world.watching(
            f"{path}?watch=1&timeoutSeconds=1", accept=FORMS[1], token="reader"
        ) as watcher:
            await watcher.ended.wait()
        assert [each["type"] for each in watcher.events] == ["ADDED"] * expected_count, path


async def test_store_with_unreadable_objects_accepts_new_ones_and_restarts() -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    async with a_world() as world:
        await give_rights(world)
        await damaged.put_all(world.store, world.catalog)
        again = World(world.store, Settings(cluster_admission=True))

        await again.create(CRDS, widget_crd())
        await again.create(ACCOUNTS, {"metadata": {"name": "default"}})
        await again.create(f"{ACCOUNTS}/default/token", {"spec": {}})
        await again.create(SERVICES, {"metadata": {"name": "s"}, "spec": ON_NODES})
        await again.create(PODS, a_pod("p"))
        await again.create(f"{PODS}/p/eviction", eviction)
        await again.create(CONFIG_MAPS, a_config_map("c"))


async def test_unreadable_object_of_any_kind_can_be_deleted(world: World) -> None:
    await world.create(CRDS, widget_crd())
    await damaged.put_all(world.store, world.catalog)
    for resource in damaged.stored_kinds(world.catalog):
        for name in (await world.get(path_of(resource))).names:
            if name.startswith("wrong-"):
                how = "propagationPolicy=Background&gracePeriodSeconds=0"
                reply = await world.delete(f"{path_of(resource)}/{name}?{how}")
                assert reply.code == 200, (resource.plural, name, reply.body)


async def test_each_unreadable_state_of_an_object_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_world() as world:
        kind = world.catalog.find("", "v1", "services")
        assert kind is not None
        for number in range(6):
            if number % 3 == 0:
                await damaged.put(world.store, kind, "wrong", {"spec": 7})
            body = {"metadata": {"name": f"s{number}"}, "spec": ON_NODES}
            await world.create(SERVICES, body)

    messages = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert messages == ["Reading stored object failed"] * 2


async def test_an_unreadable_role_cannot_be_bound() -> None:
    """Its rules may be mended later, and then be more than the giver has."""
    rules = [{"apiGroups": ["*"], "resources": ["rolebindings"], "verbs": ["create"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "wrong"}
    async with a_world() as world:
        await give_rights(world)
        await world.merge(f"{RBAC}/clusterroles/reading", {"rules": rules})
        kind = world.catalog.find("rbac.authorization.k8s.io", "v1", "roles")
        assert kind is not None
        await damaged.put(world.store, kind, "wrong", {"rules": 7})

        body = {"metadata": {"name": "b"}, "roleRef": role}
        place = f"{RBAC}/namespaces/t/rolebindings"
        reply = await world.request("POST", place, body, token="reader")

    assert reply.code == 404, reply.body


async def test_unreadable_built_in_role_is_created_again() -> None:
    async with a_world() as world:
        for kind in ("clusterroles", "clusterrolebindings"):
            resource = world.catalog.find("rbac.authorization.k8s.io", "v1", kind)
            assert resource is not None
            wrong = {"rules": 7, "subjects": 7}
            await damaged.put(world.store, resource, "system:basic-user", wrong)
        again = World(world.store, Settings())

        role = (await again.get(f"{RBAC}/clusterroles/system:basic-user")).json
        binding = (await again.get(f"{RBAC}/clusterrolebindings/system:basic-user")).json

    assert "selfsubjectaccessreviews" in json.dumps(role["rules"])
    assert [each["name"] for each in binding["subjects"]] == ["system:authenticated"]
