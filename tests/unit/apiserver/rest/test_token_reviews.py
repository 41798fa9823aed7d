"""Reviews return what the authorizer would decide, are never stored, and are validated."""

from __future__ import annotations

from typing import Any

import pytest

from bramley.apiserver.auth.authorizer import Decision
from tests.unit.apiserver.world import World

AUTHZ = "/apis/authorization.k8s.io/v1"
SUBJECT = f"{AUTHZ}/subjectaccessreviews"
SELF = f"{AUTHZ}/selfsubjectaccessreviews"
RULES = f"{AUTHZ}/selfsubjectrulesreviews"
LOCAL = f"{AUTHZ}/namespaces/t/localsubjectaccessreviews"
PODS = {"verb": "get", "resource": "pods", "namespace": "t"}


async def test_review_is_not_stored(world: World) -> None:
    before = world.store.revision

    body = {"spec": {"user": "system:kube-scheduler", "resourceAttributes": PODS}}
    reply = await world.request("POST", SUBJECT, body)

    assert (reply.code, reply.json["status"]["allowed"]) == (201, True)
    assert reply.json["status"]["reason"].startswith("RBAC: allowed by ClusterRoleBinding")
    assert world.store.revision == before


async def test_explicit_denial_is_reported(world: World) -> None:
    no = Decision(allowed=False, reason="never", denied=True)
    world.app.api._server.authorizer.delegates.append(lambda _attributes: no)

    body = {"spec": {"user": "bob", "resourceAttributes": PODS}}
    found = (await world.request("POST", SUBJECT, body)).json["status"]

    assert found == {"allowed": False, "denied": True, "reason": "never"}


@pytest.mark.parametrize(
    ("path", "meta", "detail"),
    [
        (SUBJECT, {"name": "a"}, "must be empty"),
        (SELF, {"labels": {"a": "b"}}, "must be empty"),
        (LOCAL, {"name": "a"}, "must be empty except for namespace"),
    ],
)
async def test_a_review_has_no_name(
    world: World, path: str, meta: dict[str, Any], detail: str
) -> None:
    body = {"metadata": meta, "spec": {"user": "bob", "resourceAttributes": PODS}}
    reply = await world.request("POST", path, body)

    assert reply.code == 422
    assert reply.message.endswith(detail)


async def test_self_rules_review_includes_the_rules_of_the_namespace(world: World) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/t"
    own = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}
    await world.create(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": [own]})
    subject = {"kind": "User", "name": "bob"}
    reference = {"kind": "Role", "name": "r"}
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [subject, subject]}
    await world.create(f"{rbac}/rolebindings", binding)

    here = await world.request("POST", RULES, {"spec": {"namespace": "t"}}, acting="bob")
    there = await world.request("POST", RULES, {"spec": {"namespace": "other"}}, acting="bob")

    found = here.json["status"]
    assert found["resourceRules"].count(own) == 1
    assert own not in there.json["status"]["resourceRules"]
    assert any("/api/*" in rule["nonResourceURLs"] for rule in found["nonResourceRules"])
    assert found["incomplete"] is False
    assert "evaluationError" not in found


async def test_missing_roles_are_reported(world: World) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    reference = {"kind": "ClusterRole", "name": "gone"}
    binding = {
        "metadata": {"name": "b"},
        "roleRef": reference,
        "subjects": [{"kind": "User", "name": "bob"}],
    }
    await world.create(path, binding)

    reply = await world.request("POST", RULES, {"spec": {"namespace": "t"}}, acting="bob")

    expected = 'clusterrole.rbac.authorization.k8s.io "gone" not found'
    assert reply.json["status"]["evaluationError"] == expected


async def test_review_of_another_user_needs_permission(world: World) -> None:
    body = {"spec": {"user": "eve", "resourceAttributes": PODS}}

    assert (await world.request("POST", SUBJECT, body, acting="bob")).code == 403
    assert (
        await world.request(
            "POST", SELF, body | {"spec": {"resourceAttributes": PODS}}, acting="bob"
        )
    ).code == 201
