"""The release of a host: wipe, then delete its credentials, then forget it in the status, then free its Lease.

Each step is repeated until it has succeeded, and the Lease, which is freed last, shows that something is left to do. So a leader may
stop after any call; the next one finds the Lease by the uid of the machine. docs/explanation/machines.md lists every stop.

A leader that was paused and continues here has no effect: `FencedKube` refuses its writes, and `fenced_account` its requests.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from bramley.api.names import events
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.machines.bootstrap_secrets import BootstrapSecrets
from bramley.machines.host_decisions import Ending, decide_release
from bramley.machines.host_leases import Holder, HostLease, HostLeases
from bramley.machines.outcomes import HostOutcome, MachineEvent, ProviderFailed, waiting
from bramley.providers.provider import HostProvider, HostRef, pool_name
from bramley.runtime.client import Reader
from bramley.runtime.writes import FencedKube

A = TypeVar("A")


class _Unsettled(Exception):
    """A claim of an earlier leader may still be under way."""


def fenced_account(account: Callable[[], A], check: Callable[[], None]) -> Callable[[], A]:
    """Return the account for a provider that raises LeaseLost right before each request of a process that does not lead."""

    def fenced() -> A:
        check()
        return account()

    return fenced


@contextlib.contextmanager
def provider_calls() -> Iterator[None]:
    """Raise ProviderFailed for what the provider raises, except for the loss of the leadership."""
    try:
        yield
    except errors.LeaseLost:
        raise
    except errors.RateLimited as error:
        raise ProviderFailed(str(error), after=error.after) from error
    except errors.BramleyError as error:
        raise ProviderFailed(str(error)) from error


def recorded_host(machine: ScalewayAppleSiliconMachine) -> HostRef | None:
    """Return the host in the machine's status, or else of its provider id, which survives the loss of the status.

    The zone is that of the provider id, because that of the spec may have changed.
    """
    # Of any provider.
    bound = (machine.spec.provider_id or "").partition("://")[2]
    zone, _, bound_id = bound.partition("/")
    server = machine.status.server_id or bound_id
    with contextlib.suppress(errors.InvalidSpec):
        return HostRef(zone if bound_id == server else machine.spec.zone, server)
    return None


def _has_another_host(machine: ScalewayAppleSiliconMachine, lease: HostLease) -> bool:
    """Return whether the machine names a host, and nowhere that of the Lease."""
    provider_id = machine.spec.provider_id or ""
    named = {machine.status.server_id, provider_id.rpartition("/")[2]} - {""}
    return bool(named) and lease.ref.id not in named


@dataclass(frozen=True, slots=True)
class Releases:
    """Releases the hosts of machines; `default_pool_prefix` is for machines without one."""

    provider: HostProvider
    leases: HostLeases
    secrets: BootstrapSecrets
    reader: Reader
    kube: FencedKube
    clock: Clock
    default_pool_prefix: str = ""

    async def leased_host(self, machine: ScalewayAppleSiliconMachine) -> HostRef | None:
        """Return the host of a machine whose status was lost."""
        own = await self.leases.of(Holder.of(machine))
        return own[0].ref if own else None

    async def release(self, machine: ScalewayAppleSiliconMachine) -> HostOutcome:
        """Release all hosts of a machine, and remove its credentials; repeat it until the outcome is done.

        For a machine that is deleted, before its finalizer is removed; and for one that gets another host.
        """
        holder = Holder.of(machine)
        own = await self._own(machine, holder)
        reports: list[MachineEvent] = []
        held: list[HostLease] = []
        prefix = machine.spec.adopt_pool_prefix or self.default_pool_prefix
        for lease in own:
            if not prefix:
                text = f"Host {lease.ref} stays as it is: there is no prefix of the pool"
                reports.append(MachineEvent("Warning", events.RELEASE_SKIPPED, text))
                held.append(lease)
                continue
            reports.append(MachineEvent("Normal", events.RELEASING, f"Releasing host {lease.ref}"))
            try:
                was_bound = machine.spec.provider_id == self.provider.provider_id(lease.ref)
                wiped = await self._wipe(
                    lease, holder, prefix, machine.spec.os, was_bound=was_bound
                )
            except _Unsettled:
                text = f"Host {lease.ref} is released once earlier claims of it have ended"
                return waiting(machine, events.RELEASING, text)
            except ProviderFailed as error:
                return waiting(
                    machine,
                    events.RELEASE_FAILED,
                    f"Host {lease.ref} is not released: {error}",
                    before=tuple(reports),
                    after=error.after,
                )
            held.append(wiped[0])
            reports += wiped[1]
        return await self._forget(machine, holder, held, tuple(reports))

    async def reclaim(self, *, os: str, pool_prefix: str) -> list[MachineEvent]:
        """Remove what paused leaders and machines without a finalizer have left behind, and return what to report.

        To be called from time to time. A machine does not exist any more if the API server does not find it, or finds another uid: then its host is released. A host
        that another machine has in its status is left alone, such as after a restore from a backup, which changes uids.
        """
        reports: list[MachineEvent] = []
        leases, marks = await self.leases.all(), await self.secrets.holders()
        living = {machine.uid: machine async for machine in self._machines()}
        for lease in leases:
            machine = living.get(lease.holder.uid)
            if machine is None:
                reports += await self._reclaim(lease, os, pool_prefix)
            elif _has_another_host(machine, lease) and self._is_idle(lease):
                # Taken after the machine had another host in its status, so nothing was claimed under it.
                await self.leases.free(lease)
        for holder in marks:
            if holder.uid not in living and not await self._exists(holder):
                await self.secrets.delete(holder)
        return reports

    def _is_idle(self, lease: HostLease) -> bool:
        return not lease.is_releasing and lease.is_settled(self.clock.now())

    async def _reclaim(self, lease: HostLease, os: str, pool_prefix: str) -> list[MachineEvent]:
        if await self._exists(lease.holder):
            return []
        subject = f"Host {lease.ref} of machine {lease.holder}, which is gone,"
        if lease.ref.id in await self.recorded_ids():
            text = f"{subject} is used by another machine"
            return [MachineEvent("Warning", events.RELEASE_SKIPPED, text)]
        try:
            lease, reports = await self._wipe(lease, lease.holder, pool_prefix, os, was_bound=True)
        except _Unsettled:
            return []
        except ProviderFailed as error:
            text = f"{subject} is not released: {error}"
            return [MachineEvent("Warning", events.RELEASE_FAILED, text)]
        await self.secrets.delete(lease.holder)
        await self.leases.free(lease)
        return reports

    async def drop(
        self, machine: ScalewayAppleSiliconMachine, lease: HostLease
    ) -> ScalewayAppleSiliconMachine:
        """Give up a host that the machine never had: clear the status, then free the Lease."""
        machine = await self._clear_status(machine, lease)
        await self.leases.free(lease)
        return machine

    async def _own(self, machine: ScalewayAppleSiliconMachine, holder: Holder) -> list[HostLease]:
        own = await self.leases.of(holder)
        ref = recorded_host(machine)
        if ref is None or ref.id in {lease.ref.id for lease in own}:
            return own
        # A host without a Lease was claimed by the existing provider; one with the Lease of another machine is not ours.
        taken = await self.leases.acquire(ref, holder)
        return own if taken is None else [*own, taken]

    async def _wipe(
        self, lease: HostLease, holder: Holder, prefix: str, os: str, *, was_bound: bool
    ) -> tuple[HostLease, list[MachineEvent]]:
        """Rename the host into the pool and reinstall it, unless it is gone or was never the machine's."""
        lease = await self.leases.begin_release(lease)
        if not lease.is_settled(self.clock.now()):
            raise _Unsettled
        ref = lease.ref
        with provider_calls():
            pool_name(prefix, ref)
            try:
                host = await self.provider.host(ref)
            except errors.NotFound:
                host = None
            ending = decide_release(host, ref, holder.name, pool_prefix=prefix, was_bound=was_bound)
            if ending is Ending.NOTHING:
                return lease, []
            if ending is Ending.REFUSE:
                name = host.name[:100] if host else ""
                raise errors.Refused(
                    f"it has the name {name!r}: rename it to {holder.name}, or delete it at the provider"
                )
            reports = await self._wiped(ref, holder.name, prefix, os, ending)
        text = f"Host {ref} is reinstalled and back in the pool"
        return lease, [*reports, MachineEvent("Normal", events.RELEASED, text)]

    async def _wiped(
        self, ref: HostRef, name: str, prefix: str, os: str, ending: Ending
    ) -> list[MachineEvent]:
        try:
            await self._reinstalled(ref, name, prefix, os, ending)
        except errors.InvalidSpec as error:
            await self._reinstalled(ref, name, prefix, "", ending)
            text = f"Host {ref} gets the default image of the provider: {error}"
            return [MachineEvent("Warning", events.OS_PIN_UNAVAILABLE, text)]
        return []

    async def _reinstalled(
        self, ref: HostRef, name: str, prefix: str, os: str, ending: Ending
    ) -> None:
        self.kube.check()
        if ending is Ending.RELEASE:
            await self.provider.release(ref, name, pool_prefix=prefix, os=os)
        else:
            await self.provider.reinstall(ref, os=os)

    async def _forget(
        self,
        machine: ScalewayAppleSiliconMachine,
        holder: Holder,
        held: list[HostLease],
        reports: tuple[MachineEvent, ...],
    ) -> HostOutcome:
        try:
            await self.secrets.delete(holder)
        except errors.LeaseLost:
            raise
        except errors.BramleyError as error:
            text = f"The Secret with the login of the host is not deleted: {error}"
            return waiting(machine, events.DELETE_FAILED, text, before=reports)
        machine = await self._clear_status(machine, None)
        for lease in held:
            await self.leases.free(lease)
        return HostOutcome(machine, events=reports)

    async def _clear_status(
        self, machine: ScalewayAppleSiliconMachine, lease: HostLease | None
    ) -> ScalewayAppleSiliconMachine:
        """Remove the host from the machine; with a Lease only if it is that one's."""
        if lease is not None and machine.status.server_id != lease.ref.id:
            return machine
        with contextlib.suppress(errors.NotFound):
            if machine.spec.provider_id is not None:
                machine = await self.patch(machine, {"spec": {"providerID": None}})
            if machine.status.server_id or machine.status.addresses:
                status = {"serverID": None, "addresses": None, "ready": False}
                machine = await self.patch(machine, {"status": status}, subresource="status")
        return machine

    async def patch(
        self,
        machine: ScalewayAppleSiliconMachine,
        patch: dict[str, Any],
        *,
        subresource: str | None = None,
    ) -> ScalewayAppleSiliconMachine:
        """Write to exactly the version of the machine that was decided on."""
        return await self.kube.merge_patch(
            ScalewayAppleSiliconMachine,
            machine.name,
            patch,
            namespace=machine.namespace,
            subresource=subresource,
            uid=machine.uid,
            resource_version=machine.metadata.resource_version,
        )

    async def _exists(self, holder: Holder) -> bool:
        """Return whether the API server itself finds this machine, and not another one of its name."""
        with contextlib.suppress(errors.NotFound):
            machine = await self.reader.get(
                ScalewayAppleSiliconMachine, holder.name, namespace=holder.namespace
            )
            return machine.uid == holder.uid
        return False

    async def _machines(self) -> AsyncIterator[ScalewayAppleSiliconMachine]:
        async for page in self.reader.pages(ScalewayAppleSiliconMachine):
            for machine in page.items:
                yield machine

    async def recorded_ids(self, *, excluding: str = "") -> set[str]:
        """Return the ids of the hosts that machines have, except for the machine of one uid."""
        return {
            ref.id
            async for machine in self._machines()
            if machine.uid != excluding and (ref := recorded_host(machine)) is not None
        }
