"""The scene of the suite: two Nodes with an agent each, Pods on both and on none, and what these refer to."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.access import controller, identity
from bramley.api.coordination import Lease, LeaseSpec
from bramley.api.core import ConfigMap, Event, Namespace, Node, Pod, Secret, ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.base import secret
from bramley.base.clock import SystemClock
from bramley.kube.client import Client
from bramley.runtime.manager import Manager, ManagerSettings
from tests.contract.agent_rule.table import a_subject, an_event

Json = dict[str, Any]

HOUR = timedelta(hours=1)
SECRETS = ("env", "env-from", "init", "volume", "projected", "pull", "theirs", "unused")
CONFIGS = ("env", "env-from", "volume", "projected", "theirs", "unused")


@dataclass(frozen=True, slots=True)
class Scene:
    """Names and uids by the words that the table uses, and the two agents' tokens."""

    words: Mapping[str, str]
    token: secret.Secret
    others_token: secret.Secret

    @property
    def node(self) -> str:
        """Return the Node whose agent sends the requests."""
        return self.words["node"]

    @property
    def other(self) -> str:
        """Return the other Node."""
        return self.words["other"]

    @property
    def namespace(self) -> str:
        """Return where the Pods are."""
        return self.words["ns"]

    def filled(self, value: Any) -> Any:
        """Return a row's text or body with the names of this scene filled in."""
        if isinstance(value, str):
            return value.format_map(self.words)
        if isinstance(value, dict):
            return {key: self.filled(each) for key, each in value.items()}
        return [self.filled(each) for each in value] if isinstance(value, list) else value


async def build(kube: Client) -> Scene:
    """Create the scene as an administrator; every name is new, so scenes may share a server."""
    mark = uuid.uuid4().hex[:6]
    node, other, namespace = f"mac-a-{mark}", f"mac-b-{mark}", f"work-{mark}"
    nodes = [await _node(kube, name) for name in (node, other)]
    await kube.create(Namespace(metadata=ObjectMeta(name=namespace)))
    await _values(kube, namespace)
    mine = await pod(kube, namespace, "mine", spec=a_spec_with_references(node))
    theirs = await pod(kube, namespace, "theirs", spec=of_theirs(other))
    await pod(kube, namespace, "free", spec={"schedulerName": "none", **a_plain_spec()})
    # The one on both nodes' account, so that the account alone does not distinguish the Pods.
    second = {"nodeName": other, "serviceAccountName": "shared", **a_container()}
    await pod(kube, namespace, "theirs-too", spec=second)
    words = {
        "ns": namespace,
        "node": node,
        "other": other,
        "node_uid": nodes[0].uid,
        "other_uid": nodes[1].uid,
        "pod_uid": mine.uid,
        "their_uid": theirs.uid,
    }
    for name in ("mine", "theirs"):
        event = an_event(a_subject(name), name=f"of-{name}")
        scene = Scene(words, secret.Secret(""), secret.Secret(""))
        await kube.create_wire(Event.resource, scene.filled(event), namespace=namespace)
    made = [await identity.create(kube, name, expires=HOUR) for name in (node, other)]
    return Scene(words, made[0].token, made[1].token)


async def _node(kube: Client, name: str) -> Node:
    place = ObjectMeta(name=name, namespace="kube-node-lease")
    await kube.create(Lease(metadata=place, spec=LeaseSpec(holder_identity=name)))
    return await kube.create(Node(metadata=ObjectMeta(name=name)))


async def _values(kube: Client, namespace: str) -> None:
    for name in ("shared", "lonely", "plain"):
        await kube.create(ServiceAccount(metadata=ObjectMeta(name=name, namespace=namespace)))
    for name in SECRETS:
        await kube.create(Secret(metadata=ObjectMeta(name=f"s-{name}", namespace=namespace)))
    for name in CONFIGS:
        await kube.create(ConfigMap(metadata=ObjectMeta(name=f"c-{name}", namespace=namespace)))


async def pod(kube: Client, namespace: str, name: str, *, spec: Json) -> Pod:
    """Create a Pod of this spec, with a finalizer that is not the agent's."""
    metadata = {"name": name, "finalizers": ["example.com/other"]}
    await kube.create_wire(Pod.resource, {"metadata": metadata, "spec": spec}, namespace=namespace)
    return await kube.get(Pod, name, namespace=namespace)


def a_container(**more: Any) -> Json:
    """Return the part of a spec that every Pod needs."""
    tolerations = [{"operator": "Exists"}]
    return {"containers": [{"name": "vm", "image": "vm", **more}], "tolerations": tolerations}


def a_plain_spec(**more: Any) -> Json:
    """Return the spec of a Pod whose account is there: the namespace's own comes only after a while."""
    return {"serviceAccountName": "plain", **a_container(**more)}


def a_spec_with_references(node: str) -> Json:
    """Return the spec of a Pod that refers to values in every way."""
    env = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s-env", "key": "k"}}},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c-env", "key": "k"}}},
    ]
    env_from = [{"secretRef": {"name": "s-env-from"}}, {"configMapRef": {"name": "c-env-from"}}]
    init = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s-init", "key": "k"}}}
    sources = [{"secret": {"name": "s-projected"}}, {"configMap": {"name": "c-projected"}}]
    return {
        "nodeName": node,
        "serviceAccountName": "shared",
        "imagePullSecrets": [{"name": "s-pull"}],
        "initContainers": [{"name": "init", "image": "vm", "env": [init]}],
        **a_container(env=env, envFrom=env_from),
        "volumes": [
            {"name": "a", "secret": {"secretName": "s-volume"}},
            {"name": "b", "configMap": {"name": "c-volume"}},
            {"name": "c", "projected": {"sources": sources}},
        ],
    }


def of_theirs(node: str) -> Json:
    """Return the spec of the Pod on the other Node."""
    env_from = [{"secretRef": {"name": "s-theirs"}}, {"configMapRef": {"name": "c-theirs"}}]
    return {"nodeName": node, "serviceAccountName": "lonely", **a_container(envFrom=env_from)}


@asynccontextmanager
async def roles_kept(kube: Client) -> AsyncIterator[None]:
    """Run the controller that a real cluster needs."""
    settings = ManagerSettings(tune_gc=False)
    manager = Manager(
        kube,
        clock=SystemClock(),
        rng=random.Random(1),
        registry=CollectorRegistry(),
        settings=settings,
    )
    controller.add(manager)
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run())
        await manager.ready.wait()
        try:
            yield
        finally:
            manager.stop()
