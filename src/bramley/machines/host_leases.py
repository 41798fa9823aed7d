"""The Leases by which a host has one owner: one per host, named after its id, acquired before the first write to the provider.

A Lease is acquired by creating it, so two machines never have the same one, whatever their caches show. It never expires: it is
deleted when the release of its host has succeeded. Its holder is a machine, not a manager, so any leader may continue.

Two things make a leader harmless that was paused and does not know of its successor. Each write to the API checks the leadership of
this process and is conditional on the version that was read, and a new leader writes its epoch (`leaseTransitions`) to a Lease
before it acts on the host, so an older write fails. Requests to the provider have no such condition; so after that write the new
leader waits for `SETTLED_AFTER` before it gives a host away, which is longer than any claim of another leader can last.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bramley.api.coordination import Lease, LeaseSpec
from bramley.api.meta import Object, ObjectMeta, micro_time, moment
from bramley.api.names import annotations as annotation_names
from bramley.api.names import labels, machines
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.providers.provider import HostRef
from bramley.runtime.client import Reader
from bramley.runtime.writes import FencedKube

# The deadline of a claim, 90 s, and of a request that was sent at its end, 10 s, with a margin.
SETTLED_AFTER = timedelta(minutes=2)
# How long after a claim its host is read once more before it is used. A manager of another cluster, which has other Leases, may have
# sent a rename on a read from before the claim; it has arrived by then: `providers.claims` limits its age.
CONFIRMED_AFTER = timedelta(seconds=20)
_OURS = {
    labels.APP_MANAGED_BY: labels.MANAGED_BY_MACHINES,
    labels.APP_COMPONENT: labels.COMPONENT_HOST_LEASE,
}
# Names of objects are in lower case: two ids that differ only in case would have one Lease.
_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Holder:
    """A machine; one that is created again with the same name has another uid."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, machine: Object) -> Holder:
        """Return the identity of a machine."""
        return cls(machine.namespace or "", machine.name, machine.uid)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}/{self.uid}"


@dataclass(frozen=True, slots=True)
class HostLease:
    """The Lease of a host, and the machine that has it."""

    ref: HostRef
    holder: Holder
    stored: Lease

    @property
    def epoch(self) -> int:
        """Return the epoch of the leader that acted last."""
        return self.stored.spec.lease_transitions or 0

    @property
    def is_releasing(self) -> bool:
        """Return whether a release of the host has begun."""
        return annotation_names.HOST_RELEASING in self.stored.metadata.annotations

    def is_settled(self, now: datetime) -> bool:
        """Return whether no earlier claim of the host can still be under way."""
        return now >= self._stamped_at + SETTLED_AFTER

    def unconfirmed_for(self, now: datetime) -> timedelta:
        """Return how long another cluster may still take the host away after the last claim."""
        return max(self._stamped_at + CONFIRMED_AFTER - now, timedelta())

    @property
    def _stamped_at(self) -> datetime:
        stamped = self.stored.spec.renew_time
        return moment(stamped) if stamped else datetime.min.replace(tzinfo=UTC)


