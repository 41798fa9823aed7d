"""ClusterRoles that are made of others: whatever role carries the right labels adds its rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from bramley.api.label_selectors import matches
from bramley.api.rbac import ClusterRole, PolicyRule
from bramley.apiserver.controllers.timings import Timings
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.cache import Cache
from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.writes import FencedKube


def selects(role: ClusterRole, other: ClusterRole) -> bool:
    """Tell whether a role is made of another one, too."""
    rule = role.aggregation_rule
    if rule is None or role.name == other.name:
        return False
    return any(matches(each, other.metadata.labels) for each in rule.cluster_role_selectors)


def collected(role: ClusterRole, roles: Iterable[ClusterRole]) -> list[PolicyRule]:
    """Return the rules of all roles that a role is made of, each once, in the order of the roles' names."""
    rules: list[PolicyRule] = []
    for each in sorted(roles, key=lambda one: one.name):
        if selects(role, each):
            rules += [rule for rule in each.rules or [] if rule not in rules]
    return rules


@dataclass(frozen=True, slots=True)
class AggregationReconciler:
    """Keeps the rules of roles that are made of others."""

    kube: FencedKube
    roles: Cache[ClusterRole]

    async def reconcile(self, role: ClusterRole) -> Outcome:
        """Write the rules that the others add up to."""
        if role.aggregation_rule is None or role.deleting:
            return Settled()
        rules = collected(role, self.roles.all())
        if rules != (role.rules or []):
            patch = {"rules": [msgspec.to_builtins(rule) for rule in rules]}
            await self.kube.merge_patch(
                ClusterRole,
                role.name,
                patch,
                resource_version=role.metadata.resource_version,
                uid=role.uid,
            )
        return Settled()


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Keep the rules of roles that are made of others."""
    del client, clock, timings
    roles = manager.informer(ClusterRole).cache

    def made_of(role: ClusterRole) -> list[Key]:
        return [Key("", each.name) for each in roles.all() if selects(each, role)]

    reconciler = AggregationReconciler(manager.kube, roles)
    controller = Controller(reconciler, name="clusterrole-aggregation").for_kind(ClusterRole)
    manager.add(controller.watches(ClusterRole, to=made_of))
