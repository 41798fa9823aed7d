"""Keeps the Roles of agents true on a real cluster: what their Pods refer to, and nothing once those Pods are gone.

One key is one agent's ServiceAccount; a Pod that is bound, changed or gone wakes the agent of its Node. The embedded API
does not need this: there the rule looks at the Pods itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from bramley.access import belongings, ensuring, roles
from bramley.access.pods import BOUND, BoundPod
from bramley.api.core import ServiceAccount
from bramley.api.names import access, agent
from bramley.api.rbac import ClusterRole, Role, RoleBinding
from bramley.base import errors
from bramley.runtime.cache import Cache
from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.client import Selection
from bramley.runtime.writes import FencedKube

_BY_NODE = "node"
_BY_NAME = "name"
_MARKED = Selection.of(labels=belongings.MARK)


@dataclass(frozen=True, slots=True)
class Decision:
    """The Roles that an agent shall have, and what it has too much, bindings first."""

    wanted: list[Role]
    surplus: list[Role | RoleBinding]


def decide(
    owner: ClusterRole,
    pods: Iterable[BoundPod],
    *,
    has: Iterable[Role],
    bindings: Iterable[RoleBinding],
) -> Decision:
    """Return what follows from the Pods on an agent's Node and the Roles that it has."""
    wanted = belongings.namespaced_roles(owner, roles.needs(pod.needed for pod in pods))
    places = {role.namespace for role in wanted}
    having: list[Role | RoleBinding] = [*bindings, *has]
    return Decision(wanted, [one for one in having if one.namespace not in places])


@dataclass(frozen=True, slots=True)
class Caches:
    """What is known of the cluster."""

    pods: Cache[BoundPod]
    owners: Cache[ClusterRole]
    roles: Cache[Role]
    bindings: Cache[RoleBinding]


@dataclass(frozen=True, slots=True)
class RoleKeeper:
    """Brings one agent's Roles to what its Pods need."""

    kube: FencedKube
    seen: Caches

    async def reconcile(self, account: ServiceAccount) -> Outcome:
        """Write the Roles and bindings that are missing or differ, and delete the others."""
        node = account.name.removeprefix(agent.service_account(""))
        name = access.role(node)
        owner = self.seen.owners.find(Key("", name))
        if owner is None or account.deleting:
            # Not an agent yet, or no longer: its rights are somebody else's to make and to take.
            return Settled()
        decision = decide(
            owner,
            self.seen.pods.indexed(_BY_NODE, node),
            has=self.seen.roles.indexed(_BY_NAME, name),
            bindings=self.seen.bindings.indexed(_BY_NAME, name),
        )
        await self._act(decision)
        return Settled()

    async def _act(self, decision: Decision) -> None:
        for surplus in decision.surplus:
            with suppress(errors.NotFound, errors.Conflict):
                await self.kube.delete(surplus)
        refusals: list[errors.Refused] = []
        for role in decision.wanted:
            try:
                await self._grant(role)
            except errors.Refused as error:
                # A namespace that is going takes nothing new; the others must not wait for it.
                refusals.append(error)
        if refusals:
            raise refusals[0]

    async def _grant(self, role: Role) -> None:
        key = Key(role.namespace or "", role.name)
        await ensuring.present(self.kube, role, current=self.seen.roles.find(key))
        binding = belongings.binding(role)
        await ensuring.present(self.kube, binding, current=self.seen.bindings.find(key))


def add(manager: Manager) -> None:
    """Keep the Roles of all agents with this manager."""
    caches = Caches(
        pods=manager.informer(BoundPod, Selection.of(fields=BOUND)).cache,
        owners=manager.informer(ClusterRole, _MARKED).cache,
        roles=manager.informer(Role, _MARKED).cache,
        bindings=manager.informer(RoleBinding, _MARKED).cache,
    )
    caches.pods.index(_BY_NODE, lambda pod: [pod.node])
    caches.roles.index(_BY_NAME, lambda role: [role.name])
    caches.bindings.index(_BY_NAME, lambda binding: [binding.name])
    manager.add(
        Controller(RoleKeeper(manager.kube, caches), name="agent-access")
        .for_kind(ServiceAccount, namespace=access.NAMESPACE, labels=belongings.MARK)
        .watches(BoundPod, to=agent_of_pod, fields=BOUND)
        .watches(ClusterRole, to=agent_of_role, labels=belongings.MARK)
        .watches(Role, to=agent_of_role, labels=belongings.MARK)
        .watches(RoleBinding, to=agent_of_role, labels=belongings.MARK)
    )


def agent_of_pod(pod: BoundPod) -> list[Key]:
    """Return the agent whose Node a Pod is bound to."""
    return [Key(access.NAMESPACE, agent.service_account(pod.node))] if pod.node else []


def agent_of_role(role: ClusterRole | Role | RoleBinding) -> list[Key]:
    """Return the agent that a role or binding is for."""
    node = belongings.node_of(role)
    return [Key(access.NAMESPACE, agent.service_account(node))] if node else []
