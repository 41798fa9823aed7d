"""Leader election on a Lease, by client-go's timing rules and with a fencing epoch.

A lease is taken when its record has not changed for its whole duration, measured by this process's own clock since it
observed the record: clocks of different machines are never compared. The holder trusts its lease only for the shorter renew
deadline, counted from when it *began* its last successful renewal, so it stops before another process may start, as long as
no clock runs faster than another by more than lease / renew deadline (1.5 by default).

Every take-over increases the epoch (the Lease's leaseTransitions). `Leadership.check` must be called right before each
action: a process that was suspended past its deadline finds out before it acts. A Lease that was deleted or moved begins with
epoch 1; who has stored a higher one calls `raise_epoch`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

from bramley.api.coordination import Lease, LeaseSpec
from bramley.api.meta import ObjectMeta, micro_time
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.runtime.client import Kube
from bramley.runtime.metrics import RuntimeMetrics

logger = log.get(__name__)

_RAISE_PERIOD = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class LeaderElectionSettings:
    """The lease, the identity of this process, and client-go's three durations."""

    namespace: str
    name: str
    # Unique to this process: a restarted process must not be taken for its predecessor.
    identity: str
    lease: timedelta = timedelta(seconds=15)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry: timedelta = timedelta(seconds=2)

    def __post_init__(self) -> None:
        if not self.lease > self.renew_deadline > self.retry > timedelta():
            raise errors.BadConfiguration(
                "lease must be longer than renew_deadline, and renew_deadline longer than retry"
            )
        if not self.identity:
            raise errors.BadConfiguration("identity must not be empty")


class Leadership:
    """The permission to act until the deadline, under one epoch; only `raise_epoch` changes it."""

    def __init__(self, clock: Clock, *, epoch: int, began: float, deadline: timedelta) -> None:
        self.epoch = epoch
        self._clock = clock
        self._deadline = deadline.total_seconds()
        self._valid_until = began + self._deadline

    def check(self) -> None:
        """Raise LeaseLost unless this process may still act; call it right before each action."""
        if self.seconds_left() <= 0:
            raise errors.LeaseLost(f"the lease of epoch {self.epoch} has expired")

    def seconds_left(self) -> float:
        """Return the seconds for which this process may act without another renewal."""
        return self._valid_until - self._clock.monotonic()

    def extend(self, began: float) -> None:
        """Count the deadline from the start of a successful renewal."""
        self._valid_until = began + self._deadline

    def end(self) -> None:
        """Give up the leadership."""
        self._valid_until = float("-inf")


