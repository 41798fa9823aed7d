"""The sweep of rented hosts: releases what machines have left behind, reclaims hosts without an owner, and counts all hosts.

A host without an owner is changed only if its name has the configured prefix, or is that of an abandoned claim. It must have had no
owner for an interval; then it is put under a Lease, so that no machine can get it, and everything is read again. The holder of that
Lease is a machine that does not exist: if this process ends after the release has begun, `Releases.reclaim` completes it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NoReturn

from bramley.api.names import events, machines
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.base import errors, log
from bramley.machines.host_failures import HostFailures
from bramley.machines.host_leases import SETTLED_AFTER, Holder
from bramley.machines.host_metrics import HostMetrics
from bramley.machines.host_ownership import Owners, Ownership, count_uses, may_reclaim
from bramley.machines.release import Releases, recorded_host
from bramley.providers.provider import Host, HostRef, checked_name
from bramley.providers.zone_lists import ZoneLists
from bramley.runtime.manager import Manager

logger = log.get(__name__)

# Instead of the uid of a machine, in the Leases of hosts that are put back into the pool.
HOLDER_UID = "host-sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where hosts are, whose names may be changed, and how often."""

    # For how long a host must have no owner before it is reclaimed.
    interval: timedelta = timedelta(minutes=15)
    period: timedelta = timedelta(minutes=1)
    # Those of machines are added.
    zones: tuple[str, ...] = (machines.DEFAULT_ZONE,)
    # Empty: hosts without an owner are only counted.
    claim_name_prefix: str = ""
    # Empty: not even that, because hosts of the pool cannot be distinguished.
    default_pool_prefix: str = ""
    default_os: str = machines.DEFAULT_OS


@dataclass(frozen=True, slots=True)
class Orphan:
    """A host without an owner, and since when."""

    host: Host
    ownership: Ownership
    since: float


