"""The Node controller: registers the Node, updates its status every 30 s, and registers it again at once when it was deleted.

It waits for the API only: the status comes from the last results of the probes, so a hung tart is reported instead of blocking the
update. Failures are logged and retried; VMs keep running whatever happens to the Node.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from bramley.agent.node import status
from bramley.agent.node.status import Facts
from bramley.agent.settings import NodeSettings
from bramley.api.core import Node, NodeSpec, NodeStatus
from bramley.api.meta import ObjectMeta, to_wire
from bramley.api.names import agent
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.keys import Key

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Timings:
    """The period of updates, the time limit of one, and the backoff after a failure."""

    every: timedelta = timedelta(seconds=30)
    limit: timedelta = timedelta(seconds=20)
    retry: Backoff = field(
        default_factory=lambda: Backoff(timedelta(seconds=1), timedelta(seconds=30))
    )


@dataclass(slots=True, eq=False)
class NodeController:
    """Registers and updates one Node."""

    settings: NodeSettings
    kube: Client
    _: KW_ONLY
    facts: Callable[[], Facts]
    clock: Clock
    rng: random.Random
    timings: Timings = field(default_factory=Timings)
    registered: asyncio.Event = field(default_factory=asyncio.Event)
    # The uid of the Node as last read; needed for owner references and token requests.
    uid: str = ""
    _update_requested: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.kube = self.kube.within(self.timings.limit)

    def update_now(self) -> None:
        """Update the Node at once instead of in the next period."""
        self._update_requested.set()

    def on_change(self, _key: Key, _old: Node | None, new: Node | None) -> None:
        """Handle a change of the Node; a deleted Node is registered again at once."""
        if new is None and self.registered.is_set():
            logger.warning("Node was deleted", node=self.settings.name)
            self.update_now()

    async def run(self) -> None:
        """Update the Node until cancelled; raise errors that a retry cannot fix, such as an invalid name."""
        failures = 0
        while True:
            # Before the sync: an update that is requested meanwhile must not be lost.
            self._update_requested.clear()
            try:
                async with asyncio.timeout(self.timings.limit.total_seconds()):
                    await self.sync()
                failures = 0
            except (errors.InvalidSpec, errors.BadRequest):
                raise
            except (errors.BramleyError, TimeoutError) as error:
                failures += 1
                reason = str(error) or "timed out"
                logger.warning("Node update failed", node=self.settings.name, error=reason)
            await self._pause(failures)

    async def sync(self) -> None:
        """Register the Node if it does not exist, correct its labels, and update its status."""
        facts = self.facts()
        node = await self._find() or await self._register(facts)
        # Before the updates: Lease and token need it, even if these fail.
        self.uid = node.uid
        node = await self._patch_metadata(node, facts)
        node_status = status.status(self.settings, facts, node.status, now=self.clock.now())
        await self.kube.apply(
            Node,
            node.name,
            {"status": status.body(node_status)},
            manager=agent.NAME,
            force=True,
            subresource="status",
        )
        self.registered.set()

    async def _find(self) -> Node | None:
        try:
            return await self.kube.get(Node, self.settings.name)
        except errors.NotFound:
            return None

    async def _register(self, facts: Facts) -> Node:
        logger.info("Registering Node", node=self.settings.name)
        try:
            created = await self.kube.create_wire(Node.resource, self._new_node(facts))
        # Registered meanwhile by an earlier request whose response was lost.
        except errors.AlreadyExists:
            return await self.kube.get(Node, self.settings.name)
        return msgspec.convert(created, Node)

    def _new_node(self, facts: Facts) -> dict[str, Any]:
        settings = self.settings
        node = Node(
            metadata=ObjectMeta(
                name=settings.name, labels=status.desired_labels(settings, facts.images)
            ),
            spec=NodeSpec(
                provider_id=settings.provider_id, taints=status.taints_of_new_node(settings)
            ),
        )
        node_status = status.status(settings, facts, NodeStatus(), now=self.clock.now())
        return {**to_wire(node), "status": status.body(node_status)}

    async def _patch_metadata(self, node: Node, facts: Facts) -> Node:
        changes = status.metadata_patch(node, self.settings, facts.images)
        if not changes:
            return node
        # A merge patch replaces the whole list of taints: the version makes sure that it is the one that was read.
        version = node.metadata.resource_version if "spec" in changes else None
        return await self.kube.merge_patch(
            Node, node.name, changes, resource_version=version, uid=node.uid
        )

    async def _pause(self, failures: int) -> None:
        pause = self.timings.every
        if failures:
            pause = min(pause, self.timings.retry.delay(failures, self.rng))
        try:
            async with asyncio.timeout(pause.total_seconds()):
                await self._update_requested.wait()
        except TimeoutError:
            return
