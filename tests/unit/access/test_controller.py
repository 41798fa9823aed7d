from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from bramley.access import agent_objects, controller, identity
from bramley.access.controller import RoleReconciler
from bramley.access.pod_references import BoundPod
from bramley.api.core import Pod, ServiceAccount
from bramley.api.meta import K, ObjectMeta
from bramley.api.names import access
from bramley.api.rbac import ClusterRole, Role, RoleBinding
from bramley.base import errors
from bramley.kube.client import Client
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.outcome import Settled
from bramley.runtime.writes import FencedKube
from tests import virtual_time
from tests.unit.access.embedded_api import Served, bind_pod, served

HOUR = timedelta(hours=1)
NAME = access.role("mac-1")


@asynccontextmanager
async def kept(*namespaces: str) -> AsyncIterator[Served]:
    """Serve with an agent of mac-1 and a running controller."""
    async with served(*namespaces) as server:
        await identity.create(server.kube, "mac-1", expires=HOUR)
        manager = Manager(
            server.kube,
            clock=virtual_time.clock(),
            rng=random.Random(1),
            registry=CollectorRegistry(),
            settings=ManagerSettings(tune_gc=False),
        )
        controller.add(manager)
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run())
            await manager.ready.wait()
            yield server
            manager.stop()


async def granted(kube: Client, namespace: str, name: str = NAME) -> dict[str, list[str]]:
    """Return the names by resource that an agent's Role in a namespace holds, nothing if there is no such Role."""
    roles = (await kube.list(Role, namespace=namespace)).items
    bindings = (await kube.list(RoleBinding, namespace=namespace)).items
    assert [one.name for one in roles] == [one.name for one in bindings]
    return {
        rule.resources[0]: rule.resource_names
        for role in roles
        if role.name == name
        for rule in role.rules or ()
    }


async def test_agent_may_read_what_its_current_pods_refer_to() -> None:
    async with kept("ns") as server:
        env = [{"name": "vm", "image": "vm", "envFrom": [{"configMapRef": {"name": "c"}}]}]
        await bind_pod(server.kube, "p", "mac-1", imagePullSecrets=[{"name": "s"}], containers=env)
        await asyncio.sleep(1)
        one = {
            "pods": ["p"],
            "secrets": ["s"],
            "configmaps": ["c"],
            "serviceaccounts/token": ["default"],
        }
        assert await granted(server.kube, "ns") == one

        await bind_pod(server.kube, "q", "mac-1", imagePullSecrets=[{"name": "t"}])
        await asyncio.sleep(1)
        both = {**one, "pods": ["p", "q"], "secrets": ["s", "t"]}
        assert await granted(server.kube, "ns") == both

        await server.kube.delete(Pod, "p", namespace="ns", grace=timedelta())
        await asyncio.sleep(1)
        left = {"pods": ["q"], "secrets": ["t"], "serviceaccounts/token": ["default"]}
        assert await granted(server.kube, "ns") == left

        await server.kube.delete(Pod, "q", namespace="ns", grace=timedelta())
        await asyncio.sleep(1)
        assert await granted(server.kube, "ns") == {}


async def test_namespaces_of_lease_and_identity_stay_without_pods() -> None:
    async with kept() as server:
        await asyncio.sleep(1)

        assert await granted(server.kube, "bramley-agents") == {
            "serviceaccounts/token": ["tart-kubelet-mac-1"]
        }
        assert "leases" in await granted(server.kube, "kube-node-lease")


async def test_pods_of_a_node_without_an_agent_make_no_roles() -> None:
    async with kept("ns") as server:
        await bind_pod(server.kube, "p", "mac-2")
        await asyncio.sleep(1)

        assert await granted(server.kube, "ns") == {}