@dataclass(slots=True, kw_only=True)
class HostSweep:
    """Sweeps until it is cancelled or the leadership is lost; errors are logged, counted, and retried."""

    settings: Settings
    zones: ZoneLists
    releases: Releases
    failures: HostFailures
    metrics: HostMetrics
    _orphans: dict[HostRef, Orphan] = field(default_factory=dict)

    async def run(self) -> NoReturn:
        """Sweep periodically until cancelled."""
        while True:
            await self.sweep()
            await asyncio.sleep(self.settings.period.total_seconds())

    async def sweep(self) -> None:
        """Sweep once."""
        with self._counted("reclaim"):
            await self._reclaim()
        with self._counted("observe"):
            await self._observe()
        for orphan in self._due():
            with self._counted("orphan", host=str(orphan.host.ref), name=orphan.host.name):
                await self._put_back(orphan)

    @contextlib.contextmanager
    def _counted(self, step: str, **fields: str) -> Iterator[None]:
        try:
            yield
        except errors.LeaseLost:
            raise
        except errors.BramleyError as error:
            text = str(error)
            logger.warning(
                "Sweep of hosts failed", step=step, reason=error.reason, error=text, **fields
            )
            self.metrics.count_failure(step)

    async def _reclaim(self) -> None:
        leases = self.releases.leases
        for lease in await leases.all():
            # The process ended before it had read again whether the host has an owner.
            if lease.holder.uid == HOLDER_UID and not lease.is_releasing:
                await leases.free(lease)
        reports = await self.releases.reclaim(
            os=self.settings.default_os, pool_prefix=self.settings.default_pool_prefix
        )
        for report in reports:
            write = logger.info if report.type == events.NORMAL else logger.warning
            write("Host of a machine that is gone", reason=report.reason, text=report.message)

    async def _observe(self) -> None:
        """List the hosts of all zones, count them, and remember those without an owner."""
        found = await self._machines()
        refs = [ref for each in found if (ref := recorded_host(each)) is not None]
        zones = {*self.settings.zones, *(each.spec.zone for each in found)}
        zones |= {ref.zone for ref in refs}
        listed: dict[str, Sequence[Host]] = {}
        for zone in sorted(zones):
            with self._counted("list", zone=zone):
                listed[zone] = (await self.zones.current(zone)).hosts
        # After the lists: a host that was claimed meanwhile has an owner.
        owners, quarantined = await self._owners(), await self.failures.quarantined()
        self.metrics.forget_zones_except(zones)
        for zone, hosts in listed.items():
            self.metrics.set_hosts(zone, count_uses(hosts, owners, quarantined))
        self._remember_orphans(zones - listed.keys(), listed, owners)

    def _remember_orphans(
        self, failed: set[str], listed: Mapping[str, Sequence[Host]], owners: Owners
    ) -> None:
        now = self._now()
        kept = {ref: each for ref, each in self._orphans.items() if ref.zone in failed}
        for host in (each for hosts in listed.values() for each in hosts):
            ownership = owners.find(host)
            if self.settings.default_pool_prefix and ownership.is_orphan:
                known = self._orphans.get(host.ref)
                # A claim that is repeated has another name.
                is_known = known is not None and known.host.name == host.name
                since = known.since if known is not None and is_known else now
                kept[host.ref] = Orphan(host, ownership, since)
        self._orphans = kept
        # A host that is just being claimed or released is none yet.
        settled = SETTLED_AFTER.total_seconds()
        self.metrics.set_orphans(sum(now - each.since >= settled for each in kept.values()))

    def _due(self) -> list[Orphan]:
        now, interval = self._now(), self.settings.interval.total_seconds()
        prefix = self.settings.claim_name_prefix
        return [
            each
            for each in self._orphans.values()
            if now - each.since >= interval and may_reclaim(each.host, each.ownership, prefix)
        ]

    async def _put_back(self, orphan: Orphan) -> None:
        """Release a host under a Lease, if it still has no owner."""
        ref, name = orphan.host.ref, orphan.host.name
        # A failed attempt is repeated after another interval.
        self._orphans[ref] = replace(orphan, since=self._now())
        releases = self.releases
        holder = Holder(releases.secrets.namespace, checked_name(name), HOLDER_UID)
        lease = await releases.leases.acquire(ref, holder)
        if lease is None:
            return
        if not await self._is_still(orphan):
            await releases.leases.free(lease)
            return
        logger.info("Putting host without an owner back into the pool", host=str(ref), name=name)
        lease = await releases.leases.begin_release(lease)
        # Also one of an abandoned claim is reinstalled: it may have data.
        prefix = self.settings.default_pool_prefix
        is_released = await releases.provider.release(ref, name, pool_prefix=prefix, os="")
        await releases.leases.free(lease)
        if is_released:
            self.metrics.count_reclaimed()

    async def _is_still(self, orphan: Orphan) -> bool:
        """Return whether a host has the same name and no owner, as read again under our own Lease."""
        try:
            host = await self.releases.provider.host(orphan.host.ref)
        except errors.NotFound:
            return False
        owners = replace(await self._owners(), leased=frozenset())
        return host.name == orphan.host.name and owners.find(host) is orphan.ownership

    async def _owners(self) -> Owners:
        """Read all owners from the API server itself."""
        found = await self._machines()
        leased = [lease.ref.id for lease in await self.releases.leases.all()]
        prefix = self.settings.default_pool_prefix
        return Owners.of(found, leased=leased, default_pool_prefix=prefix)

    async def _machines(self) -> list[ScalewayAppleSiliconMachine]:
        pages = self.releases.reader.pages(ScalewayAppleSiliconMachine)
        return [machine async for page in pages for machine in page.items]

    def _now(self) -> float:
        return self.releases.clock.monotonic()


def add(manager: Manager, sweep: HostSweep) -> None:
    """Run the sweep while the manager leads."""
    manager.add_runnable(sweep.run)
