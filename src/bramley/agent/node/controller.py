"""Keeps the Node: registers it, says every 30 s how it is, and registers it anew at once when somebody deleted it.

It waits for the API only. What it says comes from answers that probes have left behind, so a hung tart makes it say so
instead of making it silent. A failure is told and tried again; VMs go on whatever becomes of the Node.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
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
    """How often the Node is written, how long one writing may take, and how soon a failed one is tried again."""

    every: timedelta = timedelta(seconds=30)
    limit: timedelta = timedelta(seconds=20)
    retry: Backoff = field(
        default_factory=lambda: Backoff(timedelta(seconds=1), timedelta(seconds=30))
    )


class NodeKeeper:
    """Keeps one Node."""

    def __init__(
        self,
        settings: NodeSettings,
        kube: Client,
        *,
        facts: Callable[[], Facts],
        clock: Clock,
        rng: random.Random,
        timings: Timings | None = None,
    ) -> None:
        self.registered = asyncio.Event()
        # Of the Node that was seen last; whoever writes what belongs to the Node needs it.
        self.uid = ""
        self._settings = settings
        self._timings = timings or Timings()
        self._kube = kube.within(self._timings.limit)
        self._facts = facts
        self._clock = clock
        self._rng = rng
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Write the Node now: something that it tells has changed."""
        self._woken.set()

    def on_change(self, _key: Key, _old: Node | None, new: Node | None) -> None:
        """Hear from the watch; a Node that is gone is registered at once."""
        if new is None and self.registered.is_set():
            logger.warning("Node was deleted", node=self._settings.name)
            self.wake()

    async def run(self) -> None:
        """Keep the Node until cancelled; raise what cannot get better, such as a name that no Node can have."""
        failures = 0
        while True:
            self._woken.clear()
            try:
                async with asyncio.timeout(self._timings.limit.total_seconds()):
                    await self.beat()
                failures = 0
            except (errors.InvalidSpec, errors.BadRequest):
                raise
            except (errors.BramleyError, TimeoutError) as error:
                failures += 1
                told = str(error) or "no answer in time"
                logger.warning("Node not written", node=self._settings.name, error=told)
            await self._pause(failures)

    async def beat(self) -> None:
        """Register the Node if it is not there, mend its labels, and say how it is."""
        facts = self._facts()
        node = await self._find() or await self._register(facts)
        self.uid = node.uid
        node = await self._mend(node, facts)
        said = status.status(self._settings, facts, node.status, now=self._clock.now())
        await self._kube.apply(
            Node,
            node.name,
            {"status": status.body(said)},
            manager=agent.NAME,
            force=True,
            subresource="status",
        )
        self.registered.set()

    async def _find(self) -> Node | None:
        try:
            return await self._kube.get(Node, self._settings.name)
        except errors.NotFound:
            return None

    async def _register(self, facts: Facts) -> Node:
        logger.info("Registering the Node", node=self._settings.name)
        try:
            made = await self._kube.create_wire(Node.resource, self._new(facts))
        except errors.AlreadyExists:
            return await self._kube.get(Node, self._settings.name)
        return msgspec.convert(made, Node)

    def _new(self, facts: Facts) -> dict[str, Any]:
        settings = self._settings
        node = Node(
            metadata=ObjectMeta(
                name=settings.name, labels=status.desired_labels(settings, facts.images)
            ),
            spec=NodeSpec(provider_id=settings.provider_id, taints=[status.TAINT]),
        )
        said = status.status(settings, facts, NodeStatus(), now=self._clock.now())
        return {**to_wire(node), "status": status.body(said)}

    async def _mend(self, node: Node, facts: Facts) -> Node:
        changes = status.metadata_patch(node, self._settings, facts.images)
        if not changes:
            return node
        # The list of taints is replaced as a whole, so it must be the one that was read.
        version = node.metadata.resource_version if "spec" in changes else None
        return await self._kube.merge_patch(
            Node, node.name, changes, resource_version=version, uid=node.uid
        )

    async def _pause(self, failures: int) -> None:
        pause = self._timings.every
        if failures:
            pause = min(pause, self._timings.retry.delay(failures, self._rng))
        try:
            async with asyncio.timeout(pause.total_seconds()):
                await self._woken.wait()
        except TimeoutError:
            return
