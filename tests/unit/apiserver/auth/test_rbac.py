"""Roles count from the moment they are stored until the moment they are gone, where they are bound and nowhere else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bramley.apiserver.apimachinery import users
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.authorizer import Authorizer, Decision
from bramley.apiserver.auth.rbac import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES, Rbac
from bramley.apiserver.store.records import Draft, Key, Record, Removal
from bramley.apiserver.store.store import Store
from tests import virtual_time

Json = dict[str, Any]

READ_PODS = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]


async def put(store: Store, key: Key, **fields: Any) -> None:
    kinds = {ROLES: "Role", CLUSTER_ROLES: "ClusterRole", BINDINGS: "RoleBinding"}
    meta = {"name": key.name, **({"namespace": key.namespace} if key.namespace else {})}
    kind = kinds.get(key.resource, "ClusterRoleBinding")

    def build(_current: Record | None, _rv: int) -> Draft:
        return Draft(msgspec.json.encode({"kind": kind, "metadata": meta, **fields}))

    await store.write(key, build)


async def remove(store: Store, key: Key) -> None:
    await store.write(key, lambda _current, _rv: Removal(b"{}"))


def bound(role: str, *subjects: Json, kind: str = "ClusterRole") -> Json:
    return {"roleRef": {"kind": kind, "name": role}, "subjects": list(subjects)}


def reads_pods(user: User, namespace: str = "") -> Attributes:
    return Attributes(user, "get", resource="pods", namespace=namespace)


BOB = User("bob", ("team",))
SUBJECTS = [
    ({"kind": "User", "name": "bob"}, BOB, True),
    ({"kind": "Group", "name": "team"}, BOB, True),
    ({"kind": "User", "name": "team"}, BOB, False),
    ({"kind": "Group", "name": "bob"}, BOB, False),
    (
        {"kind": "ServiceAccount", "name": "robot", "namespace": "n"},
        User("system:serviceaccount:n:robot"),
        True,
    ),
    (
        {"kind": "ServiceAccount", "name": "robot", "namespace": "n"},
        User("system:serviceaccount:m:robot"),
        False,
    ),
    ({"kind": "ServiceAccount", "name": "robot", "namespace": "n"}, User("robot"), False),
]


@pytest.mark.parametrize(("subject", "user", "allowed"), SUBJECTS)
async def test_role_applies_to_its_subjects(subject: Json, user: User, allowed: bool) -> None:
    async with Store.in_memory(clock=virtual_time.clock()) as store:
        await put(store, Key(CLUSTER_ROLES, "", "reader"), rules=READ_PODS)
        await put(store, Key(CLUSTER_BINDINGS, "", "b"), **bound("reader", subject))

        assert (Rbac(store).allows(reads_pods(user)) is not None) is allowed


async def test_role_binding_applies_in_its_namespace_only() -> None:
    async with Store.in_memory(clock=virtual_time.clock()) as store:
        await put(store, Key(CLUSTER_ROLES, "", "reader"), rules=READ_PODS)
        subject = {"kind": "ServiceAccount", "name": "robot"}
        await put(store, Key(BINDINGS, "n", "b"), **bound("reader", subject))
        rbac, robot = Rbac(store), User("system:serviceaccount:n:robot")

        found = [bool(rbac.allows(reads_pods(robot, where))) for where in ("n", "m", "")]

        assert found == [True, False, False]


async def test_role_of_another_namespace_is_not_bound() -> None:
    async with Store.in_memory(clock=virtual_time.clock()) as store:
        await put(store, Key(ROLES, "m", "reader"), rules=READ_PODS)
        subject = {"kind": "User", "name": "bob"}
        await put(store, Key(BINDINGS, "n", "b"), **bound("reader", subject, kind="Role"))

        assert Rbac(store).allows(reads_pods(BOB, "n")) is None


async def test_changes_take_effect_at_once() -> None:
    async with Store.in_memory(clock=virtual_time.clock()) as store:
        rbac = Rbac(store)
        role, binding = Key(CLUSTER_ROLES, "", "reader"), Key(CLUSTER_BINDINGS, "", "b")
        found = []

        async def then(change: Any) -> None:
            await change
            found.append(rbac.allows(reads_pods(BOB)) is not None)

        await then(put(store, binding, **bound("reader", {"kind": "User", "name": "bob"})))
        await then(put(store, role, rules=READ_PODS))
        await then(put(store, role, rules=[]))
        await then(put(store, role, rules=READ_PODS))
        await then(put(store, binding, **bound("reader", {"kind": "User", "name": "eve"})))
        await then(put(store, binding, **bound("reader", {"kind": "Group", "name": "team"})))
        await then(remove(store, binding))
        await then(put(store, binding, **bound("reader", {"kind": "User", "name": "bob"})))
        await then(remove(store, role))

        assert found == [False, True, False, True, False, True, False, True, False]


async def decided(store: Store, user: User, attributes: Attributes | None = None) -> Decision:
    return Authorizer(Rbac(store)).decide(attributes or reads_pods(user, "n"))


async def test_decision_names_the_binding() -> None:
    async with Store.in_memory(clock=virtual_time.clock()) as store:
        await put(store, Key(ROLES, "n", "reader"), rules=READ_PODS)
        subject = {"kind": "ServiceAccount", "name": "robot"}
        await put(store, Key(BINDINGS, "n", "b"), **bound("reader", subject, kind="Role"))

        verdict = await decided(store, User("system:serviceaccount:n:robot"))

        expected = 'RBAC: allowed by RoleBinding "b/n" of Role "reader" to ServiceAccount "robot/n"'
        assert verdict == Decision(allowed=True, reason=expected)


async def test_bound_roles_that_do_not_exist_are_reported() -> None:
    async with Store.in_memory(clock=virtual_time.clock()) as store:
        for name in ("a", "b"):
            subject = {"kind": "User", "name": "bob"}
            await put(store, Key(CLUSTER_BINDINGS, "", name), **bound(f"gone-{name}", subject))

        verdict = await decided(store, BOB)

        kind = "clusterrole.rbac.authorization.k8s.io"
        reason = f'RBAC: [{kind} "gone-a" not found, {kind} "gone-b" not found]'
        assert verdict == Decision(allowed=False, reason=reason)


async def test_anonymous_users_get_no_rights_by_any_binding() -> None:
    async with Store.in_memory(clock=virtual_time.clock()) as store:
        everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        await put(store, Key(CLUSTER_ROLES, "", "all"), rules=everything)
        subjects = [
            {"kind": "Group", "name": users.UNAUTHENTICATED},
            {"kind": "User", "name": users.ANONYMOUS_NAME},
        ]
        await put(store, Key(CLUSTER_BINDINGS, "", "b"), **bound("all", *subjects))

        verdicts = [
            (await decided(store, user)).allowed
            for user in (
                users.ANONYMOUS,
                User("x", (users.UNAUTHENTICATED,)),
                User("system:anonymous"),
            )
        ]

        assert verdicts == [False, False, False]


@pytest.mark.parametrize(
    ("verb", "path", "allowed"),
    [
        ("get", "/healthz", True),
        ("get", "/readyz/store", True),
        ("head", "/livez", True),
        ("get", "/version/", True),
        ("get", "/version/x", False),
        ("post", "/healthz", False),
        ("get", "/healthzz", False),
        ("get", "/api", False),
        ("get", "x", False),
    ],
)
async def test_health_is_readable_without_authentication(
    verb: str, path: str, allowed: bool
) -> None:
    async with Store.in_memory(clock=virtual_time.clock()) as store:
        for user in (users.ANONYMOUS, BOB):
            verdict = await decided(store, user, Attributes(user, verb, path=path))
            assert verdict.allowed is allowed


async def test_masters_are_authorized_without_a_role() -> None:
    async with Store.in_memory(clock=virtual_time.clock()) as store:
        assert (await decided(store, User("root", (users.MASTERS,)))).allowed


async def test_additional_authorizer_runs_first_and_may_have_no_opinion() -> None:
    async with Store.in_memory(clock=virtual_time.clock()) as store:
        await put(store, Key(CLUSTER_ROLES, "", "reader"), rules=READ_PODS)
        await put(
            store,
            Key(CLUSTER_BINDINGS, "", "b"),
            **bound("reader", {"kind": "Group", "name": "team"}),
        )
        no = Decision(allowed=False, reason="not you", denied=True)
        authorizer = Authorizer(
            Rbac(store), [lambda attributes: no if attributes.user.name == "eve" else None]
        )

        assert authorizer.decide(reads_pods(User("eve", ("team",)))) == no
        assert authorizer.decide(reads_pods(BOB)).allowed
