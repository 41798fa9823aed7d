"""The Node's Lease: renewed every 10 s in its own task, so that nothing else can delay the heartbeat of this Node."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any

from bramley.api.coordination import Lease
from bramley.api.core import Node
from bramley.api.meta import micro_time
from bramley.api.names import groups
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.kube.client import Client

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Timings:
    """The kubelet's timings: a Lease expires after four periods, so a failed renewal is retried soon."""

    every: timedelta = timedelta(seconds=10)
    duration: timedelta = timedelta(seconds=40)
    limit: timedelta = timedelta(seconds=5)
    retry: Backoff = field(
        default_factory=lambda: Backoff(timedelta(milliseconds=200), timedelta(seconds=7))
    )


@dataclass(slots=True, eq=False)
class LeaseController:
    """Renews one Node's Lease."""

    node: str
    kube: Client
    _: KW_ONLY
    uid: Callable[[], str]
    clock: Clock
    rng: random.Random
    timings: Timings = field(default_factory=Timings)
    _owner_uid: str = ""
    # Monotonic seconds; None before the first renewal.
    _renewed: float | None = None

    def __post_init__(self) -> None:
        self.kube = self.kube.within(self.timings.limit)

    async def run(self) -> None:
        """Renew until cancelled."""
        failures = 0
        while True:
            started = self.clock.monotonic()
            try:
                async with asyncio.timeout(self.timings.limit.total_seconds()):
                    await self.renew()
                failures = 0
                # After the response: a request that hangs must not count as a renewal.
                self._renewed = self.clock.monotonic()
            except (errors.BramleyError, TimeoutError) as error:
                failures += 1
                reason = str(error) or "timed out"
                logger.warning("Lease not renewed", node=self.node, failures=failures, error=reason)
            await asyncio.sleep(self._pause(failures, self.clock.monotonic() - started))

    def expired_reason(self) -> str:
        """Return why the Lease is not valid; empty if it is."""
        if self._renewed is None:
            return "the Node's Lease was not renewed since the start"
        age = self.clock.monotonic() - self._renewed
        if age <= self.timings.duration.total_seconds():
            return ""
        return f"the Node's Lease was not renewed for {age:.0f} s"

    async def renew(self) -> None:
        """Renew the Lease, or create it."""
        try:
            lease = await self.kube.merge_patch(
                Lease, self.node, self._body(), namespace=groups.NODE_LEASE_NAMESPACE
            )
        except errors.NotFound:
            body = {
                "apiVersion": Lease.resource.api_version,
                "kind": Lease.resource.kind,
                **self._body(named=True),
            }
            await self.kube.create_wire(Lease.resource, body, namespace=groups.NODE_LEASE_NAMESPACE)
            return
        self._owner_uid = next((owner.uid for owner in lease.metadata.owner_references), "")

    def _body(self, *, named: bool = False) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": self.node} if named else {}
        uid = self.uid()
        # Owned by the Node, so it is deleted with it; a Node that was registered again has another uid.
        if uid and uid != self._owner_uid:
            owner = {
                "apiVersion": Node.resource.api_version,
                "kind": Node.resource.kind,
                "name": self.node,
                "uid": uid,
            }
            metadata["ownerReferences"] = [owner]
        spec = {
            "holderIdentity": self.node,
            "leaseDurationSeconds": round(self.timings.duration.total_seconds()),
            "renewTime": micro_time(self.clock.now()),
        }
        return {"spec": spec} | ({"metadata": metadata} if metadata else {})

    def _pause(self, failures: int, elapsed: float) -> float:
        if failures:
            return self.timings.retry.delay(failures, self.rng).total_seconds()
        return max(self.timings.every.total_seconds() - elapsed, 0.0)
