"""Every cluster has the roles of a real one from its start, and missing permissions are restored."""

from __future__ import annotations

import uuid

import pytest

from bramley.apiserver.auth import bootstrap
from tests.unit.apiserver.rest.test_escalation import CLUSTER_BINDINGS, CLUSTER_ROLES, RBAC
from tests.unit.apiserver.world import World, a_world

ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
BASIC = f"{CLUSTER_ROLES}/system:basic-user"


async def bootstrap_again(world: World) -> int:
    """Do what the next start does, and return how many writes that took."""
    before = world.store.revision
    await bootstrap.ensure(world.store, world.app.api._server.clock, uuid.uuid4)
    return world.store.revision - before


async def may(world: World, user: str, verb: str, resource: str, group: str = "") -> bool:
    attributes = {"verb": verb, "resource": resource, "group": group, "namespace": "t"}
    if "/" in resource:
        attributes["resource"], attributes["subresource"] = resource.split("/")
    reply = await world.request(
        "POST", ACCESS, {"spec": {"user": user, "resourceAttributes": attributes}}
    )
    return bool(reply.json["status"]["allowed"])


async def test_all_built_in_roles_exist(world: World) -> None:
    roles = (await world.get(CLUSTER_ROLES)).json["items"]
    names = {each["metadata"]["name"] for each in roles}

    assert {"cluster-admin", "admin", "edit", "view", "system:node", "system:discovery"} <= names
    assert all(each["metadata"]["uid"] and each["metadata"]["creationTimestamp"] for each in roles)
    assert len({each["metadata"]["uid"] for each in roles}) == len(roles)
    inside = (await world.get(f"{RBAC}/namespaces/kube-system/roles")).names
    assert "extension-apiserver-authentication-reader" in inside


async def test_created_roles_can_be_listed_by_label_and_read(world: World) -> None:
    label = "kubernetes.io/bootstrapping=rbac-defaults"
    selected = (await world.get(f"{CLUSTER_ROLES}?labelSelector={label}")).names
    one = (await world.get(BASIC)).json

    assert "system:basic-user" in selected
    assert list(one)[:3] == ["kind", "apiVersion", "metadata"]
    assert one["metadata"]["annotations"][bootstrap.AUTOUPDATE] == "true"


@pytest.mark.parametrize(
    ("user", "verb", "resource", "group", "allowed"),
    [
        ("system:kube-scheduler", "create", "pods/binding", "", True),
        ("system:kube-scheduler", "delete", "nodes", "", False),
        ("system:kube-controller-manager", "create", "pods", "", True),
        ("system:kube-controller-manager", "create", "pods/binding", "", True),
        ("system:kube-controller-manager", "create", "nodes", "", False),
        ("system:kube-controller-manager", "update", "nodes/status", "", True),
        ("system:kube-controller-manager", "delete", "events", "", True),
        ("system:kube-controller-manager", "update", "deployments/status", "apps", True),
        (
            "system:kube-controller-manager",
            "escalate",
            "clusterroles",
            "rbac.authorization.k8s.io",
            True,
        ),
        ("bob", "get", "pods", "", False),
    ],
)
async def test_built_in_controllers_are_authorized(
    user: str, verb: str, resource: str, group: str, allowed: bool
) -> None:
    async with a_world() as world:
        assert await may(world, user, verb, resource, group) is allowed


async def test_a_second_start_writes_nothing(world: World) -> None:
    assert await bootstrap_again(world) == 0


async def test_removed_rules_are_restored_and_added_ones_stay(world: World) -> None:
    whole = (await world.get(BASIC)).json
    own = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    await world.merge(BASIC, {"rules": [whole["rules"][0], own]})

    writes = await bootstrap_again(world)

    rules = (await world.get(BASIC)).json["rules"]
    assert writes == 1
    assert own in rules
    assert {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["selfsubjectreviews"],
        "verbs": ["create"],
    } in rules


async def test_removed_subjects_are_restored_and_added_ones_stay(world: World) -> None:
    path = f"{CLUSTER_BINDINGS}/system:discovery"
    eve = {"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}
    await world.merge(path, {"subjects": [eve]})

    await bootstrap_again(world)

    names = [each["name"] for each in (await world.get(path)).json["subjects"]]
    assert names == ["eve", "system:authenticated"]


async def test_deleted_objects_are_created_again(world: World) -> None:
    await world.delete(BASIC)

    assert await bootstrap_again(world) == 1
    assert (await world.get(BASIC)).code == 200


async def test_objects_without_autoupdate_are_left_alone(world: World) -> None:
    body = {"metadata": {"annotations": {bootstrap.AUTOUPDATE: "false"}}, "rules": []}
    await world.merge(BASIC, body)

    assert await bootstrap_again(world) == 0
    assert not (await world.get(BASIC)).json["rules"]


async def test_rules_of_an_aggregated_role_are_not_restored(world: World) -> None:
    await world.merge(f"{CLUSTER_ROLES}/view", {"rules": []})

    assert await bootstrap_again(world) == 0
