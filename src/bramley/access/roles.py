"""The permissions of agents as RBAC rules: one ClusterRole for all agents, and Roles of each agent.

Pure. What RBAC cannot restrict to a name (writing Pods, creating objects) is restricted to the Node by `policy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bramley.access.pod_references import References
from bramley.api import auth
from bramley.api.coordination import Lease
from bramley.api.names import access, agent, groups
from bramley.api.rbac import PolicyRule

_READ = ["get", "list", "watch"]
_CHANGE = ["patch", "update"]


@dataclass(frozen=True, slots=True)
class Needs:
    """What the Pods of one Node refer to in one namespace."""

    pods: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    config_maps: frozenset[str] = frozenset()

    def with_pod(self, name: str, references: References) -> Needs:
        """Return the needs including one more Pod."""
        return Needs(
            self.pods | {name},
            self.accounts | {references.service_account},
            self.secrets | references.secrets,
            self.config_maps | references.config_maps,
        )


def needs(pods: Iterable[tuple[str, str, References]]) -> dict[str, Needs]:
    """Return the needs of Pods, given as namespace, name and references, by namespace."""
    by_namespace: dict[str, Needs] = {}
    for namespace, name, references in pods:
        by_namespace[namespace] = by_namespace.get(namespace, Needs()).with_pod(name, references)
    return by_namespace


def shared() -> list[PolicyRule]:
    """Return what every agent may do in the whole cluster."""
    return [
        _rule("", ["nodes"], ["create"]),
        _rule("", ["pods"], [*_READ, *_CHANGE, "delete"]),
        _rule("", ["pods/status"], ["get", *_CHANGE]),
        _rule("", ["events"], ["create", *_CHANGE]),
        _rule("events.k8s.io", ["events"], ["create", *_CHANGE]),
        _rule(auth.GROUP, ["tokenreviews"], ["create"]),
        _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
    ]


def own_node(node: str) -> list[PolicyRule]:
    """Return what an agent may do with its Node."""
    return [
        _rule("", ["nodes"], [*_READ, *_CHANGE], [node]),
        _rule("", ["nodes/status"], ["get", *_CHANGE], [node]),
    ]


def in_namespace(node: str, namespace: str, needed: Needs) -> list[PolicyRule]:
    """Return what an agent may do in one namespace."""
    if namespace == access.NAMESPACE:
        # Only to renew its own token: a Pod there must not give its agent the identity of another one.
        own = [agent.service_account(node)]
        return [_rule("", ["serviceaccounts/token"], ["create"], own)]
    rules = _pod_rules(needed)
    if namespace == groups.NODE_LEASE_NAMESPACE:
        rules.append(_rule(Lease.resource.group, ["leases"], ["get", *_CHANGE], [node]))
        rules.append(_rule(Lease.resource.group, ["leases"], ["create"]))
    return rules


def namespaces(needed: Mapping[str, Needs]) -> dict[str, Needs]:
    """Return the needs by namespace, with the two namespaces in which an agent always has permissions."""
    always = {access.NAMESPACE: Needs(), groups.NODE_LEASE_NAMESPACE: Needs()}
    return {**always, **needed}


def _pod_rules(needed: Needs) -> list[PolicyRule]:
    desired = [
        ("pods", [access.REPRESENT], needed.pods),
        ("secrets", _READ, needed.secrets),
        ("configmaps", _READ, needed.config_maps),
        ("serviceaccounts/token", ["create"], needed.accounts),
    ]
    # A rule without names would apply to all names.
    return [_rule("", [plural], verbs, sorted(names)) for plural, verbs, names in desired if names]


def _rule(
    group: str, resources: list[str], verbs: list[str], names: list[str] | None = None
) -> PolicyRule:
    return PolicyRule(
        api_groups=[group], resources=resources, verbs=verbs, resource_names=names or []
    )
