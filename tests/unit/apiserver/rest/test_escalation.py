"""Users can grant only permissions that they have, and impersonate only with the right to."""

from __future__ import annotations

from typing import Any

import pytest

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.kinds import builtin_kinds
from bramley.apiserver.registry import crds
from tests.unit.apiserver import damaged
from tests.unit.apiserver.world import (
    CONFIG_MAPS,
    CRDS,
    PODS,
    World,
    a_config_map,
    a_world,
    widget_crd,
)

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/t/roles"
BINDINGS = f"{RBAC}/namespaces/t/rolebindings"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
CLUSTER_BINDINGS = f"{RBAC}/clusterrolebindings"
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

Json = dict[str, Any]
ON_ROLES = ["get", "create", "update", "patch", "delete"]
GIVE = {
    "apiGroups": ["rbac.authorization.k8s.io"],
    "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
    "verbs": ON_ROLES,
}
PODS_RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
SECRETS_RULE = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}


def role(name: str, *rules: Json, **more: Any) -> Json:
    return {"metadata": {"name": name}, "rules": list(rules), **more}


def binding(name: str, role_name: str, user: str, kind: str = "ClusterRole") -> Json:
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": kind, "name": role_name, "apiGroup": "rbac.authorization.k8s.io"}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}


async def give(world: World, user: str, *rules: Json) -> None:
    """Give a user rules everywhere."""
    await world.create(CLUSTER_ROLES, role(f"of-{user}", *rules))
    await world.create(CLUSTER_BINDINGS, binding(f"of-{user}", f"of-{user}", user))