async def test_changed_or_deleted_role_is_restored() -> None:
    async with kept("ns") as server:
        await bind_pod(server.kube, "p", "mac-1")
        await asyncio.sleep(1)
        expected = await granted(server.kube, "ns")
        wide = {"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}

        await server.kube.merge_patch(Role, NAME, wide, namespace="ns")
        await asyncio.sleep(1)
        assert await granted(server.kube, "ns") == expected

        await server.kube.delete(RoleBinding, NAME, namespace="ns")
        await server.kube.delete(Role, NAME, namespace="ns")
        await asyncio.sleep(2)
        assert await granted(server.kube, "ns") == expected


async def test_revoked_agent_gets_nothing_back() -> None:
    async with kept("ns") as server:
        await bind_pod(server.kube, "p", "mac-1")
        await asyncio.sleep(1)

        await identity.revoke(server.kube, "mac-1")
        await bind_pod(server.kube, "q", "mac-1")
        await asyncio.sleep(5)

        assert await granted(server.kube, "ns") == {}
        assert (await server.kube.list(RoleBinding, labels=agent_objects.LABELS)).items == []


def a_pod(name: str, namespace: str) -> BoundPod:
    return BoundPod(metadata=ObjectMeta(name=name, namespace=namespace), spec={"nodeName": "mac-1"})


def test_surplus_objects_are_deleted_binding_first() -> None:
    owner = ClusterRole(metadata=ObjectMeta(name=NAME, uid="u"))
    place = ObjectMeta(name=NAME, namespace="old")
    role = Role(metadata=place)
    binding = agent_objects.binding(role)

    decision = controller.decide(owner, [a_pod("p", "ns")], current=[role], bindings=[binding])

    assert [one.namespace for one in decision.desired] == [
        "bramley-agents",
        "kube-node-lease",
        "ns",
    ]
    assert decision.surplus == [binding, role]
    assert {one.metadata.owner_references[0].uid for one in decision.desired} == {"u"}


def test_changes_enqueue_the_agent_that_they_concern() -> None:
    key = ("bramley-agents", "tart-kubelet-mac-1")

    assert controller.agent_of_pod(a_pod("p", "ns")) == [key]
    assert controller.agent_of_pod(BoundPod(spec={})) == []
    assert controller.agent_of_role(Role(metadata=ObjectMeta(name=NAME))) == [key]
    assert controller.agent_of_role(ClusterRole(metadata=ObjectMeta(name="bramley-agent"))) == []


@dataclass
class Terminating:
    """A server on which one namespace is terminating and refuses new objects."""

    namespace: str
    created: list[str] = field(default_factory=list)

    async def get(self, _kind: type[K], name: str, *, namespace: str | None = None) -> K:
        raise errors.NotFound(f"{namespace}/{name}")

    async def create(self, obj: K) -> K:
        if obj.namespace == self.namespace:
            raise errors.Forbidden("it is being terminated")
        self.created.append(f"{type(obj).__name__} {obj.namespace}")
        return obj


def a_reconciler(server: Terminating) -> RoleReconciler:
    reconciler = RoleReconciler(
        cast("FencedKube", server),
        pods=Cache(BoundPod),
        owners=Cache(ClusterRole),
        roles=Cache(Role),
        bindings=Cache(RoleBinding),
    )
    reconciler.pods.index("node", lambda pod: [pod.node])
    reconciler.roles.index("name", lambda role: [role.name])
    reconciler.bindings.index("name", lambda binding: [binding.name])
    return reconciler


def an_account(node: str) -> ServiceAccount:
    return ServiceAccount(
        metadata=ObjectMeta(name=f"tart-kubelet-{node}", namespace=access.NAMESPACE)
    )


async def test_account_without_its_cluster_role_is_left_alone() -> None:
    server = Terminating("")

    outcome = await a_reconciler(server).reconcile(an_account("mac-1"))

    assert outcome == Settled()
    assert server.created == []


async def test_terminating_namespace_does_not_delay_the_others() -> None:
    server = Terminating("a-going")
    reconciler = a_reconciler(server)
    reconciler.owners.put(Key("", NAME), ClusterRole(metadata=ObjectMeta(name=NAME, uid="u")))
    for place in ("a-going", "ns"):
        reconciler.pods.put(Key(place, "p"), a_pod("p", place))

    with pytest.raises(errors.Forbidden):
        await reconciler.reconcile(an_account("mac-1"))

    assert "Role ns" in server.created
    assert "RoleBinding ns" in server.created
