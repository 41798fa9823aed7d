"""Binds a machine to one host: observe, decide, act, in steps of which each may be the last of this process.

The order is: Lease, status, claim, another look at the host a little later, provider id, Secret. The id of the host is in the Lease and in the status before the provider is
called, so that the next leader claims the same host. The Lease is kept if a write of the status is lost, because it is another
object, found by the uid of the machine. `spec.providerID` shows that the claim was completed.

A leader that was paused and continues here has no effect: `FencedKube` refuses its writes to the API, or they fail because of their
version; a claim of the same host for the same machine may be repeated; and `release.fenced_account` refuses requests to the provider.
"""

from __future__ import annotations

import contextlib
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.api.names import events, machines
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine, os_family
from bramley.base import errors
from bramley.machines import bootstrap_secrets
from bramley.machines.bootstrap_secrets import BootstrapSecrets
from bramley.machines.host_decisions import Decision, Step, choose, decide
from bramley.machines.host_leases import CONFIRMED_AFTER, Holder, HostLease, HostLeases
from bramley.machines.outcomes import HostOutcome, MachineEvent, ProviderFailed, waiting
from bramley.machines.release import Releases, provider_calls, recorded_host
from bramley.providers.provider import Host, HostCredentials, HostProvider, HostRef, checked_name
from bramley.providers.selection import HostRequirements
from bramley.providers.zone_lists import ZoneLists
from bramley.runtime.writes import FencedKube


@dataclass(frozen=True, slots=True)
class Binding:
    """Binds machines to hosts."""

    provider: HostProvider
    zones: ZoneLists
    leases: HostLeases
    secrets: BootstrapSecrets
    releases: Releases
    kube: FencedKube
    # The host of each machine whose Lease this process has seen, so that machines at rest cost no request for it.
    verified: dict[str, HostRef] = field(default_factory=dict)
    # The failed attempts after which the login of each machine was read last.
    refreshed: dict[str, int] = field(default_factory=dict)

    async def bind(
        self, machine: ScalewayAppleSiliconMachine, *, quarantined: AbstractSet[str] = frozenset()
    ) -> HostOutcome:
        """Do the next steps towards one host with credentials; repeat it for as long as the machine is not deleted.

        A done outcome has the host. Errors of the Kubernetes API are raised, for the runtime; all others are in the outcome.
        """
        prefix = machine.spec.adopt_pool_prefix or self.releases.default_pool_prefix
        required = required_host(machine, prefix)
        if isinstance(required, HostOutcome):
            return required
        attempt = _Attempt(self, machine, required, quarantined)
        try:
            return await attempt.run()
        except ProviderFailed as error:
            if attempt.is_usable:
                # What is known is not made wrong by a provider that does not answer.
                return HostOutcome(attempt.machine, events=tuple(attempt.events))
            return attempt.wait(events.ADOPT_FAILED, str(error), error)

    def forget(self, uid: str) -> None:
        """Drop what is remembered about a machine that is released or gone."""
        self.verified.pop(uid, None)
        self.refreshed.pop(uid, None)


def required_host(
    machine: ScalewayAppleSiliconMachine, prefix: str
) -> HostRequirements | HostOutcome:
    """Return the host that a machine needs, or why there is none. Pure."""
    name, os = machine.name, machine.spec.os
    if not prefix:
        text = (
            "neither spec.adoptPoolPrefix nor the manager has a prefix of the names of free hosts"
        )
        return waiting(machine, events.NO_ADOPT_POOL_PREFIX, text)
    if not any(character.isalpha() for character in os_family(os)):
        text = (
            f"spec.os {os!r} names no family of macOS releases; an example is {machines.DEFAULT_OS}"
        )
        return waiting(machine, events.INVALID_OS_PIN, text)
    try:
        checked_name(name)
        checked_name(f"{prefix}x")
    except errors.InvalidSpec as error:
        return waiting(machine, events.ADOPT_FAILED, str(error))
    if name.startswith((prefix, machines.CLAIM_PREFIX)):
        # Its host would look like one of the pool.
        text = f"the name of the machine begins like those of free hosts; rename it, or change the prefix {prefix}"
        return waiting(machine, events.ADOPT_FAILED, text)
    return HostRequirements(name, machine.spec.type, os, prefix)


