"""The agent's rule on the embedded API: what it has to know of the store, its verdicts and its look at every write.

For an agent the rule alone decides, whatever roles it has besides; only the binding that makes it an agent must be there. The
Pods are indexed by Node when the first agent asks, and from then on with each commit, so a question costs no list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bramley.access import references, rule
from bramley.access.rule import Asked, PodFacts
from bramley.api.names import access, agent
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.authorizer import Verdict, refusal
from bramley.apiserver.resources import Json
from bramley.apiserver.store.records import Change, Key, Record
from bramley.apiserver.store.store import Store

_PODS = "pods"
_NODE_NAME = "spec.nodeName"
_CLUSTER_BINDINGS = "clusterrolebindings.rbac.authorization.k8s.io"

Oversee = Callable[[Json | None, Json | None], None]
"""Looks at an object's new and old state before it is stored, and raises a refusal."""


class _PodMetadata(msgspec.Struct, frozen=True, gc=False):
    uid: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _PodMetadata = _PodMetadata()
    spec: dict[str, Any] = {}


class _Reference(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _Binding(msgspec.Struct, frozen=True, rename="camel"):
    role_ref: _Reference = _Reference()
    subjects: list[_Reference] | None = None


class Pods:
    """The Pods of a store by the Node that they are bound to; only durable ones count."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_node: dict[str, dict[Key, Record]] = {}
        self._facts: dict[Key, tuple[Record, PodFacts]] = {}
        for record in store.list(_PODS):
            self._enter(record)
        # Asked at every commit, and never interested: the question itself is the news.
        store.watch(_PODS, since=store.revision, wants=self._follow)

    def find(self, namespace: str, name: str) -> PodFacts | None:
        """Return what is known of a Pod, None when there is none."""
        record = self._store.get(Key(_PODS, namespace, name))
        return None if record is None else self._facts_of(record)

    def on(self, node: str, namespace: str) -> list[PodFacts]:
        """Return the Pods of a namespace that are bound to a Node."""
        bound = self._by_node.get(node, {}).values()
        return [self._facts_of(record) for record in bound if record.key.namespace == namespace]

    def _follow(self, change: Change) -> bool:
        if change.previous is not None:
            self._drop(change.previous)
        if change.after is not None:
            self._enter(change.after)
        return False

    def _enter(self, record: Record) -> None:
        node = record.fields.get(_NODE_NAME)
        if node:
            self._by_node.setdefault(node, {})[record.key] = record

    def _drop(self, record: Record) -> None:
        self._facts.pop(record.key, None)
        node = record.fields.get(_NODE_NAME, "")
        bound = self._by_node.get(node)
        if bound is not None:
            bound.pop(record.key, None)
            if not bound:
                del self._by_node[node]

    def _facts_of(self, record: Record) -> PodFacts:
        known = self._facts.get(record.key)
        if known is not None and known[0] is record:
            return known[1]
        pod = msgspec.json.decode(record.body, type=_Pod)
        node = str(pod.spec.get("nodeName") or "")
        facts = PodFacts(node, pod.metadata.uid, references.of_spec(pod.spec))
        self._facts[record.key] = record, facts
        return facts


class StoredWorld:
    """What the rule looks up, answered from a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pods: Pods | None = None
        self._enrolments: dict[str, tuple[Record, bool]] = {}

    def enrolled(self, node: str) -> bool:
        """Tell whether the binding is there that only somebody who may give rights could make."""
        record = self._store.get(Key(_CLUSTER_BINDINGS, "", access.enrolment(node)))
        if record is None:
            self._enrolments.pop(node, None)
            return False
        known = self._enrolments.get(node)
        if known is None or known[0] is not record:
            known = self._enrolments[node] = record, _enrols(record, node)
        return known[1]

    def pod(self, namespace: str, name: str) -> PodFacts | None:
        """Return a Pod, or None when there is none."""
        return self._indexed().find(namespace, name)

    def uses(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Tell whether a Pod on the Node refers to this Secret, ConfigMap or ServiceAccount."""
        found = (pod.references for pod in self._indexed().on(node, namespace))
        if resource == "secrets":
            return any(name in each.secrets for each in found)
        if resource == "configmaps":
            return any(name in each.config_maps for each in found)
        return resource == "serviceaccounts" and any(name == each.service_account for each in found)

    def _indexed(self) -> Pods:
        if self._pods is None:
            self._pods = Pods(self._store)
        return self._pods


class Agents:
    """The rule, asked by the authorizer and by the write path."""

    def __init__(self, store: Store) -> None:
        self._world = StoredWorld(store)

    def opinion(self, asked: Attributes) -> Verdict | None:
        """Return the verdict about an agent's request for a resource, None for everything else."""
        node = rule.node_of(asked.user.name, asked.user.extra)
        if node is None or not asked.resource:
            return None
        ruling = rule.judge(_asked(asked, node), self._world)
        return Verdict(allowed=ruling.allowed, reason=ruling.reason, denied=not ruling.allowed)

    def overseer(self, asked: Attributes) -> Oversee | None:
        """Return what must see each object that an agent writes, None for other callers."""
        node = rule.node_of(asked.user.name, asked.user.extra)
        if node is None:
            return None
        wish = _asked(asked, node)

        def oversee(new: Json | None, old: Json | None) -> None:
            why = rule.admit(wish, None if wish.verb == "delete" else new, old, self._world)
            if why is not None:
                raise refusal(asked, f"the agent's rule: {why}")

        return oversee


def _asked(asked: Attributes, node: str) -> Asked:
    return Asked(
        node=node,
        verb=asked.verb,
        group=asked.group,
        resource=asked.resource,
        subresource=asked.subresource,
        namespace=asked.namespace,
        name=asked.name,
        selected_node=asked.selected_node,
    )


def _enrols(record: Record, node: str) -> bool:
    binding = msgspec.json.decode(record.body, type=_Binding)
    own = _Reference("ServiceAccount", agent.service_account(node), access.NAMESPACE)
    is_agent = (binding.role_ref.kind, binding.role_ref.name) == (
        "ClusterRole",
        access.CLUSTER_ROLE,
    )
    return is_agent and own in (binding.subjects or ())
