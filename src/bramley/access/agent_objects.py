"""The desired objects of an agent: its ServiceAccount, roles and bindings.

Pure. The agent's own ClusterRole owns all the others by owner reference, so the cluster's garbage collector deletes what an
interrupted revocation left, and what belonged to an earlier agent of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from bramley.access import roles
from bramley.access.roles import Needs
from bramley.api import rbac
from bramley.api.core import Namespace, ServiceAccount
from bramley.api.meta import ObjectMeta, OwnerReference
from bramley.api.names import access, agent
from bramley.api.rbac import (
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    Role,
    RoleBinding,
    RoleRef,
    Subject,
)

LABELS = {access.LABEL: access.LABEL_VALUE}


def namespace() -> Namespace:
    """Return the namespace of all agents' ServiceAccounts."""
    return Namespace(metadata=ObjectMeta(name=access.NAMESPACE, labels=LABELS))


def shared_role() -> ClusterRole:
    """Return the ClusterRole that all agents have."""
    return ClusterRole(
        metadata=ObjectMeta(name=access.CLUSTER_ROLE, labels=LABELS), rules=roles.shared()
    )


def own_role(node: str) -> ClusterRole:
    """Return the agent's own ClusterRole, the owner of its other objects."""
    return ClusterRole(metadata=_metadata(node, access.role(node)), rules=roles.own_node(node))


def cluster_bindings(owner: ClusterRole) -> list[ClusterRoleBinding]:
    """Return the bindings to the agent's two ClusterRoles."""
    node = node_of(owner)
    own, shared = access.role(node), access.enrolment(node)
    return [
        ClusterRoleBinding(
            metadata=_metadata(node, name, owner=owner),
            role_ref=RoleRef(api_group=rbac.GROUP, kind="ClusterRole", name=role),
            subjects=[subject(node)],
        )
        for name, role in ((own, own), (shared, access.CLUSTER_ROLE))
    ]


def account(owner: ClusterRole, record: Mapping[str, str]) -> ServiceAccount:
    """Return the agent's ServiceAccount with the record of its registration."""
    node = node_of(owner)
    name = agent.service_account(node)
    metadata = _metadata(node, name, namespace=access.NAMESPACE, owner=owner)
    return ServiceAccount(
        metadata=replace(metadata, annotations={**metadata.annotations, **record}),
        automount_service_account_token=False,
    )


def namespaced_roles(owner: ClusterRole, needed: Mapping[str, Needs]) -> list[Role]:
    """Return the agent's Roles: in the namespaces of its Pods, of its Lease and of its ServiceAccount."""
    node = node_of(owner)
    return [
        _role(owner, namespace, roles.in_namespace(node, namespace, needs))
        for namespace, needs in roles.namespaces(needed).items()
    ]


def _role(owner: ClusterRole, namespace: str, rules: list[PolicyRule]) -> Role:
    node = node_of(owner)
    metadata = _metadata(node, access.role(node), namespace=namespace, owner=owner)
    return Role(metadata=metadata, rules=rules)


def binding(role: Role) -> RoleBinding:
    """Return the binding to one of the agent's Roles."""
    return RoleBinding(
        metadata=role.metadata,
        role_ref=RoleRef(api_group=rbac.GROUP, kind="Role", name=role.name),
        subjects=[subject(node_of(role))],
    )


def subject(node: str) -> Subject:
    """Return the agent as the subject of a binding."""
    return Subject(
        kind="ServiceAccount", name=agent.service_account(node), namespace=access.NAMESPACE
    )


def node_of(item: ClusterRole | Role | RoleBinding) -> str:
    """Return the Node whose agent a role or binding is for, or an empty string."""
    prefix = access.role("")
    return item.name.removeprefix(prefix) if item.name.startswith(prefix) else ""


def _metadata(
    node: str, name: str, *, namespace: str | None = None, owner: ClusterRole | None = None
) -> ObjectMeta:
    references = [] if owner is None else [_owner_reference(owner)]
    return ObjectMeta(
        name=name,
        namespace=namespace,
        labels=LABELS,
        annotations={access.NODE: node},
        owner_references=references,
    )


def _owner_reference(owner: ClusterRole) -> OwnerReference:
    return OwnerReference(
        api_version=owner.resource.api_version,
        kind=owner.resource.kind,
        name=owner.name,
        uid=owner.uid,
    )