class HostLeases:
    """Reads and writes the Leases of hosts; reads are never cached, so that what is decided on them is current."""

    def __init__(
        self,
        reader: Reader,
        kube: FencedKube,
        *,
        namespace: str,
        clock: Clock,
        # The epoch of this process's leadership, 0 without election; and continues above a stored one, or raises LeaseLost.
        epoch: Callable[[], int],
        raise_epoch: Callable[[int], Awaitable[None]],
    ) -> None:
        self._reader = reader
        self._kube = kube
        self._namespace = namespace
        self._clock = clock
        self._epoch = epoch
        self._raise_epoch = raise_epoch

    async def all(self) -> list[HostLease]:
        """Return the Leases of all hosts."""
        return await self._list(_OURS)

    async def of(self, holder: Holder) -> list[HostLease]:
        """Return the Leases of a machine, the oldest first; more than one only after two leaders have acted for it."""
        found = await self._list(_OURS | {labels.MACHINE_UID: holder.uid})
        own = [each for each in found if each.holder == holder]
        return sorted(own, key=lambda each: (each.stored.spec.acquire_time or "", each.ref))

    async def acquire(self, ref: HostRef, holder: Holder) -> HostLease | None:
        """Return the Lease of a host for this machine; None if another machine has it."""
        if _ID.fullmatch(ref.id) is None:
            raise errors.InvalidSpec(f"{ref.id!r} is not a valid id of a host")
        now = micro_time(self._clock.now())
        spec = LeaseSpec(
            holder_identity=str(holder),
            acquire_time=now,
            renew_time=now,
            lease_transitions=self._epoch(),
        )
        metadata = ObjectMeta(
            name=f"{machines.HOST_LEASE_PREFIX}{ref.id}",
            namespace=self._namespace,
            labels=_OURS | {labels.MACHINE_UID: holder.uid},
            annotations={annotation_names.HOST_ZONE: ref.zone},
        )
        try:
            stored = await self._kube.create(Lease(metadata=metadata, spec=spec))
            return HostLease(ref, holder, stored)
        except errors.AlreadyExists:
            pass
        with contextlib.suppress(errors.NotFound):
            stored = await self._reader.get(Lease, metadata.name, namespace=self._namespace)
            found = _decoded(stored)
            return found if found is not None and found.holder == holder else None
        return None

    async def stamp(self, lease: HostLease) -> HostLease:
        """Write the epoch and the time before an attempt of a claim, and after one that has succeeded."""
        return await self._patch(lease, {})

    async def take_over(self, lease: HostLease) -> HostLease:
        """Write the epoch and the time if another leader has acted before, so that the time is of this process's clock."""
        return lease if lease.epoch == self._epoch() else await self.stamp(lease)

    async def begin_release(self, lease: HostLease) -> HostLease:
        """Write that the host is being released; and the epoch and the time if another leader has acted before."""
        if lease.is_releasing and lease.epoch == self._epoch():
            return lease
        metadata = {"metadata": {"annotations": {annotation_names.HOST_RELEASING: labels.TRUE}}}
        return await self._patch(lease, metadata)

    async def free(self, lease: HostLease) -> None:
        """Delete exactly this version of the Lease."""
        await self._check_epoch(lease)
        version = lease.stored.metadata.resource_version
        with contextlib.suppress(errors.NotFound):
            await self._kube.delete(lease.stored, resource_version=version)

    async def _patch(self, lease: HostLease, patch: dict[str, Any]) -> HostLease:
        await self._check_epoch(lease)
        epoch = self._epoch()
        # A release by the leader that made the last claim need not wait for that claim again.
        if not patch or lease.epoch != epoch:
            now = micro_time(self._clock.now())
            patch = patch | {"spec": {"renewTime": now, "leaseTransitions": epoch}}
        metadata = lease.stored.metadata
        written = await self._kube.merge_patch(
            Lease,
            metadata.name,
            patch,
            namespace=metadata.namespace,
            resource_version=metadata.resource_version,
        )
        return HostLease(lease.ref, lease.holder, written)

    async def _check_epoch(self, lease: HostLease) -> None:
        if self._epoch() and lease.epoch > self._epoch():
            await self._raise_epoch(lease.epoch)

    async def _list(self, selector: dict[str, str]) -> list[HostLease]:
        pages = self._reader.pages(Lease, namespace=self._namespace, labels=selector)
        found = [_decoded(lease) async for page in pages for lease in page.items]
        return [each for each in found if each is not None]


def _decoded(lease: Lease) -> HostLease | None:
    """Return the Lease of a host; None if it was changed by hand: then no machine can take it."""
    host_id = lease.name.removeprefix(machines.HOST_LEASE_PREFIX)
    parts = (lease.spec.holder_identity or "").split("/")
    if len(parts) != 3 or not all(parts):
        return None
    with contextlib.suppress(errors.InvalidSpec):
        ref = HostRef(lease.metadata.annotations.get(annotation_names.HOST_ZONE, ""), host_id)
        return HostLease(ref, Holder(*parts), lease)
    return None
