"""Nodes and Pods in one line each, and the decision about them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from bramley.api.core import Node, Pod
from bramley.apiserver.controllers.scheduling import select_node
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.select_node import Decision
from bramley.apiserver.controllers.scheduling.snapshot import Snapshot

BEGIN = datetime(2026, 6, 19, 12, tzinfo=UTC)


def a_node(name: str, *, cpu: str = "4", memory: str = "8Gi", pods: int = 10, **more: Any) -> Node:
    """Return a Node; `labels`, `taints` and `unschedulable` as a manifest has them."""
    spec = {key: more.pop(key) for key in ("taints", "unschedulable") if key in more}
    labels = {"kubernetes.io/hostname": name, **more.pop("labels", {})}
    offers = {"cpu": cpu, "memory": memory, "pods": str(pods), **more.pop("extended", {})}
    body = {
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": offers},
    }
    return msgspec.convert(body, Node)


def a_pod(name: str, *, age: int = 0, **more: Any) -> Pod:
    """Return a Pod of one container; `requests`, `ports`, `labels` and fields of the spec by their names on the wire."""
    container: dict[str, Any] = {"name": "c", "resources": {"requests": more.pop("requests", {})}}
    container["ports"] = more.pop("ports", [])
    metadata = {
        "name": name,
        "namespace": more.pop("namespace", "default"),
        "uid": more.pop("uid", f"uid-{name}"),
        "labels": more.pop("labels", {}),
        "creationTimestamp": BEGIN - timedelta(seconds=age),
    }
    status = more.pop("status", {})
    body = {"metadata": metadata, "spec": {"containers": [container], **more}, "status": status}
    return msgspec.convert(body, Pod)


def on(node: str, pod: Pod) -> Pod:
    """Return the Pod with its Node."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


def a_snapshot(nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> Snapshot:
    """Return a board with these Nodes, and the Pods that have one."""
    snapshot = Snapshot()
    for node in nodes:
        snapshot.update_node(node)
    for pod in pods:
        snapshot.add_pod(PodInfo.of(pod), pod.spec.node_name)
    return snapshot


def decision(pod: Pod, nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> Decision:
    """Return what is decided about a Pod."""
    return select_node.decide(PodInfo.of(pod), a_snapshot(nodes, pods), random.Random(1))


def affinity_term(key: str = "kubernetes.io/hostname", **labels: str) -> dict[str, Any]:
    """Return a term of pod affinity."""
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


def anti_affinity_to(*terms: dict[str, Any]) -> dict[str, Any]:
    """Return an affinity that keeps others away."""
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def affinity_to(*terms: dict[str, Any]) -> dict[str, Any]:
    """Return an affinity that wants others near."""
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def on_nodes(*terms: dict[str, Any]) -> dict[str, Any]:
    """Return a required node affinity."""
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    """Return a term of one test on a label."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
