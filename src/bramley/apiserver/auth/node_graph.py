"""The objects that the authorization of agents reads: the Pods of each Node, what they refer to, and the enrolled agents.

The Pods are indexed at the first request of an agent and updated at each commit, so a decision needs no list.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bramley.access import pod_references
from bramley.access.authorization import PodFacts
from bramley.access.pod_references import References
from bramley.api.names import access, agent
from bramley.apiserver.store.records import Change, Key, Record
from bramley.apiserver.store.store import Store

_PODS = "pods"
_NODE_NAME = "spec.nodeName"
_CLUSTER_BINDINGS = "clusterrolebindings.rbac.authorization.k8s.io"


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


# A Pod that cannot be read is on no Node and refers to nothing.
_UNREADABLE = PodFacts("", "", References(service_account=""))


class Pods:
    """The Pods of a store by the Node that they are bound to; only durable ones count."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_node: dict[str, dict[Key, Record]] = {}
        self._facts: dict[Key, tuple[Record, PodFacts]] = {}
        # Nothing is awaited between this list and the watch, so no commit is missed.
        for record in store.list(_PODS):
            self._add(record)
        # The filter runs at every commit and accepts nothing: it is used as a callback, without a queue of changes.
        store.watch(_PODS, since=store.revision, accepts=self._apply)

    def find(self, namespace: str, name: str) -> PodFacts | None:
        """Return the facts about a Pod, None if it does not exist."""
        record = self._store.get(Key(_PODS, namespace, name))
        return None if record is None else self._facts_of(record)

    def bound_to(self, node: str, namespace: str) -> list[PodFacts]:
        """Return the Pods of a namespace that are bound to a Node."""
        bound = self._by_node.get(node, {}).values()
        return [self._facts_of(record) for record in bound if record.key.namespace == namespace]

    def _apply(self, change: Change) -> bool:
        if change.previous is not None:
            self._remove(change.previous)
        if change.after is not None:
            self._add(change.after)
        return False

    def _add(self, record: Record) -> None:
        node = record.fields.get(_NODE_NAME)
        if node:
            self._by_node.setdefault(node, {})[record.key] = record

    def _remove(self, record: Record) -> None:
        self._facts.pop(record.key, None)
        node = record.fields.get(_NODE_NAME, "")
        bound = self._by_node.get(node)
        if bound is not None:
            bound.pop(record.key, None)
            if not bound:
                del self._by_node[node]

    def _facts_of(self, record: Record) -> PodFacts:
        cached = self._facts.get(record.key)
        # Records are immutable: the same record has the same facts.
        if cached is not None and cached[0] is record:
            return cached[1]
        facts = _UNREADABLE
        with self._store.damage.skip_unreadable(record):
            pod = msgspec.json.decode(record.body, type=_Pod)
            node = str(pod.spec.get("nodeName") or "")
            facts = PodFacts(node, pod.metadata.uid, pod_references.of_spec(pod.spec))
        self._facts[record.key] = record, facts
        return facts


class NodeGraph:
    """Implements the lookups of the node authorizer over a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pods: Pods | None = None
        self._enrolments: dict[str, tuple[Record, bool]] = {}

    def is_enrolled(self, node: str) -> bool:
        """Return whether the Node's agent has its binding, which only a user with the right to grant roles could create."""
        record = self._store.get(Key(_CLUSTER_BINDINGS, "", access.enrolment(node)))
        if record is None:
            self._enrolments.pop(node, None)
            return False
        cached = self._enrolments.get(node)
        if cached is None or cached[0] is not record:
            is_enrolled = False
            with self._store.damage.skip_unreadable(record):
                is_enrolled = _is_enrolment(record, node)
            cached = self._enrolments[node] = record, is_enrolled
        return cached[1]

    def pod(self, namespace: str, name: str) -> PodFacts | None:
        """Return the facts about a Pod, None if it does not exist."""
        return self._pod_index().find(namespace, name)

    def uses(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Return whether a Pod on the Node refers to this Secret, ConfigMap or ServiceAccount."""
        used = (pod.references for pod in self._pod_index().bound_to(node, namespace))
        if resource == "secrets":
            return any(name in each.secrets for each in used)
        if resource == "configmaps":
            return any(name in each.config_maps for each in used)
        return resource == "serviceaccounts" and any(name == each.service_account for each in used)

    def _pod_index(self) -> Pods:
        if self._pods is None:
            self._pods = Pods(self._store)
        return self._pods


def _is_enrolment(record: Record, node: str) -> bool:
    binding = msgspec.json.decode(record.body, type=_Binding)
    account = _Reference("ServiceAccount", agent.service_account(node), access.NAMESPACE)
    is_agent = (binding.role_ref.kind, binding.role_ref.name) == (
        "ClusterRole",
        access.CLUSTER_ROLE,
    )
    return is_agent and account in (binding.subjects or ())
