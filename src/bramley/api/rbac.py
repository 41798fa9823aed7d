"""RBAC roles and bindings, for one namespace or the whole cluster."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from bramley.api.label_selectors import LabelSelector
from bramley.api.meta import Fields, Object, Resource

GROUP = "rbac.authorization.k8s.io"


class PolicyRule(Fields, frozen=True, kw_only=True):
    """Verbs on resources or on paths."""

    verbs: list[str] | None
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []
    non_resource_urls: list[str] = field(name="nonResourceURLs", default_factory=list)


class AggregationRule(Fields, frozen=True, kw_only=True):
    """The ClusterRoles that are aggregated into a ClusterRole."""

    cluster_role_selectors: list[LabelSelector] = []


class RoleRef(Fields, frozen=True, kw_only=True):
    """The role that a binding grants."""

    api_group: str
    kind: str
    name: str


class Subject(Fields, frozen=True, kw_only=True):
    """A user, group or ServiceAccount that is granted a role."""

    kind: str
    name: str
    api_group: str = ""
    namespace: str = ""


class Role(Object, frozen=True, kw_only=True):
    """Permissions within one namespace."""

    resource: ClassVar[Resource] = Resource(GROUP, "v1", "Role", "roles", namespaced=True)

    rules: list[PolicyRule] | None = None


class ClusterRole(Object, frozen=True, kw_only=True):
    """Permissions that can be granted in any namespace or cluster-wide."""

    resource: ClassVar[Resource] = Resource(
        GROUP, "v1", "ClusterRole", "clusterroles", namespaced=False
    )

    rules: list[PolicyRule] | None = None
    aggregation_rule: AggregationRule | None = None


class RoleBinding(Object, frozen=True, kw_only=True):
    """Grants a role to subjects within one namespace."""

    resource: ClassVar[Resource] = Resource(
        GROUP, "v1", "RoleBinding", "rolebindings", namespaced=True
    )

    role_ref: RoleRef
    subjects: list[Subject] = []


class ClusterRoleBinding(Object, frozen=True, kw_only=True):
    """Grants a ClusterRole to subjects cluster-wide."""

    resource: ClassVar[Resource] = Resource(
        GROUP, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
    )

    role_ref: RoleRef
    subjects: list[Subject] = []
