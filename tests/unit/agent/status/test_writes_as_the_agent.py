"""Every kind of write of the agent, with its own token and its own code; the token of another agent is refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bramley.access import identity
from bramley.agent.guest import environment
from bramley.agent.guest.folders import UserData
from bramley.agent.guest.guests import Guests
from bramley.agent.guest.tokens import Tokens
from bramley.agent.metrics import AgentMetrics
from bramley.agent.node.controller import NodeController
from bramley.agent.node.lease import LeaseController
from bramley.agent.node.status import Facts
from bramley.agent.pods import status
from bramley.agent.settings import NodeSettings
from bramley.api import names
from bramley.api.auth import TokenReview, TokenReviewSpec
from bramley.api.coordination import Lease
from bramley.api.core import ConfigMap, Event, Node, Secret, ServiceAccount
from bramley.api.meta import ObjectMeta, Resource
from bramley.api.names import events, finalizers
from bramley.api.pod import Pod
from bramley.base import errors
from bramley.kube.client import Client
from bramley.runtime.events import Recorder
from bramley.runtime.metrics import RuntimeMetrics
from bramley.runtime.writes import FencedKube, ReadYourWrites
from tests import virtual_time
from tests.unit.access.embedded_api import a_node, bind_pod, served

HOUR = timedelta(hours=1)
VM = "ns-build-0123456789ab"
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)


@dataclass(frozen=True)
class World:
    admin: Client
    agent: Client
    # The agent of another Mac.
    stranger: Client

    async def pod(self) -> Pod:
        return await self.agent.get(Pod, "build", namespace="ns")


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    async with served("ns") as server:
        await a_node(server.kube, "mac-b")
        await server.kube.create(ServiceAccount(metadata=ObjectMeta(name="runner", namespace="ns")))
        await server.kube.create(
            Secret(metadata=ObjectMeta(name="s", namespace="ns"), data={"A": b"hidden"})
        )
        await server.kube.create(
            ConfigMap(metadata=ObjectMeta(name="c", namespace="ns"), data={"B": "seen"})
        )
        await bind_pod(server.kube, "build", "mac-a", namespace="ns", **a_spec())
        clients = []
        for node in ("mac-a", "mac-b"):
            made = await identity.create(server.kube, node, expires=HOUR)
            clients.append(Client(server.api.transport(made.token), clock=virtual_time.clock()))
        yield World(server.kube, *clients)


def a_spec() -> dict[str, Any]:
    sources = [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}]
    container = {"name": "vm", "image": "macos", "envFrom": sources}
    return {
        "serviceAccountName": "runner",
        "automountServiceAccountToken": True,
        "containers": [container],
    }


def facts() -> status.Facts:
    return status.Facts(host="10.0.0.7", now=virtual_time.clock().now(), vm=VM)


def rng() -> random.Random:
    return random.Random(1)


def node_controller(kube: Client, node: str) -> NodeController:
    return NodeController(
        NodeSettings(name=node, provider_id="scw-applesilicon://fr-par-1/1"),
        kube,
        facts=Facts,
        clock=virtual_time.clock(),
        rng=rng(),
    )


def fenced(kube: Client) -> FencedKube:
    return FencedKube(kube, writes=ReadYourWrites(), check=lambda: None)


def lease_controller(kube: Client, node: str, uid: str = "") -> LeaseController:
    return LeaseController(node, kube, uid=lambda: uid, clock=virtual_time.clock(), rng=rng())


def guests(kube: Client, root: Path) -> Guests:
    folders = UserData(root)
    tokens = Tokens(
        kube,
        folders,
        clock=virtual_time.clock(),
        rng=rng(),
        metrics=AgentMetrics(CollectorRegistry()),
    )
    return Guests(kube, folders, tokens, node_facts=environment.NodeFacts(node="mac-a"))


async def record_events(kube: Client, about: Pod | Node, times: int) -> None:
    recorder = Recorder(
        kube,
        events.AGENT_COMPONENT,
        clock=virtual_time.clock(),
        rng=rng(),
        metrics=RuntimeMetrics(CollectorRegistry()),
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        for _ in range(times):
            recorder.event(about, events.CREATING_VM, "creating")
            await recorder.flush(timedelta(seconds=5))
        task.cancel()


@pytest.fixture
def world() -> AbstractAsyncContextManager[World]:
    return a_world()


async def test_node_is_registered_repaired_and_updated(world: World) -> None:
    await node_controller(world.agent, "mac-a").sync()
    await world.admin.merge_patch(Node, "mac-a", {"metadata": {"labels": {"tuist.dev/x": "1"}}})
    await node_controller(world.agent, "mac-a").sync()
    staged = {"metadata": {"annotations": {names.annotations.STAGED_IMAGES: "{}"}}}
    node = await world.agent.merge_patch(Node, "mac-a", staged)

    assert "tuist.dev/x" not in node.metadata.labels
    assert node.status.conditions


async def test_lease_is_created_and_renewed(world: World) -> None:
    node = await a_node(world.admin, "mac-a")
    lease = lease_controller(world.agent, "mac-a", node.uid)
    for _ in range(3):
        await lease.renew()

    stored = await world.agent.get(Lease, "mac-a", namespace="kube-node-lease")
    assert stored.spec.holder_identity == "mac-a"


async def test_pod_gets_finalizer_and_status_and_is_released(world: World) -> None:
    pod = await fenced(world.agent).add_finalizer(await world.pod(), finalizers.VM_CLEANUP)
    for published in (
        status.waiting(pod, facts(), reason="CreatingVM"),
        status.running(pod, facts(), started_at=None, ip="192.168.64.9"),
    ):
        assert await status.publish(world.agent, pod, published) is not None
    await world.admin.delete(Pod, "build", namespace="ns")

    # A Pod that has not ended stays for its grace, unless the agent says that it is over.
    await fenced(world.agent).remove_finalizer(await world.pod(), finalizers.VM_CLEANUP)
    await world.agent.delete(Pod, "build", namespace="ns", uid=pod.uid, grace=timedelta())

    with pytest.raises(errors.NotFound):
        await world.pod()


async def test_unsupported_pod_is_rejected_without_a_finalizer(world: World) -> None:
    """One of a DaemonSet: many containers, volumes of every kind."""
    container = {"name": "other", "image": "linux"}
    spec = {"containers": [container, {**container, "name": "more"}]}
    await bind_pod(world.admin, "daemon", "mac-a", namespace="ns", **spec)
    pod = await world.agent.get(Pod, "daemon", namespace="ns")

    rejected = status.rejected(pod, facts(), message="the Pod has 2 containers; VMs support one")
    found = await status.publish(world.agent, pod, rejected)

    assert found is not None
    assert found.status.reason == "UnsupportedPod"


async def test_guest_gets_what_its_pod_refers_to(world: World, tmp_path: Path) -> None:
    shares = await guests(world.agent, tmp_path).prepare(await world.pod(), VM)

    assert (shares.env / "tuist.env").read_text() == "A=hidden\nB=seen\n"
    assert (shares.env / "sa_token").read_text().count(".") == 2


async def test_events_of_pods_and_of_the_node_are_recorded_and_counted(world: World) -> None:
    node = await a_node(world.admin, "mac-a")
    await record_events(world.agent, await world.pod(), times=3)
    await record_events(world.agent, node, times=2)

    counts = [
        event.count
        for namespace in ("ns", "default")
        for event in (await world.admin.list(Event, namespace=namespace)).items
    ]
    assert counts == [3, 2]


async def test_clients_of_the_agent_are_reviewed(world: World) -> None:
    review = await world.agent.create(TokenReview(spec=TokenReviewSpec(token="nobodys")))
    attributes = {"verb": "get", "resource": "nodes", "subresource": "proxy", "name": "mac-a"}
    body = {
        "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
        "kind": SUBJECT_ACCESS_REVIEWS.kind,
        "spec": {"user": "anna", "resourceAttributes": attributes},
    }
    answer = await world.agent.create_wire(SUBJECT_ACCESS_REVIEWS, body)

    assert review.status.authenticated is False
    assert answer["status"]["allowed"] is False


async def test_pods_and_the_node_are_watched_with_field_selectors(world: World) -> None:
    await a_node(world.admin, "mac-a")

    pods = await world.agent.list(Pod, fields={"spec.nodeName": "mac-a"})
    nodes = await world.agent.list(Node, fields={"metadata.name": "mac-a"})

    assert [one.name for one in pods.items] == ["build"]
    assert [one.name for one in nodes.items] == ["mac-a"]


async def test_another_agent_may_do_none_of_it(world: World) -> None:
    pod, stranger = await world.pod(), world.stranger
    await node_controller(world.agent, "mac-a").sync()
    await lease_controller(world.agent, "mac-a").renew()
    rejected = status.rejected(pod, facts(), message="mine now")

    for act in (
        lambda: node_controller(stranger, "mac-a").sync(),
        lambda: lease_controller(stranger, "mac-a").renew(),
        lambda: fenced(stranger).add_finalizer(pod, finalizers.VM_CLEANUP),
        lambda: status.publish(stranger, pod, rejected),
        lambda: stranger.delete(Pod, "build", namespace="ns", grace=timedelta()),
        lambda: stranger.get(Secret, "s", namespace="ns"),
        lambda: stranger.request_token("runner", "ns", audiences=["x"], expires=HOUR, bound_to=pod),
        lambda: stranger.list(Pod, fields={"spec.nodeName": "mac-a"}),
    ):
        with pytest.raises(errors.Forbidden):
            await act()
    await record_events(stranger, pod, times=1)

    assert (await world.admin.list(Event, namespace="ns")).items == []
    assert await world.pod() == pod
