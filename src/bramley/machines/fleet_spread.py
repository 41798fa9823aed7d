"""Restarts the Pods of one Deployment when the set of ready Macs changes, so that they spread over all of them.

The scheduler never moves a Pod that runs: after a Mac has come or gone, the Pods stay where they are. So a hash of the names of the
ready Nodes is kept in the Pod template, and the Deployment rolls when it changes. The Deployment is read when it is needed and not
watched: the permissions are `get` and `patch` on its name.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NoReturn

from bramley.api import conditions
from bramley.api.apps import Deployment
from bramley.api.core import Node
from bramley.api.names import annotations as annotation_names
from bramley.api.names import labels
from bramley.base import errors, log
from bramley.runtime.cache import Cache
from bramley.runtime.client import Reader, Selection
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)

MACS = Selection.of(labels={labels.OS: labels.DARWIN, labels.RUNTIME: labels.RUNTIME_TART})
UNSETTLED_WAIT = timedelta(seconds=30)
_AFTER_FAILURE = timedelta(seconds=30)
# A Deployment that is created or changed by people enqueues nothing.
_RESYNC = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Settings:
    """The Deployment whose Pods are spread."""

    deployment: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Decision:
    """When to check again, and the hash to write first, if any."""

    outcome: Outcome
    fleet_hash: str | None = None


def decide(deployment: Deployment | None, nodes: Iterable[Node]) -> Decision:
    """Return whether the Pod template needs another hash, and whether it may be written now."""
    if deployment is None or deployment.deleting:
        return Decision(Settled())
    template = deployment.spec.template
    selector = (template.get("spec") or {}).get("nodeSelector") or {}
    desired = hash_of(nodes, selector)
    current = ((template.get("metadata") or {}).get("annotations") or {}).get(
        annotation_names.FLEET_HASH
    )
    if current == desired:
        return Decision(Settled())
    if not is_settled(deployment):
        return Decision(CheckAgain(UNSETTLED_WAIT, "the last change is still being rolled out"))
    return Decision(Settled(), desired)


def hash_of(nodes: Iterable[Node], selector: dict[str, str]) -> str:
    """Return a hash of the names of the ready Nodes that a selector matches."""
    names = sorted(
        node.name
        for node in nodes
        if selector.items() <= node.metadata.labels.items()
        and not node.deleting
        and conditions.is_true(node.status.conditions, "Ready")
    )
    return hashlib.sha256("\n".join(names).encode()).digest()[:8].hex()


def is_settled(deployment: Deployment) -> bool:
    """Return whether all Pods have the current template and are available."""
    desired, status = deployment.spec.replicas, deployment.status
    return (
        status.observed_generation >= deployment.metadata.generation
        and status.updated_replicas == status.replicas == status.available_replicas == desired
        and not status.unavailable_replicas
    )


@dataclass(frozen=True, slots=True)
class FleetSpread:
    """Keeps the hash in the Pod template; it has one object, so it needs no queue."""

    reader: Reader
    kube: FencedKube
    nodes: Cache[Node]
    settings: Settings
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> NoReturn:
        """Reconcile after each change of the ready Nodes, until cancelled."""
        while True:
            self.changed.clear()
            wait = await self._attempt()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait.total_seconds()):
                    await self.changed.wait()

    async def _attempt(self) -> timedelta:
        """Reconcile, and return after what time to do it again without a change."""
        try:
            outcome = await self.reconcile()
        except errors.LeaseLost:
            raise
        except errors.BramleyError as error:
            logger.warning("Spreading Pods failed", reason=error.reason, error=str(error))
            return _AFTER_FAILURE
        return outcome.after if isinstance(outcome, CheckAgain) else _RESYNC

    async def reconcile(self) -> Outcome:
        """Write the hash of the ready Nodes, unless it is in the template or the Deployment is being rolled out."""
        name, namespace = self.settings.deployment, self.settings.namespace
        deployment: Deployment | None = None
        with suppress(errors.NotFound):
            deployment = await self.reader.get(Deployment, name, namespace=namespace)
        decision = decide(deployment, self.nodes.all())
        if deployment is not None and decision.fleet_hash is not None:
            await self._write(deployment, decision.fleet_hash)
        return decision.outcome

    async def _write(self, deployment: Deployment, fleet_hash: str) -> None:
        logger.info("Restarting Pods for another set of ready Nodes", deployment=deployment.name)
        metadata = {"annotations": {annotation_names.FLEET_HASH: fleet_hash}}
        await self.kube.merge_patch(
            Deployment,
            deployment.name,
            {"spec": {"template": {"metadata": metadata}}},
            namespace=deployment.namespace,
            # Of the version that was settled.
            resource_version=deployment.metadata.resource_version,
            uid=deployment.uid,
        )

    def node_changed(self, _key: Key, old: Node | None, new: Node | None) -> None:
        """Reconcile if a Node has come, gone, or changed in what the hash depends on; most changes are heartbeats."""
        if _facts(old) != _facts(new):
            self.changed.set()


def add(manager: Manager, reader: Reader, settings: Settings) -> None:
    """Spread the Pods of the Deployment while the manager leads; `reader` reads it without a cache."""
    nodes = manager.informer(Node, MACS)
    spread = FleetSpread(reader, manager.kube, nodes.cache, settings)
    nodes.on_change(spread.node_changed)
    manager.add_runnable(spread.run)


def _facts(node: Node | None) -> tuple[object, ...] | None:
    if node is None:
        return None
    return (
        node.deleting,
        conditions.is_true(node.status.conditions, "Ready"),
        node.metadata.labels,
    )
