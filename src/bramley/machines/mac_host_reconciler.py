"""The reconciler of MacHosts: a Mac that its team owns becomes a proven Node, is kept up to date, and is cleaned when it leaves."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from datetime import timedelta

from msgspec.structs import replace

from bramley.api import conditions
from bramley.api.mac_host import MacHost
from bramley.api.mac_status import MacStatus
from bramley.api.names import annotations as annotation_names
from bramley.api.names import conditions as types
from bramley.api.names import events, finalizers
from bramley.api.names import machines as names
from bramley.base.clock import Clock
from bramley.machines import drift, objects
from bramley.machines.host_leases import Holder
from bramley.machines.host_operations import Kind, State
from bramley.machines.mac import Mac
from bramley.machines.mac_draft import Act
from bramley.machines.macs import Macs
from bramley.machines.outcomes import MachineEvent
from bramley.runtime.cache import Cache
from bramley.runtime.events import Recorder
from bramley.runtime.keys import key_of
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from bramley.runtime.writes import FencedKube

BY_FLEET = "mac-hosts.fleet"
BY_ADDRESS = "mac-hosts.address"
BY_NAME = "mac-hosts.name"
_RENAME = "create this MacHost again with another name"
_RETRY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class MacHostReconciler:
    """Brings one Mac from bare to a proven Node, and back."""

    kube: FencedKube
    macs: Macs
    hosts: Cache[MacHost]
    recorder: Recorder
    clock: Clock

    def index(self) -> None:
        """Add the indexes."""
        self.hosts.index(BY_FLEET, lambda each: [each.spec.fleet_name])
        self.hosts.index(BY_ADDRESS, lambda each: [_address(each)])
        self.hosts.index(BY_NAME, lambda each: [each.name])

    async def reconcile(self, host: MacHost) -> Outcome:
        """Do the next steps, and report the status."""
        if host.deleting:
            return await self._delete(host)
        if annotation_names.PAUSED in host.metadata.annotations:
            return Settled()
        host = await self.kube.add_finalizer(host, finalizers.MAC_HOST)
        problem = self._problem(host)
        status = self._with(host.status, types.PROVISIONED, *problem)
        if problem:
            return await self._refuse(host, status, *problem)
        if host.metadata.generation != status.observed_generation:
            # The change may have removed the cause of the last failure.
            status = replace(status, last_bootstrap_failure_time=None)
            if not conditions.is_true(status.conditions, types.BOOTSTRAPPED):
                await self.macs.operations.cancel(host.uid)
        return await self._converge(host, status)

    async def _refuse(
        self, host: MacHost, status: MacStatus, reason: str, message: str
    ) -> CheckAgain:
        """Report why the Mac is left alone, with one event."""
        before = conditions.find(host.status.conditions, types.PROVISIONED)
        is_known = before is not None and before.message == message
        status = self._with(status, types.READY, reason, message)
        event = MachineEvent("Warning", reason, message)
        await self._report(host, replace(status, phase="Pending"), () if is_known else (event,))
        return CheckAgain(_RETRY, message)

    async def _converge(self, host: MacHost, status: MacStatus) -> Outcome:
        mac = _mac(host)
        seen = await self.macs.observe(mac, host, status)
        decision = self.macs.decide(replaced(seen, is_rented=False, fleet=self._fleet(host)))
        decision = await self.macs.act(decision, seen)
        host = await self._report(host, decision.status, decision.events)
        if Act("remove annotation") in decision.steps:
            mark = {"metadata": {"annotations": {annotation_names.REPLACE_TART: None}}}
            host = await objects.patch(self.kube, host, mark)
        self.macs.start(decision, seen, host, lambda: self._fleet(host))
        return decision.outcome

    async def _delete(self, host: MacHost) -> Outcome:
        if finalizers.MAC_HOST not in host.metadata.finalizers:
            return Settled()
        # The phase is written before anything is revoked, so it shows that there is something to take out.
        if host.status.phase == "Deleting" or await self._was_reached(host):
            host = await self._report(host, replace(host.status, phase="Deleting"))
            waiting = await self._take_out(host)
            if waiting is not None:
                return waiting
        self.macs.forget(host.uid)
        await self.kube.remove_finalizer(host, finalizers.MAC_HOST)
        return Settled()

    async def _take_out(self, host: MacHost) -> CheckAgain | None:
        """Drain the Node, revoke the identity of the agent, clean the Mac, and delete the Node; None once that is done."""
        draft = await self.macs.observe_for_drain(_mac(host), host.status)
        waiting = await self.macs.drain(draft)
        state = self.macs.operations.find(host.uid)
        is_cleaning = state is not None and state.operation.kind is Kind.CLEANUP
        if waiting is None and not is_cleaning:
            waiting = await self.macs.retire(draft)
        host = await self._report(host, draft.status, draft.events)
        waiting = waiting or await self._clean_up(host, state if is_cleaning else None)
        if waiting is None:
            await self.macs.delete_node(draft)
        return waiting

    async def _clean_up(self, host: MacHost, state: State | None) -> CheckAgain | None:
        """Remove everything from the Mac; None once that is done."""
        if state is None:
            if annotation_names.SKIP_CLEANUP in host.metadata.annotations:
                return None
            if self._older(BY_ADDRESS, _address(host), host) is not None:
                # Its address was changed to that of another one, whose Mac may run jobs.
                return None
            left = self.macs.operations.postponed(host.uid)
            if not left:
                self.macs.start_clean_up(_mac(host), host)
            return CheckAgain(left or _RETRY, "the Mac is being cleaned")
        if state.result is None:
            return CheckAgain(_RETRY, f"the Mac is being cleaned: {state.step}")
        self.macs.operations.acknowledge(host.uid, state.result)
        error = state.result.error
        if error is None:
            self._record(host, (MachineEvent("Normal", events.CLEANED_UP, "The Mac is clean"),))
            return None
        text = f"{_mac(host).describe(error)}; to delete the MacHost without it: kubectl annotate machost {host.name} {annotation_names.SKIP_CLEANUP}=true"
        self._record(host, (MachineEvent("Warning", events.CLEANUP_FAILED, text),))
        status = self._with(host.status, types.PROVISIONED, events.CLEANUP_FAILED, text)
        status = self._with(status, types.READY, events.CLEANUP_FAILED, text)
        await self._report(host, status)
        self.macs.operations.postpone(host.uid, _RETRY)
        return CheckAgain(_RETRY, text)

    async def _was_reached(self, host: MacHost) -> bool:
        """Return whether anything was ever done on the Mac; otherwise what has its name belongs to another host."""
        # It could reach the Mac just after this.
        await self.macs.operations.cancel(host.uid)
        node = self.macs.caches.node(host.name)
        if node is not None and node.spec.provider_id == _mac(host).provider_id:
            return True
        was_begun = conditions.find(host.status.conditions, types.BOOTSTRAPPED) is not None
        was_set_up = bool(host.status.host_config_hash)
        return was_begun and (was_set_up or await self.macs.work.has_identity(host.name))

    def _problem(self, host: MacHost) -> tuple[str, str] | tuple[()]:
        """Return the reason and the message why the Mac is left alone; empty if there is none."""
        if other := self._older(BY_ADDRESS, _address(host), host):
            text = f"spec.address: the MacHost {key_of(other)} has {host.spec.address}:{host.spec.port}, too"
            return events.ADDRESS_IN_USE, f"{text}; change the address, or delete one of the two"
        if other := self._older(BY_NAME, host.name, host):
            text = f"metadata.name: the MacHost {key_of(other)} has this name, too; {_RENAME}"
            return events.NAME_IN_USE, text
        mac, node = _mac(host), self.macs.caches.node(host.name)
        if node is not None and not mac.owns(node):
            return events.NAME_IN_USE, f"metadata.name: {mac.foreign_node(node)}; {_RENAME}"
        return ()

    def _older(self, index: str, value: Hashable, host: MacHost) -> MacHost | None:
        """Return another MacHost with the same value of an index, which was there first."""
        found = self.hosts.by_index(index, value)
        others = (each for each in found if each.uid != host.uid and objects.is_older(each, host))
        return next(others, None)

    def _fleet(self, host: MacHost) -> list[drift.Member]:
        """Return the hosts of the fleet that serve, this one included."""
        found = self.hosts.by_index(BY_FLEET, host.spec.fleet_name)
        others = [each for each in found if each.uid != host.uid and _serves(each)]
        return [self.macs.member(each, each.status) for each in (*others, host)]

    def _with(
        self, status: MacStatus, type: str, problem: str = "", message: str = ""
    ) -> MacStatus:
        found = objects.put_condition(
            status.conditions,
            type,
            problem,
            message=message,
            severity="Error",
            now=self.clock.now(),
        )
        return replace(status, conditions=found)

    async def _report(
        self, host: MacHost, status: MacStatus, reports: Sequence[MachineEvent] = ()
    ) -> MacHost:
        """Write the status to the version that was decided on, then record the events."""
        status = replace(status, observed_generation=host.metadata.generation)
        if status != host.status:
            body = {"status": objects.status_wire(status)}
            host = await objects.patch(self.kube, host, body, subresource="status")
        self._record(host, reports)
        return host

    def _record(self, host: MacHost, reports: Sequence[MachineEvent]) -> None:
        for each in reports:
            self.recorder.event(host, each.reason, each.message, type=each.type)


def _address(host: MacHost) -> tuple[str, int]:
    return host.spec.address, host.spec.port


def _mac(host: MacHost) -> Mac:
    spec = host.spec
    return Mac(
        holder=Holder.of(host),
        provider_id=names.mac_host_provider_id(host.namespace or "", host.name),
        address=spec.address,
        user=spec.user,
        port=spec.port,
        fleet=spec.fleet_name,
        labels=spec.labels,
        host_cpu=spec.host_cpu or 0,
        host_memory_mb=spec.host_memory_mb or 0,
        settings=spec,
        builder=spec.gh_actions_runner,
        credentials_secret_name=spec.credentials_secret_name,
    )


def _serves(host: MacHost) -> bool:
    return conditions.is_true(host.status.conditions, types.BOOTSTRAPPED) and not host.deleting
