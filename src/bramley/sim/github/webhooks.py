"""Webhooks of the simulated GitHub: signed, sent with a random delay, recorded, and redelivered on request.

A seed decides delays, losses and duplicates. A lost webhook is recorded as failed, as one whose receiver was down.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.github import webhook_signatures
from bramley.github.client import Transport
from bramley.kube.transport import Request
from bramley.sim.github.records import Refusal

# GitHub waits this long for an answer.
DEADLINE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Hook:
    """Where webhooks are sent, and the secret that signs them."""

    transport: Transport
    path: str
    secret: Secret


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """Delays in seconds, and the share of webhooks that are lost or sent twice."""

    min_delay: float = 0.0
    max_delay: float = 0.0
    loss: float = 0.0
    duplicates: float = 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """What is delivered, once or several times."""

    guid: str
    name: str
    action: str
    installation_id: int
    body: bytes = field(repr=False)


@dataclass(slots=True, eq=False)
class Delivery:
    """One attempt to deliver an event."""

    id: int
    event: Event
    delivered_at: datetime
    is_redelivery: bool
    status_code: int = 0
    status: str = "pending"

    def json(self) -> dict[str, Any]:
        """Return the delivery as GitHub lists it."""
        return {
            "id": self.id,
            "guid": self.event.guid,
            "delivered_at": self.delivered_at,
            "redelivery": self.is_redelivery,
            "duration": 0.0,
            "status": self.status,
            "status_code": self.status_code,
            "event": self.event.name,
            "action": self.event.action,
            "installation_id": self.event.installation_id,
            "repository_id": None,
        }


class Webhooks:
    """Sends webhooks while `running`; without a hook nothing is sent or recorded."""

    def __init__(
        self, hook: Hook | None, clock: Clock, rng: random.Random, settings: DeliverySettings
    ) -> None:
        self.hook = hook
        self.settings = settings
        # In the order in which they were sent, which is that of their ids.
        self.deliveries: list[Delivery] = []
        self._clock = clock
        self._rng = rng
        self._group = asyncio.TaskGroup()
        self._sending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send webhooks while the context lasts; those not sent at its end are dropped."""
        async with asyncio.TaskGroup() as self._group:
            try:
                yield
            finally:
                for task in self._sending:
                    task.cancel()

    def emit(self, name: str, payload: dict[str, Any]) -> None:
        """Send an event to the hook, perhaps late, twice, or not at all."""
        if self.hook is None:
            return
        guid = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        body = msgspec.json.encode(payload)
        event = Event(guid, name, payload["action"], payload["installation"]["id"], body)
        copies = 2 if self._rng.random() < self.settings.duplicates else 1
        for _ in range(copies):
            self._start(event, is_lost=self._rng.random() < self.settings.loss)

    def redeliver(self, delivery_id: int) -> None:
        """Send the event of a delivery again, with the same GUID and body."""
        if not 1 <= delivery_id <= len(self.deliveries):
            raise Refusal(404, "Not Found")
        self._start(self.deliveries[delivery_id - 1].event, is_redelivery=True)

    def _start(self, event: Event, *, is_lost: bool = False, is_redelivery: bool = False) -> None:
        delay = self._rng.uniform(self.settings.min_delay, self.settings.max_delay)
        delivering = self._deliver(event, delay, is_lost=is_lost, is_redelivery=is_redelivery)
        task = self._group.create_task(delivering)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _deliver(
        self, event: Event, delay: float, *, is_lost: bool, is_redelivery: bool
    ) -> None:
        await asyncio.sleep(delay)
        delivery = Delivery(len(self.deliveries) + 1, event, self._clock.now(), is_redelivery)
        self.deliveries.append(delivery)
        try:
            delivery.status_code = await self._sent(event, is_lost=is_lost)
        except errors.TimedOut:
            delivery.status_code, delivery.status = 504, "timed out"
        except errors.Unavailable:
            delivery.status_code, delivery.status = 502, "failed to connect to host"
        else:
            is_success = 200 <= delivery.status_code < 300
            delivery.status = "OK" if is_success else "Invalid HTTP Response"

    async def _sent(self, event: Event, *, is_lost: bool) -> int:
        hook = self.hook
        if hook is None or is_lost:
            raise errors.Unavailable("the receiver is down")
        request = Request(
            "POST",
            hook.path,
            body=event.body,
            content_type="application/json",
            accept="*/*",
            deadline=DEADLINE,
            headers=(
                ("User-Agent", "GitHub-Hookshot/simulated"),
                ("X-GitHub-Event", event.name),
                ("X-GitHub-Delivery", event.guid),
                ("X-GitHub-Hook-Installation-Target-Type", "integration"),
                (
                    webhook_signatures.HEADER,
                    webhook_signatures.signature(event.body, hook.secret),
                ),
            ),
        )
        return (await hook.transport.send(request)).status