async def test_new_role_grants_no_more_than_its_author_has(world: World) -> None:
    await give(world, "dora", GIVE, PODS_RULE)

    small = await world.request("POST", ROLES, role("small", PODS_RULE), acting="dora")
    big = await world.request("POST", ROLES, role("big", PODS_RULE, SECRETS_RULE), acting="dora")

    assert (small.code, big.code) == (201, 403)
    assert big.message == (
        'roles.rbac.authorization.k8s.io "big" is forbidden: user "dora" (groups=["system:authenticated"]) '
        "is attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    assert (await world.get(f"{ROLES}/big")).code == 404


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_updated_role_grants_no_more_than_its_author_has(world: World, method: str) -> None:
    await give(world, "dora", GIVE, PODS_RULE)
    await world.create(ROLES, role("r", PODS_RULE))

    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    grown = role("r", PODS_RULE, SECRETS_RULE)
    reply = await world.request(method, f"{ROLES}/r", grown, content_type=kind, acting="dora")

    assert reply.code == 403
    assert (await world.get(f"{ROLES}/r")).json["rules"] == [PODS_RULE]


async def test_role_beyond_ones_rights_can_be_deleted_but_not_labelled(world: World) -> None:
    await give(world, "dora", GIVE)
    await world.create(ROLES, role("r", SECRETS_RULE))
    merge = "application/merge-patch+json"

    codes = []
    finalizers: list[Json] = [{"finalizers": ["example.com/x"]}, {"finalizers": []}]
    for meta in (*finalizers, {"labels": {"a": "b"}}):
        body = {"metadata": meta}
        reply = await world.request("PATCH", f"{ROLES}/r", body, content_type=merge, acting="dora")
        codes.append(reply.code)
    codes.append((await world.request("DELETE", f"{ROLES}/r", acting="dora")).code)

    assert codes == [200, 200, 403, 200]


async def test_escalate_permission_disables_the_check(world: World) -> None:
    escalate = {**GIVE, "verbs": [*ON_ROLES, "escalate"]}
    await give(world, "dora", escalate)

    reply = await world.request("POST", ROLES, role("big", SECRETS_RULE), acting="dora")

    assert reply.code == 201


@pytest.mark.parametrize(
    ("place", "name", "kind"),
    [
        (BINDINGS, "r", "Role"),
        (BINDINGS, "view", "ClusterRole"),
        (CLUSTER_BINDINGS, "view", "ClusterRole"),
    ],
)
async def test_new_binding_grants_no_more_than_its_author_has(
    world: World, place: str, name: str, kind: str
) -> None:
    await give(world, "dora", GIVE)
    await world.create(ROLES, role("r", SECRETS_RULE))

    given = await world.request("POST", place, binding("b", name, "erin", kind), acting="dora")

    assert given.code == 403
    assert "is attempting to grant RBAC permissions not currently held" in given.message
    assert (await world.get(f"{place}/b")).code == 404


async def test_updated_binding_grants_no_more_than_its_author_has(world: World) -> None:
    await give(world, "dora", GIVE)
    await world.create(ROLES, role("r", SECRETS_RULE))
    await world.create(BINDINGS, binding("b", "r", "erin", "Role"))

    more = binding("b", "r", "dora", "Role")
    reply = await world.request("PUT", f"{BINDINGS}/b", more, acting="dora")

    assert reply.code == 403


async def test_bind_permission_applies_to_the_named_role_only(world: World) -> None:
    bind = {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"],
        "resourceNames": ["view"],
        "verbs": ["bind"],
    }
    await give(world, "dora", GIVE, bind)

    codes = [
        (await world.request("POST", BINDINGS, binding(name, name, "erin"), acting="dora")).code
        for name in ("view", "edit")
    ]

    assert codes == [201, 403]


async def test_only_full_permissions_may_aggregate(world: World) -> None:
    await give(world, "dora", GIVE)
    selector = {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}
    whole = role("all", aggregationRule=selector)

    refused = await world.request("POST", CLUSTER_ROLES, whole, acting="dora")
    allowed = await world.request(
        "POST", CLUSTER_ROLES, whole, acting="root", groups=("system:masters",)
    )

    assert refused.message.endswith("must have cluster-admin privileges to use the aggregationRule")
    assert (refused.code, allowed.code) == (403, 201)


async def test_update_that_creates_needs_permission_to_create(world: World) -> None:
    update = {**GIVE, "verbs": ["update"]}
    await give(world, "dora", update)

    reply = await world.request("PUT", f"{ROLES}/new", role("new"), acting="dora")

    assert (reply.code, "cannot create resource" in reply.message) == (403, True)
    assert (await world.get(f"{ROLES}/new")).code == 404


async def test_role_grants_exactly_its_rules_over_http(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))
    one = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": ["a"],
        "verbs": ["get", "list", "watch"],
    }
    await give(world, "dora", one)

    async def code(path: str, method: str = "GET") -> int:
        return (await world.request(method, path, acting="dora")).code

    assert await code(f"{CONFIG_MAPS}/a") == 200
    assert await code(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Da") == 200
    assert await code(CONFIG_MAPS) == 403
    assert await code(f"{CONFIG_MAPS}/b") == 403
    assert await code(f"{CONFIG_MAPS}/a", "DELETE") == 403
    assert await code(PODS) == 403


async def test_deprecated_watch_paths_accept_no_writes(world: World) -> None:
    watch = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}
    await give(world, "dora", watch)
    path = CONFIG_MAPS.replace("/v1/", "/v1/watch/")

    codes = [
        (await world.request(method, f"{path}{rest}", a_config_map("x"), acting="dora")).code
        for method, rest in (("POST", ""), ("DELETE", ""), ("PUT", "/x"), ("DELETE", "/x"))
    ]

    assert codes == [405, 405, 405, 405]
    assert (await world.get(CONFIG_MAPS)).names == []


@pytest.mark.parametrize(
    ("headers", "right"),
    [
        ((("impersonate-user", "eve"),), {"resources": ["users"], "resourceNames": ["eve"]}),
        (
            (("impersonate-user", "eve"), ("impersonate-group", "team")),
            {"resources": ["users", "groups"], "resourceNames": ["eve", "team"]},
        ),
        (
            (("impersonate-user", "system:serviceaccount:t:robot"),),
            {"resources": ["serviceaccounts"], "resourceNames": ["robot"]},
        ),
        (
            (
                ("impersonate-user", "eve"),
                ("impersonate-uid", "1"),
                ("impersonate-extra-scopes%2fx", "a"),
            ),
            {
                "apiGroups": ["", "authentication.k8s.io"],
                "resources": ["users", "uids", "userextras/scopes/x"],
            },
        ),
    ],
)
async def test_impersonation_needs_a_permission_for_every_header(
    world: World, headers: tuple[tuple[str, str], ...], right: Json
) -> None:
    world.users["dora-token"] = "dora"
    refused = await world.request("POST", SELF, {}, token="dora-token", headers=headers)
    await give(world, "dora", {"apiGroups": [""], "verbs": ["impersonate"], **right})

    allowed = await world.request("POST", SELF, {}, token="dora-token", headers=headers)

    assert (refused.code, "cannot impersonate resource" in refused.message) == (403, True)
    assert allowed.json["status"]["userInfo"]["username"] == headers[0][1]


