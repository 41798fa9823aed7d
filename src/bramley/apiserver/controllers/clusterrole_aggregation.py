"""ClusterRole aggregation: a role with an aggregation rule gets the rules of all roles that its selectors match."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from bramley.api.label_selectors import matches
from bramley.api.rbac import ClusterRole, PolicyRule
from bramley.apiserver.controllers.objects import patch_object
from bramley.apiserver.controllers.timings import Timings
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.cache import Cache
from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.writes import FencedKube


def aggregates(role: ClusterRole, other: ClusterRole) -> bool:
    """Return whether a role aggregates another one."""
    rule = role.aggregation_rule
    if rule is None or role.name == other.name:
        return False
    return any(matches(each, other.metadata.labels) for each in rule.cluster_role_selectors)


def aggregated_rules(role: ClusterRole, roles: Iterable[ClusterRole]) -> list[PolicyRule]:
    """Return the distinct rules of all roles that a role aggregates, in the order of the roles' names."""
    rules: list[PolicyRule] = []
    for each in sorted(roles, key=lambda one: one.name):
        if aggregates(role, each):
            rules += [rule for rule in each.rules or [] if rule not in rules]
    return rules


@dataclass(frozen=True, slots=True)
class AggregationReconciler:
    """Keeps the rules of aggregated roles."""

    kube: FencedKube
    roles: Cache[ClusterRole]

    async def reconcile(self, role: ClusterRole) -> Outcome:
        """Write the aggregated rules if they differ."""
        if role.aggregation_rule is None or role.deleting:
            return Settled()
        rules = aggregated_rules(role, self.roles.all())
        if rules != (role.rules or []):
            patch = {"rules": [msgspec.to_builtins(rule) for rule in rules]}
            await patch_object(self.kube, role, patch)
        return Settled()


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the aggregation controller to a manager."""
    del client, clock, timings
    roles = manager.informer(ClusterRole).cache

    def aggregating_roles(role: ClusterRole) -> list[Key]:
        return [Key("", each.name) for each in roles.all() if aggregates(each, role)]

    reconciler = AggregationReconciler(manager.kube, roles)
    controller = Controller(reconciler, name="clusterrole-aggregation").for_kind(ClusterRole)
    manager.add(controller.watches(ClusterRole, to=aggregating_roles))
