"""Keeps the Roles of agents up to date on a real cluster: what their Pods refer to, and nothing once those Pods are gone.

One key is one agent's ServiceAccount; a Pod that is bound, changed or deleted enqueues the agent of its Node. The embedded
API does not need this: there `authorization` reads the Pods themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from bramley.access import agent_objects, roles, upsert
from bramley.access.pod_references import BOUND, BoundPod
from bramley.api.core import ServiceAccount
from bramley.api.names import access, agent
from bramley.api.rbac import ClusterRole, Role, RoleBinding
from bramley.base import errors
from bramley.runtime.cache import Cache
from bramley.runtime.client import Selection
from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.writes import FencedKube

_BY_NODE = "node"
_BY_NAME = "name"
_LABELLED = Selection.of(labels=agent_objects.LABELS)


@dataclass(frozen=True, slots=True)
class Decision:
    """The desired Roles of an agent, and the surplus objects, bindings first."""

    desired: list[Role]
    surplus: list[Role | RoleBinding]


def decide(
    owner: ClusterRole,
    pods: Iterable[BoundPod],
    *,
    current: Iterable[Role],
    bindings: Iterable[RoleBinding],
) -> Decision:
    """Compare the Pods on an agent's Node with the Roles that it has."""
    desired = agent_objects.namespaced_roles(owner, roles.needs(pod.needed for pod in pods))
    namespaces = {role.namespace for role in desired}
    existing: list[Role | RoleBinding] = [*bindings, *current]
    return Decision(desired, [obj for obj in existing if obj.namespace not in namespaces])


@dataclass(frozen=True, slots=True)
class RoleReconciler:
    """Converges one agent's Roles to what its Pods need."""

    kube: FencedKube
    pods: Cache[BoundPod]
    owners: Cache[ClusterRole]
    roles: Cache[Role]
    bindings: Cache[RoleBinding]

    async def reconcile(self, account: ServiceAccount) -> Outcome:
        """Write the Roles and bindings that are missing or differ, and delete the others."""
        node = account.name.removeprefix(agent.service_account(""))
        name = access.role(node)
        owner = self.owners.find(Key("", name))
        if owner is None or account.deleting:
            # Not an agent yet, or no longer: `identity` creates and revokes its permissions.
            return Settled()
        decision = decide(
            owner,
            self.pods.by_index(_BY_NODE, node),
            current=self.roles.by_index(_BY_NAME, name),
            bindings=self.bindings.by_index(_BY_NAME, name),
        )
        await self._act(decision)
        return Settled()

    async def _act(self, decision: Decision) -> None:
        # Revoke before granting: an interruption leaves too few permissions, not too many.
        for surplus in decision.surplus:
            with suppress(errors.NotFound, errors.Conflict):
                await self.kube.delete(surplus)
        refusals: list[errors.Refused] = []
        for role in decision.desired:
            try:
                await self._grant(role)
            except errors.Refused as error:
                # Nothing can be created in a terminating namespace; the other namespaces must not wait for it.
                refusals.append(error)
        if refusals:
            raise refusals[0]

    async def _grant(self, role: Role) -> None:
        key = Key(role.namespace or "", role.name)
        await upsert.create_or_update(self.kube, role, current=self.roles.find(key))
        binding = agent_objects.binding(role)
        await upsert.create_or_update(self.kube, binding, current=self.bindings.find(key))


def add(manager: Manager) -> None:
    """Add the controller to the manager."""
    reconciler = RoleReconciler(
        manager.kube,
        pods=manager.informer(BoundPod, Selection.of(fields=BOUND)).cache,
        owners=manager.informer(ClusterRole, _LABELLED).cache,
        roles=manager.informer(Role, _LABELLED).cache,
        bindings=manager.informer(RoleBinding, _LABELLED).cache,
    )
    reconciler.pods.index(_BY_NODE, lambda pod: [pod.node])
    reconciler.roles.index(_BY_NAME, lambda role: [role.name])
    reconciler.bindings.index(_BY_NAME, lambda binding: [binding.name])
    manager.add(
        Controller(reconciler, name="agent-access")
        .for_kind(ServiceAccount, namespace=access.NAMESPACE, labels=agent_objects.LABELS)
        .watches(BoundPod, to=agent_of_pod, fields=BOUND)
        .watches(ClusterRole, to=agent_of_role, labels=agent_objects.LABELS)
        .watches(Role, to=agent_of_role, labels=agent_objects.LABELS)
        .watches(RoleBinding, to=agent_of_role, labels=agent_objects.LABELS)
    )


def agent_of_pod(pod: BoundPod) -> list[Key]:
    """Return the agent whose Node a Pod is bound to."""
    return [Key(access.NAMESPACE, agent.service_account(pod.node))] if pod.node else []


def agent_of_role(role: ClusterRole | Role | RoleBinding) -> list[Key]:
    """Return the agent that a role or binding is for."""
    node = agent_objects.node_of(role)
    return [Key(access.NAMESPACE, agent.service_account(node))] if node else []