async def test_missing_permission_for_one_impersonation_header_refuses_the_request(
    world: World,
) -> None:
    world.users["dora-token"] = "dora"
    await give(world, "dora", {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]})
    headers = (("impersonate-user", "eve"), ("impersonate-group", "system:masters"))

    reply = await world.request("POST", SELF, {}, token="dora-token", headers=headers)

    assert (reply.code, '"groups"' in reply.message) == (403, True)


@pytest.mark.parametrize("header", ["impersonate-group", "impersonate-uid", "impersonate-extra-a"])
async def test_groups_without_a_user_are_refused(world: World, header: str) -> None:
    reply = await world.request("POST", SELF, {}, headers=((header, "x"),))

    assert reply.code == 500


async def test_impersonated_user_is_authorized_instead_of_the_sender(world: World) -> None:
    found = (await world.request("POST", SELF, {}, acting="bob", groups=("a", "b"))).json["status"]

    assert found["userInfo"] == {"username": "bob", "groups": ["a", "b", "system:authenticated"]}
    assert (await world.request("GET", CONFIG_MAPS, acting="bob", groups=("a",))).code == 403


def a_twin(plural: str, kind: str, version: str) -> Json:
    """Return a definition of a kind that the server has built in."""
    whole = widget_crd()
    group = GIVE["apiGroups"][0]
    whole["metadata"]["name"] = f"{plural}.{group}"
    called = {"plural": plural, "singular": kind.lower(), "kind": kind}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": free}
    served = {"name": version, "served": True, "storage": True, "schema": schema}
    whole["spec"] = {"group": group, "scope": "Cluster", "names": called, "versions": [served]}
    return whole


@pytest.mark.parametrize("version", ["v1", "v9"])
async def test_definition_in_another_version_cannot_bypass_rbac_checks(
    world: World, version: str
) -> None:
    twin = a_twin("clusterrolebindings", "ClusterRoleBinding", version)

    refused = await world.request("POST", CRDS, twin)

    assert refused.code == 422
    assert "built in" in refused.message
    assert (await world.get(f"{RBAC[:-2]}v9/clusterrolebindings")).code == 404


async def test_stored_definition_of_a_built_in_kind_is_not_served_and_can_be_deleted() -> None:
    twin = a_twin("clusterroles", "ClusterRole", "v9")
    name = twin["metadata"]["name"]
    crds.admit(twin, None)
    async with a_world() as world:
        kind = world.catalog.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        assert kind is not None
        await damaged.put(world.store, kind, name, {"spec": twin["spec"], "status": twin["status"]})
        again = World(world.store, Settings())

        conditions = (await again.get(f"{CRDS}/{name}")).json["status"]["conditions"]
        offered = await again.get(f"{RBAC[:-2]}v9/clusterroles")
        deleted = await again.delete(f"{CRDS}/{name}")
        left = await again.get(f"{RBAC}/clusterroles/cluster-admin")

        assert {each["type"]: each["status"] for each in conditions} == {
            "NamesAccepted": "False",
            "Established": "False",
        }
        assert offered.code == 404
        assert deleted.code == 200
        assert (await again.get(f"{CRDS}/{name}")).code == 404
        assert left.code == 200, "its objects were never the definition's"


def test_definition_of_a_built_in_kind_is_refused() -> None:
    catalog = builtin_kinds.catalog()
    group = GIVE["apiGroups"][0]
    before = catalog.find(group, "v1", "clusterroles")
    twin = a_twin("clusterroles", "ClusterRole", "v1")
    crds.admit(twin, None)

    catalog.install(twin)

    assert catalog.find(group, "v1", "clusterroles") is before
