"""The objects that make an agent: its ServiceAccount, roles and bindings, as they shall be.

Pure. All of them belong to the agent's own ClusterRole by owner reference, so a cluster's garbage collector ends what a cut
revocation left, and what was made for an earlier agent of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping

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

MARK = {access.LABEL: access.LABEL_VALUE}


def namespace() -> Namespace:
    """Return the namespace in which all agents' identities live."""
    return Namespace(metadata=ObjectMeta(name=access.NAMESPACE, labels=MARK))


def shared_role() -> ClusterRole:
    """Return the ClusterRole that all agents have."""
    return ClusterRole(
        metadata=ObjectMeta(name=access.CLUSTER_ROLE, labels=MARK), rules=roles.shared()
    )


def own_role(node: str) -> ClusterRole:
    """Return the agent's own ClusterRole, which everything else of it belongs to."""
    return ClusterRole(metadata=_metadata(node, access.role(node)), rules=roles.own_node(node))


def cluster_bindings(owner: ClusterRole) -> list[ClusterRoleBinding]:
    """Return what gives the agent its two ClusterRoles."""
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


def account(owner: ClusterRole) -> ServiceAccount:
    """Return the agent's ServiceAccount."""
    node = node_of(owner)
    name = agent.service_account(node)
    return ServiceAccount(
        metadata=_metadata(node, name, namespace=access.NAMESPACE, owner=owner),
        automount_service_account_token=False,
    )


def namespaced_roles(owner: ClusterRole, needed: Mapping[str, Needs]) -> list[Role]:
    """Return the agent's Roles: in the namespaces of its Pods, and where its Lease and its identity are."""
    node = node_of(owner)
    every = roles.namespaces(needed)
    return [_role(owner, place, roles.in_namespace(node, place, every[place])) for place in every]


def _role(owner: ClusterRole, namespace: str, rules: list[PolicyRule]) -> Role:
    node = node_of(owner)
    metadata = _metadata(node, access.role(node), namespace=namespace, owner=owner)
    return Role(metadata=metadata, rules=rules)


def binding(role: Role) -> RoleBinding:
    """Return what gives the agent one of its Roles."""
    return RoleBinding(
        metadata=role.metadata,
        role_ref=RoleRef(api_group=rbac.GROUP, kind="Role", name=role.name),
        subjects=[subject(node_of(role))],
    )


def subject(node: str) -> Subject:
    """Return the agent as bindings name it."""
    return Subject(
        kind="ServiceAccount", name=agent.service_account(node), namespace=access.NAMESPACE
    )


def node_of(thing: ClusterRole | Role | RoleBinding) -> str:
    """Return whose agent a role or binding is for; empty if it is for none."""
    prefix = access.role("")
    return thing.name.removeprefix(prefix) if thing.name.startswith(prefix) else ""


def _metadata(
    node: str, name: str, *, namespace: str | None = None, owner: ClusterRole | None = None
) -> ObjectMeta:
    references = [] if owner is None else [_belonging_to(owner)]
    return ObjectMeta(
        name=name,
        namespace=namespace,
        labels=MARK,
        annotations={access.NODE: node},
        owner_references=references,
    )


def _belonging_to(owner: ClusterRole) -> OwnerReference:
    return OwnerReference(
        api_version=owner.resource.api_version,
        kind=owner.resource.kind,
        name=owner.name,
        uid=owner.uid,
    )
