"""The node authorizer's view of the store: updated with each commit, built at the first request of an agent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from bramley.access import agent_objects, identity
from bramley.access.authorization import PodFacts
from bramley.api.core import Event, Namespace, Node, Pod, ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.rbac import GROUP, ClusterRoleBinding, RoleRef
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.node_graph import NodeGraph, Pods
from bramley.apiserver.http.request_info import RequestInfo
from bramley.apiserver.store.records import Draft, Key, Record, Removal
from bramley.apiserver.store.store import Store
from bramley.base import errors
from bramley.kube.client import Client
from bramley.kube.transport import Request
from tests import virtual_time
from tests.unit.access.embedded_api import Served, a_node, bind_pod, served

BINDINGS = "clusterrolebindings.rbac.authorization.k8s.io"


async def put(store: Store, key: Key, body: dict[str, Any], **fields: str) -> None:
    data = msgspec.json.encode(body)
    await store.write(key, lambda _current, _rv: Draft(data, fields=fields))


async def put_pod(
    store: Store, name: str, node: str, uses: str = "s", namespace: str = "ns"
) -> None:
    spec: dict[str, Any] = {"nodeName": node, "imagePullSecrets": [{"name": uses}]}
    body = {"metadata": {"uid": f"uid-{name}"}, "spec": spec}
    await put(store, Key("pods", namespace, name), body, **{"spec.nodeName": node})


async def remove_pod(store: Store, name: str) -> None:
    def build(current: Record | None, _rv: int) -> Removal:
        assert current is not None
        return Removal(current.body, fields=current.fields)

    await store.write(Key("pods", "ns", name), build)


def secrets(pods: list[PodFacts]) -> set[str]:
    return {name for pod in pods for name in pod.references.secrets}


async def test_existing_and_new_pods_are_indexed_by_node() -> None:
    async with Store.in_memory() as store:
        await put_pod(store, "early", "mac-1", "a")
        pods = Pods(store)

        await put_pod(store, "late", "mac-1", "b")
        await put_pod(store, "elsewhere", "mac-2", "c")
        await put_pod(store, "nowhere", "", "d")

        assert secrets(pods.bound_to("mac-1", "ns")) == {"a", "b"}
        assert secrets(pods.bound_to("mac-2", "ns")) == {"c"}
        assert pods.bound_to("", "ns") == []
        assert pods.bound_to("mac-1", "other") == []


async def test_references_of_a_deleted_or_changed_pod_are_removed() -> None:
    async with Store.in_memory() as store:
        pods = Pods(store)
        await put_pod(store, "p", "mac-1", "a")
        assert secrets(pods.bound_to("mac-1", "ns")) == {"a"}

        await put_pod(store, "p", "mac-1", "b")
        assert secrets(pods.bound_to("mac-1", "ns")) == {"b"}

        await remove_pod(store, "p")
        assert pods.bound_to("mac-1", "ns") == []
        assert pods.find("ns", "p") is None


async def test_pod_recreated_on_another_node_is_indexed_there_only() -> None:
    async with Store.in_memory() as store:
        pods = Pods(store)
        await put_pod(store, "p", "mac-1", "a")
        await remove_pod(store, "p")
        await put_pod(store, "p", "mac-2", "a")

        assert pods.bound_to("mac-1", "ns") == []
        found = pods.find("ns", "p")
        assert found is not None
        assert found.node == "mac-2"


async def test_index_leaves_no_changes_in_its_subscription() -> None:
    async with Store.in_memory() as store:
        Pods(store)
        for number in range(50):
            await put_pod(store, f"p-{number}", "mac-1")

        (watcher,) = store._caches["pods"].watchers
        assert watcher._buffer == []


async def test_pods_are_indexed_at_the_first_request_of_an_agent() -> None:
    async with Store.in_memory() as store:
        world = NodeGraph(store)
        await put_pod(store, "p", "mac-1")
        assert world._pods is None

        assert world.uses("mac-1", "secrets", "ns", "s")
        assert not world.uses("mac-1", "configmaps", "ns", "s")
        assert world.uses("mac-1", "serviceaccounts", "ns", "default")
        assert not world.uses("mac-1", "nodes", "ns", "s")


def a_binding(**changes: Any) -> dict[str, Any]:
    itself = {"kind": "ServiceAccount", "namespace": "bramley-agents", "name": "tart-kubelet-mac-1"}
    role = {"kind": "ClusterRole", "name": "bramley-agent"}
    return {"roleRef": role, "subjects": [itself], **changes}


FOREIGN = {"kind": "ServiceAccount", "namespace": "default", "name": "tart-kubelet-mac-1"}


@pytest.mark.parametrize(
    ("binding", "enrols"),
    [
        (a_binding(), True),
        (a_binding(roleRef={"kind": "ClusterRole", "name": "view"}), False),
        (a_binding(roleRef={"kind": "Role", "name": "bramley-agent"}), False),
        (a_binding(subjects=None), False),
        (a_binding(subjects=[FOREIGN]), False),
        (a_binding(subjects=[{**FOREIGN, "namespace": "bramley-agents", "kind": "User"}]), False),
    ],
)
async def test_only_the_exact_binding_identifies_an_agent(
    binding: dict[str, Any], enrols: bool
) -> None:
    async with Store.in_memory() as store:
        world = NodeGraph(store)
        key = Key(BINDINGS, "", "bramley-agent-enrolment:mac-1")
        assert not world.is_enrolled("mac-1")

        await put(store, key, binding)

        assert world.is_enrolled("mac-1") == enrols
        assert not world.is_enrolled("mac-2")


async def test_agent_without_its_binding_is_no_agent() -> None:
    async with Store.in_memory() as store:
        world = NodeGraph(store)
        key = Key(BINDINGS, "", "bramley-agent-enrolment:mac-1")
        await put(store, key, a_binding())
        assert world.is_enrolled("mac-1")

        await put(store, key, a_binding(subjects=[]))
        assert not world.is_enrolled("mac-1")

        await put(store, key, a_binding())
        await store.write(key, lambda _current, _rv: Removal(b"{}"))
        assert not world.is_enrolled("mac-1")


async def as_agent(server: Served) -> Client:
    await a_node(server.kube, "mac-1")
    made = await identity.create(server.kube, "mac-1", expires=timedelta(hours=1))
    return Client(server.api.transport(made.token), clock=virtual_time.clock())


async def test_writes_of_an_agent_are_authorized_with_their_body() -> None:
    async with served("ns") as server:
        await bind_pod(server.kube, "p", "mac-1")
        agent = await as_agent(server)
        label = {"metadata": {"labels": {"a": "b"}}}

        with pytest.raises(errors.Forbidden, match=r"agent authorization: .* labels"):
            await agent.merge_patch(Pod, "p", label, namespace="ns")
        with pytest.raises(errors.Forbidden, match="agent authorization"):
            await agent.create(Node(metadata=ObjectMeta(name="mac-2")))
        running = {"status": {"phase": "Running"}}
        done = await agent.merge_patch(Pod, "p", running, namespace="ns", subresource="status")
        assert done.status.phase == "Running"


async def test_token_requests_of_an_agent_are_authorized_with_their_body() -> None:
    async with served("ns") as server:
        agent = await as_agent(server)
        foreign = await a_node(server.kube, "mac-2")

        with pytest.raises(errors.Forbidden, match="only to its own node"):
            await agent.request_token(
                "tart-kubelet-mac-1",
                "bramley-agents",
                audiences=(),
                expires=timedelta(hours=1),
                bound_to=foreign,
            )


async def test_agent_is_authorized_by_the_node_authorizer_and_not_by_roles() -> None:
    async with served("ns") as server:
        agent = await as_agent(server)
        await server.kube.create(
            ClusterRoleBinding(
                metadata=ObjectMeta(name="too-much"),
                role_ref=RoleRef(api_group=GROUP, kind="ClusterRole", name="cluster-admin"),
                subjects=[agent_objects.subject("mac-1")],
            )
        )

        with pytest.raises(errors.Forbidden, match=r"agent authorization: "):
            await agent.list(Namespace)


async def test_other_service_accounts_in_the_namespace_are_authorized_by_roles() -> None:
    async with served() as server:
        await as_agent(server)
        place = ObjectMeta(name="visitor", namespace="bramley-agents")
        await server.kube.create(ServiceAccount(metadata=place))
        issued = await server.kube.request_token(
            "visitor", "bramley-agents", audiences=(), expires=timedelta(hours=1)
        )

        with pytest.raises(errors.Forbidden, match='cannot list resource "namespaces"'):
            await Client(server.api.transport(issued.token)).list(Namespace)


@pytest.mark.parametrize(
    ("path", "selector", "node"),
    [
        ("/api/v1/pods", "spec.nodeName=mac-1", "mac-1"),
        ("/api/v1/namespaces/ns/pods", "metadata.name=p,spec.nodeName==mac-1", "mac-1"),
        ("/api/v1/watch/pods", "spec.nodeName=mac-1", "mac-1"),
        ("/api/v1/pods", "spec.nodeName!=mac-1", ""),
        ("/api/v1/pods", "metadata.name=mac-1", ""),
        ("/api/v1/pods", "spec.nodeName", ""),
        ("/api/v1/pods", "", ""),
        ("/api/v1/secrets", "spec.nodeName=mac-1", ""),
    ],
)
def test_the_node_of_a_pod_field_selector_is_recognized(
    path: str, selector: str, node: str
) -> None:
    info = RequestInfo.parse("GET", path, {"fieldSelector": selector})

    assert Attributes.of(User("u"), info).selected_node == node


async def test_agent_watches_its_own_pods_only() -> None:
    async with served("ns") as server:
        await bind_pod(server.kube, "mine", "mac-1")
        await bind_pod(server.kube, "theirs", "mac-2")
        agent = await as_agent(server)

        listed = await agent.list(Pod, fields={"spec.nodeName": "mac-1"})

        assert [pod.name for pod in listed.items] == ["mine"]
        for selector in (None, {"spec.nodeName": "mac-2"}, "spec.nodeName!=mac-1"):
            with pytest.raises(errors.Forbidden):
                await agent.list(Pod, fields=selector)


@pytest.mark.parametrize("query", [{}, {"dryRun": "All"}])
async def test_empty_patch_of_an_agent_reveals_nothing(query: dict[str, str]) -> None:
    async with served("ns") as server:
        kube = server.kube
        for node in ("mac-1", "mac-2"):
            await a_node(kube, node)
        await bind_pod(kube, "theirs", "mac-2")
        about = {"kind": "Pod", "namespace": "ns", "name": "theirs"}
        event = {"metadata": {"name": "e"}, "involvedObject": about, "message": "in confidence"}
        await kube.create_wire(Event.resource, event, namespace="ns")
        token = (await identity.create(kube, "mac-1", expires=timedelta(hours=1))).token

        answer = await server.api.transport(token).send(
            Request(
                "PATCH",
                "/api/v1/namespaces/ns/events/e",
                query,
                b"{}",
                "application/merge-patch+json",
            )
        )

        assert answer.status == 403
        assert b"confidence" not in answer.body