@dataclass(slots=True)
class _Attempt:
    """One attempt; `machine` is as it was written last."""

    parts: Binding
    machine: ScalewayAppleSiliconMachine
    required: HostRequirements
    quarantined: AbstractSet[str]
    events: list[MachineEvent] = field(default_factory=list)
    # Whether the machine has the Lease of the host that it is bound to.
    is_owner: bool = False

    @property
    def is_usable(self) -> bool:
        """Return whether the host can be used without another look at it."""
        return self.is_owner and bool(self.machine.status.addresses)

    async def run(self) -> HostOutcome:
        seen = await self._verified_host()
        if seen is not None:
            return await self._finish(seen)
        own = await self.parts.leases.of(self._holder)
        if any(lease.is_releasing for lease in own):
            return await self._finish_release()
        lease = await self._current_lease(own)
        if isinstance(lease, HostOutcome):
            return lease
        if lease is not None:
            outcome = await self._resume(lease)
            if outcome is not None:
                return outcome
        return await self._choose()

    def wait(
        self,
        reason: str,
        message: str,
        error: ProviderFailed | None = None,
        *,
        after: timedelta | None = None,
    ) -> HostOutcome:
        after = error.after if error is not None else after
        return waiting(self.machine, reason, message, before=tuple(self.events), after=after)

    @property
    def _holder(self) -> Holder:
        return Holder.of(self.machine)

    def _is_bound_to(self, ref: HostRef) -> bool:
        return self.machine.spec.provider_id == self.parts.provider.provider_id(ref)

    async def _verified_host(self) -> Host | None:
        """Return the host of a machine at rest, from the list that all machines share."""
        ref = self.parts.verified.get(self.machine.uid)
        if ref is None or recorded_host(self.machine) != ref or not self._is_bound_to(ref):
            return None
        self.is_owner = True
        hosts = await self._listed(ref.zone)
        return next(
            (each for each in hosts if (each.ref, each.name) == (ref, self.required.name)), None
        )

    async def _finish_release(self) -> HostOutcome:
        self.parts.forget(self.machine.uid)
        outcome = await self.parts.releases.release(self.machine)
        self.machine = outcome.machine
        self.events += outcome.events
        if not outcome.is_done:
            return outcome
        return self.wait(events.RELEASING, "the last host is released; another one is claimed next")

    async def _current_lease(self, own: list[HostLease]) -> HostLease | HostOutcome | None:
        """Return the Lease of the recorded host, or else the first one; a recorded host of another machine is not used."""
        ref = recorded_host(self.machine)
        if ref is None:
            return own[0] if own else None
        found = next((lease for lease in own if lease.ref.id == ref.id), None)
        lease = found or await self.parts.leases.acquire(ref, self._holder)
        if lease is not None:
            return lease
        if self._is_bound_to(ref):
            text = f"the Lease of host {ref} belongs to another machine"
            return self.wait(events.HOST_NAME_CHANGED, text)
        await self._record("")
        return own[0] if own else None

    async def _resume(self, lease: HostLease) -> HostOutcome | None:
        """Continue with a host that this machine has the Lease of; None if it has to get another one."""
        is_bound = self.is_owner = self._is_bound_to(lease.ref)
        if not is_bound:
            lease = await self.parts.leases.take_over(lease)
        now = self.parts.releases.clock.now()
        unconfirmed = timedelta() if is_bound else lease.unconfirmed_for(now)
        host = await self._read(lease.ref)
        is_settled = lease.is_settled(now)
        decision = decide(host, self.required, is_bound=is_bound, is_settled=is_settled)
        if decision.step is Step.GIVE_UP:
            self.machine = await self.parts.releases.drop(self.machine, lease)
            return None
        if host is not None and decision.step is Step.CLAIM:
            return await self._claim(await self.parts.leases.stamp(lease), host)
        if host is not None and decision.step is Step.USE:
            return self._confirm(host, unconfirmed) if unconfirmed else await self._finish(host)
        return self._explain(lease.ref, host, decision)

    def _confirm(self, host: Host, unconfirmed: timedelta) -> HostOutcome:
        """Wait until no other cluster can take the host away; then it is read again."""
        text = f"Host {host.ref} has the name {host.name}, and is used if it keeps it"
        return self.wait(events.ADOPTING, text, after=unconfirmed)

    def _explain(self, ref: HostRef, host: Host | None, decision: Decision) -> HostOutcome:
        text = f"Host {ref} is not used: {decision.why}"
        if decision.step is Step.WAIT:
            return self.wait(events.ADOPTING, text)
        return self.wait(events.HOST_GONE if host is None else events.HOST_NAME_CHANGED, text)

    async def _choose(self) -> HostOutcome:
        """Acquire the Lease of a host that fits, and claim it."""
        reports = MachineEvent("Normal", events.ADOPTING, f"Looking for a host in {self._zone}")
        self.events.append(reports)
        hosts = await self._listed(self._zone)
        leased = {lease.ref.id for lease in await self.parts.leases.all()}
        if any(host.name == self.required.name for host in hosts):
            leased |= await self.parts.releases.recorded_ids(excluding=self.machine.uid)
        choice = choose(hosts, self.required, leased=leased, quarantined=self.quarantined)
        if isinstance(choice, Decision):
            is_wait = choice.step is Step.WAIT
            reason = events.NO_AVAILABLE_HOST if is_wait else events.ADOPT_FAILED
            return self.wait(reason, choice.why)
        for listed in choice:
            lease = await self.parts.leases.acquire(listed.ref, self._holder)
            if lease is None:
                continue
            host = await self._read(lease.ref)
            # Nothing was claimed under this Lease yet, so nothing can be under way.
            decision = decide(host, self.required, is_bound=False, is_settled=True)
            if host is not None and decision.step is Step.CLAIM:
                return await self._claim(lease, host)
            if host is not None and decision.step is Step.USE:
                return self._confirm(host, CONFIRMED_AFTER)
            if decision.step is Step.WAIT:
                return self._explain(lease.ref, host, decision)
            await self.parts.leases.free(lease)
        text = f"all {len(choice)} hosts that fitted were taken by others"
        return self.wait(events.NO_AVAILABLE_HOST, text)

    async def _claim(self, lease: HostLease, host: Host) -> HostOutcome:
        await self._record(host.ref.id)
        self.parts.kube.check()
        with provider_calls():
            claimed = await self.parts.provider.claim(host, self.required.name)
        if claimed is None:
            # Read again before anything is given up: the name that was read may be an old one.
            return self.wait(events.ADOPTING, f"Host {lease.ref} changed while it was claimed")
        text = f"Host {host.ref} has the name {claimed.name}"
        self.events.append(MachineEvent("Normal", events.ADOPTED, text))
        await self.parts.leases.stamp(lease)
        return self._confirm(claimed, CONFIRMED_AFTER)

    async def _finish(self, host: Host) -> HostOutcome:
        """Write the address, the provider id and the Secret, as far as they are missing."""
        await self._record(host.ref.id)
        was_bound = self._is_bound_to(host.ref)
        login = None
        if not was_bound or not self.machine.status.addresses or self._has_failed_since():
            with provider_calls():
                login = await self.parts.provider.credentials(host.ref)
            if login.address not in {each.address for each in self.machine.status.addresses}:
                address = {"type": "ExternalIP", "address": login.address}
                await self._patch_status({"addresses": [address]})
        if not was_bound:
            if self.machine.spec.provider_id is not None:
                await self._patch_provider_id(None)
            await self._patch_provider_id(self.parts.provider.provider_id(host.ref))
        outcome = await self._ensure_secret(host, login, was_bound=was_bound)
        if outcome.is_done:
            self.parts.verified[self.machine.uid] = host.ref
            self.parts.refreshed[self.machine.uid] = self.machine.status.bootstrap_attempts
        return outcome

    def _has_failed_since(self) -> bool:
        """Return whether an attempt has failed since the login was read: people may have installed the host again."""
        attempts = self.machine.status.bootstrap_attempts
        return attempts > self.parts.refreshed.get(self.machine.uid, 0)

    async def _ensure_secret(
        self, host: Host, login: HostCredentials | None, *, was_bound: bool
    ) -> HostOutcome:
        secrets, holder = self.parts.secrets, self._holder
        old = await secrets.find(self.machine.name)
        is_ours = bootstrap_secrets.is_of(old, holder, host.ref, is_bound=was_bound)
        is_current = is_ours and bootstrap_secrets.has_password(old, login)
        if old is None or not is_current:
            try:
                with provider_calls():
                    login = login or await self.parts.provider.credentials(host.ref)
            except ProviderFailed as error:
                return self.wait(events.CREDENTIALS_REFRESH_FAILED, str(error), error)
            if login.sudo_password is None:
                text = f"the provider does not disclose the password of host {host.ref}"
                return self.wait(events.MISSING_SUDO_PASSWORD, text)
            try:
                await secrets.store(holder, host.ref, login, old)
            except errors.LeaseLost:
                raise
            except errors.BramleyError as error:
                text = f"the Secret with the login is not written: {error}"
                return self.wait(events.CREDENTIALS_PERSIST_FAILED, text)
            reason = events.CREDENTIALS_RECLAIMED if was_bound else events.PROVISIONED
            text = f"Login of host {host.ref} stored"
            self.events.append(MachineEvent("Normal", reason, text))
        return HostOutcome(self.machine, host, events=tuple(self.events))

    @property
    def _zone(self) -> str:
        return self.machine.spec.zone

    async def _listed(self, zone: str) -> tuple[Host, ...]:
        with provider_calls():
            return tuple((await self.parts.zones.current(zone)).hosts)

    async def _read(self, ref: HostRef) -> Host | None:
        with provider_calls(), contextlib.suppress(errors.NotFound):
            return await self.parts.provider.host(ref)
        return None

    async def _record(self, host_id: str) -> None:
        if self.machine.status.server_id != host_id:
            await self._patch_status({"serverID": host_id or None})

    async def _patch_status(self, status: dict[str, object]) -> None:
        self.machine = await self.parts.releases.patch(
            self.machine, {"status": status}, subresource="status"
        )

    async def _patch_provider_id(self, provider_id: str | None) -> None:
        self.machine = await self.parts.releases.patch(
            self.machine, {"spec": {"providerID": provider_id}}
        )
