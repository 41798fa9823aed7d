"""The reconciler of ScalewayAppleSiliconMachines: a host of the pool becomes a proven Node, is kept up to date, and goes back wiped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from datetime import timedelta

from msgspec.structs import replace

from bramley.api import conditions
from bramley.api.mac_status import MacStatus
from bramley.api.names import annotations as annotation_names
from bramley.api.names import conditions as types
from bramley.api.names import events, finalizers
from bramley.api.names import machines as names
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachineStatus as Status
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.machines import drift, objects
from bramley.machines.binding import Binding
from bramley.machines.host_access import FleetKeys
from bramley.machines.host_failures import HostFailures
from bramley.machines.host_leases import Holder
from bramley.machines.mac import Mac
from bramley.machines.mac_draft import RESYNC, Act, Decision, Swap
from bramley.machines.machine_caches import BY_FLEET, MachineCaches
from bramley.machines.macs import Macs
from bramley.machines.metrics import MachineMetrics
from bramley.machines.outcomes import REPORTS, HostOutcome, MachineEvent
from bramley.machines.release import Releases, recorded_host
from bramley.runtime.events import Recorder
from bramley.runtime.keys import Key, key_of
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from bramley.runtime.writes import FencedKube

_HALF_MINUTE = timedelta(seconds=30)
_AT_ONCE = timedelta(seconds=1)
# What a machine does not keep when it gets another host.
_UNBOUND = Status()


@dataclass(frozen=True, slots=True)
class MachineReconciler:
    """Brings one machine from the pool to a proven Node, and back."""

    kube: FencedKube
    macs: Macs
    caches: MachineCaches
    binding: Binding
    releases: Releases
    keys: FleetKeys
    failures: HostFailures
    recorder: Recorder
    metrics: MachineMetrics
    clock: Clock
    ssh_port: int = 22

    async def reconcile(self, machine: ScalewayAppleSiliconMachine) -> Outcome:
        """Do the next steps, and report the status."""
        if machine.deleting:
            return await self._delete(machine)
        waiting = self.caches.gate(machine)
        if waiting is not None:
            return waiting
        machine = await self.kube.add_finalizer(machine, finalizers.MACHINE)
        machine = await self._reset_without_host(machine)
        swap = _requested_swap(machine)
        return await self._swap(machine, swap) if swap else await self._serve(machine)

    def forget(self, key: Key) -> None:
        """Drop the metrics of a machine that is gone."""
        self.metrics.forget(key.name)

    async def _serve(self, machine: ScalewayAppleSiliconMachine) -> Outcome:
        problem = self.caches.name_problem(machine, self.macs.caches.node(machine.name))
        if problem and recorded_host(machine) is None:
            report = (types.PROVISIONED, events.NAME_IN_USE, problem)
            await self._report(
                machine, replace(self._blocked(machine.status, *report), phase="Pending")
            )
            return CheckAgain(RESYNC, problem)
        try:
            # Before a host is claimed: keys are installed at its next boot or installation only.
            await self.keys.ensure(machine.spec.fleet_name)
        except errors.LeaseLost:
            raise
        except errors.BramleyError as error:
            # A host that is set up has the key. Without this, an outage would have the whole fleet set up again at once.
            if not _is_bootstrapped(machine):
                report = (types.BOOTSTRAPPED, events.SSH_KEY_UNAVAILABLE, str(error))
                await self._report(machine, self._blocked(machine.status, *report))
                return CheckAgain(_HALF_MINUTE, str(error))
        bound = await self.binding.bind(machine, quarantined=await self.failures.quarantined())
        self._record(bound.machine, bound.events)
        lacks_login = bool(bound.reason) and REPORTS[bound.reason].condition == types.BOOTSTRAPPED
        if not (bound.is_done or (lacks_login and _is_bootstrapped(machine))):
            return await self._report_outcome(bound, "Adopting")
        return await self._converge(bound.machine)

    async def _converge(self, machine: ScalewayAppleSiliconMachine) -> Outcome:
        mac = self._mac(machine)
        status = self._with(machine.status, types.PROVISIONED)
        seen = await self.macs.observe(mac, machine, status)
        decision = self.macs.decide(replaced(seen, fleet=self._fleet(machine)))
        swap = next((each for each in decision.steps if isinstance(each, Swap)), None)
        if swap is not None:
            # The last failure is written first, so that it counts once.
            machine = await self._report(machine, decision.status, decision.events)
            self.macs.start(decision, seen, machine, lambda: self._fleet(machine))
            return await self._swap(machine, swap)
        decision = await self.macs.act(decision, seen)
        machine = await self._carry_out(machine, decision)
        self.macs.start(decision, seen, machine, lambda: self._fleet(machine))
        if seen.operation is not None and seen.operation.result is not None:
            self._enqueue_fleet(machine)
        return decision.outcome

    async def _carry_out(
        self, machine: ScalewayAppleSiliconMachine, decision: Decision
    ) -> ScalewayAppleSiliconMachine:
        """Do what only rented Macs need, then write the status."""
        status, reports = decision.status, decision.events
        if Act("reboot") in decision.steps:
            report = await self._reboot(machine)
            is_issued = report.reason == events.REBOOTING_FOR_RECOVERY
            status, reports = replace(status, bootstrap_reboot_issued=is_issued), (*reports, report)
        machine = await self._report(machine, status, reports)
        host = recorded_host(machine)
        if host is not None and any(each.reason == events.PROVEN for each in reports):
            await self.failures.forget(host)
        if Act("remove annotation") in decision.steps:
            machine = await self._without(machine, annotation_names.REPLACE_TART)
        return machine

    async def _reboot(self, machine: ScalewayAppleSiliconMachine) -> MachineEvent:
        host = recorded_host(machine)
        try:
            self.kube.check()
            if host is not None:
                await self.releases.provider.reboot(host)
        except errors.LeaseLost:
            raise
        except errors.BramleyError as error:
            return MachineEvent("Warning", events.REBOOT_FOR_RECOVERY_FAILED, str(error))
        return MachineEvent("Normal", events.REBOOTING_FOR_RECOVERY, f"Rebooting host {host}")

    async def _swap(self, machine: ScalewayAppleSiliconMachine, swap: Swap) -> Outcome:
        """Release the host of a machine, which gets another one afterwards."""
        machine, waiting = await self._take_out(machine, swap)
        if waiting is not None:
            return waiting
        if swap.reason != events.BOOTSTRAP_EXHAUSTED:
            self._record(machine, (MachineEvent("Normal", swap.reason, swap.message),))
        for name in (annotation_names.QUARANTINE_HOST, annotation_names.RELEASE_HOST):
            machine = await self._without(machine, name)
        await self._reset_without_host(machine)
        return CheckAgain(_AT_ONCE, "the machine gets another host")

    async def _delete(self, machine: ScalewayAppleSiliconMachine) -> Outcome:
        if finalizers.MACHINE not in machine.metadata.finalizers:
            return Settled()
        machine = await self._report(machine, replace(machine.status, phase="Deleting"))
        machine, waiting = await self._take_out(machine, None)
        if waiting is not None:
            return waiting
        self.macs.forget(machine.uid)
        self.metrics.forget(machine.name)
        await self.kube.remove_finalizer(machine, finalizers.MACHINE)
        return Settled()

    async def _take_out(
        self, machine: ScalewayAppleSiliconMachine, swap: Swap | None
    ) -> tuple[ScalewayAppleSiliconMachine, CheckAgain | None]:
        """Drain the Node, revoke the identity of the agent, wipe and release the host, and delete the Node."""
        ref = recorded_host(machine) or await self.releases.leased_host(machine)
        # The Node, the runner and the identity of its name belong to others if the machine never had a host.
        if ref is not None:
            provider_id = self.releases.provider.provider_id(ref)
            mac = replaced(self._mac(machine), provider_id=provider_id)
            draft = await self.macs.observe_for_drain(mac, machine.status)
            waiting = await self.macs.drain(draft) or await self.macs.retire(draft)
            machine = await self._report(machine, draft.status, draft.events)
            if waiting is not None:
                return machine, waiting
            await self._record_failure(machine, swap)
            # Before the release, which may be completed when another host is bound.
            await self.macs.delete_node(draft)
        self.binding.forget(machine.uid)
        outcome = await self.releases.release(machine)
        self._record(outcome.machine, outcome.events)
        if not outcome.is_done:
            return outcome.machine, await self._report_outcome(outcome, None)
        return outcome.machine, None

    async def _record_failure(
        self, machine: ScalewayAppleSiliconMachine, swap: Swap | None
    ) -> None:
        """Record what is known about a host before it is released, so that a bad one is not adopted again and again."""
        host = recorded_host(machine)
        if swap is None or host is None:
            return
        if swap.reason == events.HOST_QUARANTINED:
            await self.failures.quarantine(host, swap.message)
        elif swap.reason == events.BOOTSTRAP_EXHAUSTED:
            self._record(machine, (MachineEvent("Normal", swap.reason, swap.message),))
            last = conditions.find(machine.status.conditions, types.BOOTSTRAPPED)
            why = last.message if last is not None and last.message else swap.message
            if await self.failures.record(host, Holder.of(machine), why):
                text = f"Host {host} has failed under several machines and is not adopted again"
                self._record(machine, (MachineEvent("Warning", events.HOST_QUARANTINED, text),))

    async def _reset_without_host(
        self, machine: ScalewayAppleSiliconMachine
    ) -> ScalewayAppleSiliconMachine:
        """Drop what the status says about a host that was released, before another one is bound."""
        found = conditions.find(machine.status.conditions, types.BOOTSTRAPPED)
        # A machine that waits for the key of its fleet has had no host yet.
        is_waiting = found is not None and found.reason == events.SSH_KEY_UNAVAILABLE
        is_reset = found is None or (is_waiting and not machine.status.bootstrap_attempts)
        if recorded_host(machine) is not None or (is_reset and not machine.status.ready):
            return machine
        text = "the host was released; another one is claimed next"
        status = replace(_UNBOUND, phase="Pending")
        status = self._with(status, types.PROVISIONED, events.HOST_RELEASED, text, "Warning")
        self.macs.forget(machine.uid)
        return await self._report(machine, status)

    async def _report_outcome(self, outcome: HostOutcome, phase: str | None) -> CheckAgain:
        report = REPORTS[outcome.reason]
        status = self._blocked(
            outcome.machine.status,
            report.condition,
            outcome.reason,
            outcome.message,
            report.severity,
        )
        if phase is not None and not status.ready:
            status = replace(status, phase=phase)
        await self._report(outcome.machine, status)
        return CheckAgain(outcome.requeue_after or _HALF_MINUTE, outcome.message)

    def _blocked(
        self, status: Status, type: str, reason: str, message: str, severity: str = "Error"
    ) -> Status:
        """Report why a machine is not worked on."""
        status = self._with(status, type, reason, message, severity)
        return self._with(status, types.READY, reason, message, severity)

    def _with(
        self,
        status: Status,
        type: str,
        problem: str = "",
        message: str = "",
        severity: str = "Error",
    ) -> Status:
        found = objects.put_condition(
            status.conditions,
            type,
            problem,
            message=message,
            severity=severity,
            now=self.clock.now(),
        )
        return replace(status, conditions=found)

    async def _report(
        self,
        machine: ScalewayAppleSiliconMachine,
        status: MacStatus,
        reports: Sequence[MachineEvent] = (),
    ) -> ScalewayAppleSiliconMachine:
        """Write the status to the version that was decided on, then record the events."""
        status = replace(status, observed_generation=machine.metadata.generation)
        if status != machine.status:
            body = {"status": objects.status_wire(status)}
            machine = await objects.patch(self.kube, machine, body, subresource="status")
        phase = machine.status.phase or ""
        reason = events.UPDATE_EXCEEDED_RETRIES if phase == "Failed" else ""
        self.metrics.set_phase(machine.name, machine.spec.fleet_name, phase, reason)
        self._record(machine, reports)
        return machine

    def _record(
        self, machine: ScalewayAppleSiliconMachine, reports: Sequence[MachineEvent]
    ) -> None:
        for each in reports:
            self.recorder.event(machine, each.reason, each.message, type=each.type)

    async def _without(
        self, machine: ScalewayAppleSiliconMachine, annotation: str
    ) -> ScalewayAppleSiliconMachine:
        if annotation not in machine.metadata.annotations:
            return machine
        return await objects.patch(
            self.kube, machine, {"metadata": {"annotations": {annotation: None}}}
        )

    def _fleet(self, machine: ScalewayAppleSiliconMachine) -> list[drift.Member]:
        """Return the hosts of the fleet that serve, this one included."""
        found = self.caches.machines.by_index(BY_FLEET, machine.spec.fleet_name)
        others = [each for each in found if each.uid != machine.uid and _serves(each)]
        return [self.macs.member(each, each.status) for each in (*others, machine)]

    def _enqueue_fleet(self, machine: ScalewayAppleSiliconMachine) -> None:
        """Enqueue the machines that may have waited for this one."""
        for each in self.caches.machines.by_index(BY_FLEET, machine.spec.fleet_name):
            if not conditions.is_true(each.status.conditions, types.UP_TO_DATE):
                self.macs.trigger.enqueue(key_of(each))

    def _mac(self, machine: ScalewayAppleSiliconMachine) -> Mac:
        spec, addresses = machine.spec, machine.status.addresses
        return Mac(
            holder=Holder.of(machine),
            provider_id=spec.provider_id or "",
            address=addresses[0].address if addresses else "",
            user=names.DEFAULT_SSH_USER,
            port=self.ssh_port,
            fleet=spec.fleet_name,
            host_cpu=spec.host_cpu or 0,
            host_memory_mb=spec.host_memory_mb or 0,
            settings=spec,
            builder=spec.gh_actions_runner,
        )


def _is_bootstrapped(machine: ScalewayAppleSiliconMachine) -> bool:
    return conditions.is_true(machine.status.conditions, types.BOOTSTRAPPED)


def _serves(machine: ScalewayAppleSiliconMachine) -> bool:
    return _is_bootstrapped(machine) and not machine.deleting


def _requested_swap(machine: ScalewayAppleSiliconMachine) -> Swap | None:
    """Return the release of the host that a person has requested."""
    marks = machine.metadata.annotations
    if annotation_names.QUARANTINE_HOST in marks:
        why = marks[annotation_names.QUARANTINE_HOST] or "by hand"
        return Swap(events.HOST_QUARANTINED, f"The host is quarantined: {why[:200]}")
    if annotation_names.RELEASE_HOST in marks:
        return Swap(events.RELEASED, "The host was released by hand")
    return None