class LeaderElector:
    """Acquires, renews and releases one lease."""

    def __init__(
        self,
        settings: LeaderElectionSettings,
        kube: Kube,
        *,
        clock: Clock,
        rng: random.Random,
        metrics: RuntimeMetrics,
    ) -> None:
        self._settings = settings
        self._kube = kube
        self._clock = clock
        self._rng = rng
        self._is_leader = metrics.leader.of(settings.name)
        self._epoch = metrics.leader_epoch.of(settings.name)
        self._observed: Lease | None = None
        self._observed_at = 0.0
        self._highest = 0
        # Also that of an attempt whose response was lost.
        self._raised_to = 0
        self._raised_at = float("-inf")

    async def acquire(self) -> Leadership:
        """Wait until this process holds the lease."""
        logger.info("Waiting for the leader lease", lease=self._settings.name)
        while True:
            leadership = await self._attempt()
            if leadership is not None:
                self._is_leader.set(1)
                self._epoch.set(leadership.epoch)
                logger.info(
                    "Leader lease acquired", lease=self._settings.name, epoch=leadership.epoch
                )
                return leadership
            # Always under the retry time, so that a released lease is acquired within it.
            await asyncio.sleep(self._settings.retry.total_seconds() * self._jitter(0.5, 0.9))

    async def renew_until_lost(self, leadership: Leadership) -> NoReturn:
        """Renew the lease until it is lost; then raise LeaseLost."""
        try:
            while True:
                pause = self._settings.retry.total_seconds() * self._jitter(0.9, 1.0)
                await asyncio.sleep(min(pause, max(0.001, leadership.seconds_left())))
                # The process may have been suspended during the sleep.
                leadership.check()
                await self._try_to_renew(leadership)
        finally:
            self._is_leader.set(0)

    async def raise_epoch(self, leadership: Leadership, stored: int) -> None:
        """Continue under an epoch above one that was stored; raise LeaseLost if a later leader has stored it."""
        leadership.check()
        if self._clock.monotonic() < self._raised_at + _RAISE_PERIOD.total_seconds():
            # Two such processes would raise their epochs above each other's for ever.
            raise errors.LeaseLost("another process leads with another lease; stop one of them")
        # From the server: what this process observed last may be older than what was stored.
        lease = await self._read()
        try:
            self._check_holder(lease, leadership)
        except errors.LeaseLost:
            leadership.end()
            raise
        epoch = self._raised_to = max(stored, self._highest) + 1
        logger.warning(
            "Raising leader epoch above a stored one",
            lease=self._settings.name,
            epoch=epoch,
            stored=stored,
        )
        self._observe(await self._patch(lease, {"leaseTransitions": epoch}))
        leadership.epoch = epoch
        self._raised_at = self._clock.monotonic()

    async def release(self, leadership: Leadership) -> None:
        """Give up the leadership and release the lease, so that another process need not wait for its expiry."""
        is_held = leadership.seconds_left() > 0
        # First, so that nothing acts any more while the request is under way.
        leadership.end()
        self._is_leader.set(0)
        # An expired lease may have another holder by now.
        if not is_held or self._observed is None:
            return
        try:
            async with asyncio.timeout(self._settings.retry.total_seconds()):
                await self._clear_holder(self._observed, leadership)
        except (errors.BramleyError, TimeoutError) as error:
            logger.warning("Leader lease not released", lease=self._settings.name, error=str(error))
        else:
            logger.info("Leader lease released", lease=self._settings.name, epoch=leadership.epoch)

    async def _clear_holder(self, lease: Lease, leadership: Leadership) -> None:
        # A duration of one second, as client-go writes it; without a holder it is not waited for.
        no_holder = {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": self._now()}
        try:
            await self._patch(lease, no_holder)
        except errors.Conflict:
            # Either the stop cancelled a renewal that the server had received, or another process took the lease.
            lease = await self._read()
            self._check_holder(lease, leadership)
            await self._patch(lease, no_holder)

    async def _attempt(self) -> Leadership | None:
        try:
            async with asyncio.timeout(self._settings.renew_deadline.total_seconds()):
                return await self._acquire_if_free()
        except (errors.Conflict, errors.AlreadyExists):
            # Another candidate was faster.
            return None
        except (errors.BramleyError, TimeoutError) as error:
            logger.warning(
                "Acquiring leader lease failed", lease=self._settings.name, error=str(error)
            )
            return None

    async def _acquire_if_free(self) -> Leadership | None:
        began = self._clock.monotonic()
        try:
            lease = await self._read()
        except errors.NotFound:
            return await self._create(began)
        if self._is_held_by_another(lease):
            return None
        # Right before the write: the deadline must not outlast what the server stores.
        began, now = self._clock.monotonic(), self._now()
        epoch = self._next_epoch(lease)
        claim_fields = {"acquireTime": now, "renewTime": now, "leaseTransitions": epoch}
        self._observe(await self._patch(lease, self._claim() | claim_fields))
        return self._leadership(epoch, began)

    async def _create(self, began: float) -> Leadership:
        settings, now = self._settings, micro_time(self._clock.now())
        # A Lease that was deleted and recreated must not restart the epochs.
        epoch = self._highest + 1
        spec = LeaseSpec(
            holder_identity=settings.identity,
            lease_duration_seconds=round(settings.lease.total_seconds()),
            acquire_time=now,
            renew_time=now,
            lease_transitions=epoch,
        )
        metadata = ObjectMeta(name=settings.name, namespace=settings.namespace)
        self._observe(await self._kube.create(Lease(metadata=metadata, spec=spec)))
        return self._leadership(epoch, began)

    async def _try_to_renew(self, leadership: Leadership) -> None:
        # Half the deadline: a call that hangs leaves time for another, and a slower server cannot keep a lease anyway.
        longest = self._settings.renew_deadline.total_seconds() / 2
        try:
            async with asyncio.timeout(min(longest, leadership.seconds_left())):
                await self._renew(leadership)
        except errors.LeaseLost:
            leadership.end()
            raise
        except (errors.BramleyError, TimeoutError) as error:
            # Not lost yet: the last successful renewal is valid until the deadline.
            logger.warning(
                "Renewing leader lease failed",
                lease=self._settings.name,
                left=f"{leadership.seconds_left():.1f}",
                error=str(error),
            )

    async def _renew(self, leadership: Leadership) -> None:
        lease = self._observed or await self._read()
        # Before the request, never after it: the deadline must not outlast what the server stores.
        began = self._clock.monotonic()
        try:
            renewed = await self._patch(lease, self._claim() | {"renewTime": self._now()})
        except errors.Conflict:
            # Either another process took the lease, or an earlier renewal succeeded and only its response was lost.
            lease = await self._read()
            self._check_holder(lease, leadership)
            began = self._clock.monotonic()
            renewed = await self._patch(lease, self._claim() | {"renewTime": self._now()})
        self._observe(renewed)
        leadership.extend(began)

    def _check_holder(self, lease: Lease, leadership: Leadership) -> None:
        spec = lease.spec
        is_holder = spec.holder_identity == self._settings.identity
        epochs = {leadership.epoch, self._raised_to or leadership.epoch}
        if not is_holder or spec.lease_transitions not in epochs:
            holder = spec.holder_identity or "no process"
            raise errors.LeaseLost(f"the lease {self._settings.name} is held by {holder}")

    async def _read(self) -> Lease:
        settings = self._settings
        lease = await self._kube.get(Lease, settings.name, namespace=settings.namespace)
        self._observe(lease)
        return lease

    async def _patch(self, lease: Lease, spec: Mapping[str, object]) -> Lease:
        return await self._kube.merge_patch(
            Lease,
            self._settings.name,
            {"spec": spec},
            namespace=self._settings.namespace,
            # Makes the write a compare-and-swap: of two candidates one gets a Conflict.
            resource_version=lease.metadata.resource_version,
        )

    def _observe(self, lease: Lease) -> None:
        # Only a change of the record shows that the holder is alive; its renewTime is of another machine's clock.
        if self._observed is None or self._observed.spec != lease.spec:
            self._observed_at = self._clock.monotonic()
        self._observed = lease
        self._highest = max(self._highest, lease.spec.lease_transitions or 0)
        self._epoch.set(self._highest)

    def _is_held_by_another(self, lease: Lease) -> bool:
        spec = lease.spec
        # Its own identity is that of an acquire whose response was lost.
        if not spec.holder_identity or spec.holder_identity == self._settings.identity:
            return False
        seconds = spec.lease_duration_seconds or self._settings.lease.total_seconds()
        return self._clock.monotonic() < self._observed_at + seconds

    def _next_epoch(self, lease: Lease) -> int:
        return max(self._highest, lease.spec.lease_transitions or 0) + 1

    def _claim(self) -> dict[str, object]:
        seconds = round(self._settings.lease.total_seconds())
        return {"holderIdentity": self._settings.identity, "leaseDurationSeconds": seconds}

    def _leadership(self, epoch: int, began: float) -> Leadership:
        deadline = self._settings.renew_deadline
        return Leadership(self._clock, epoch=epoch, began=began, deadline=deadline)

    def _now(self) -> str:
        return micro_time(self._clock.now())

    def _jitter(self, low: float, high: float) -> float:
        return low + (high - low) * self._rng.random()
