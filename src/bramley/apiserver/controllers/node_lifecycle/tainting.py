"""Keeps new Pods away from Nodes that are not well: conditions and cordons become NoSchedule taints, and vanish with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bramley.api.core import Node, Taint
from bramley.apiserver.controllers.node_lifecycle import taints
from bramley.apiserver.controllers.timings import Timings
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.controller import Controller
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.writes import FencedKube

# Old names of labels that some still select by.
_OLD_NAMES = {
    "kubernetes.io/os": "beta.kubernetes.io/os",
    "kubernetes.io/arch": "beta.kubernetes.io/arch",
}


@dataclass(frozen=True, slots=True)
class Tainting:
    """Gives each Node the taints that its conditions ask for."""

    kube: FencedKube
    clock: Clock

    async def reconcile(self, node: Node) -> Outcome:
        """Write the taints that are missing or too many."""
        change = changed(node, taints_now=taints.keeping_away(node, today=self.clock.now()))
        if change:
            version = node.metadata.resource_version
            try:
                await self.kube.merge_patch(Node, node.name, change, resource_version=version)
            except errors.NotFound:
                return Settled()
        return Settled()


def changed(node: Node, *, taints_now: list[Taint]) -> dict[str, Any]:
    """Return the patch of taints and of labels under old names; nothing if all is as it should be."""
    change: dict[str, Any] = {}
    if taints_now != node.spec.taints:
        change |= taints.patch(taints_now)
    labels = node.metadata.labels
    renamed = {
        old: labels[new]
        for new, old in _OLD_NAMES.items()
        if new in labels and labels.get(old) != labels[new]
    }
    if renamed:
        change["metadata"] = {"labels": renamed}
    return change


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:  # noqa: ARG001 - all controllers are added alike
    """Add the controller that taints by conditions."""
    tainting = Tainting(manager.kube, clock)
    manager.add(Controller(tainting, name="node-taints").for_kind(Node))
