"""Marks the Machines whose hosts run no job, so that Cluster API deletes those first when a MachineDeployment is scaled down."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from bramley.api.cluster_api import Machine
from bramley.api.core import Pod
from bramley.api.names import annotations as annotation_names
from bramley.api.names import cluster_api as names
from bramley.api.names import labels
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.base import errors
from bramley.machines import builder_runners
from bramley.machines.macs import Caches
from bramley.machines.runner_registration import RunnerDirectory
from bramley.runtime.cache import Cache
from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key, key_of
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from bramley.runtime.writes import FencedKube

BY_HOST = "idle-machines.host"
_BUILDER_RETRY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class IdleMachineReconciler:
    """Keeps the annotation of one Machine up to date."""

    kube: FencedKube
    hosts: Cache[ScalewayAppleSiliconMachine]
    caches: Caches
    runners: RunnerDirectory

    async def reconcile(self, machine: Machine) -> Outcome:
        """Add or remove the mark; a mark with another value is that of a person, and stays."""
        host = _host(machine)
        current = machine.metadata.annotations.get(names.DELETE_MACHINE)
        if machine.deleting or not host or current not in {None, annotation_names.IDLE}:
            return Settled()
        found = self.hosts.find(Key(machine.namespace or "", host))
        builder = found.spec.gh_actions_runner if found is not None else None
        is_busy = self.caches.is_busy(host)
        if builder is not None and not is_busy:
            is_busy = await builder_runners.is_busy(
                self.runners, machine.namespace or "", builder, host
            )
        mark = None if is_busy else annotation_names.IDLE
        if mark != current:
            with suppress(errors.NotFound):
                await self.kube.merge_patch(
                    Machine,
                    machine.name,
                    {"metadata": {"annotations": {names.DELETE_MACHINE: mark}}},
                    namespace=machine.namespace,
                    uid=machine.uid,
                )
        # A forge enqueues nothing.
        return CheckAgain(_BUILDER_RETRY, "its runner may get a job") if builder else Settled()


def _host(machine: Machine) -> str:
    """Return the name of the host, which is also that of its Node; empty for a Machine of another provider."""
    reference = machine.spec.infrastructure_ref
    is_ours = reference.kind == ScalewayAppleSiliconMachine.resource.kind
    return reference.name if is_ours else ""


def add(
    manager: Manager,
    machines: Cache[Machine],
    hosts: Cache[ScalewayAppleSiliconMachine],
    caches: Caches,
    runners: RunnerDirectory,
) -> None:
    """Add the controller."""
    machines.index(BY_HOST, lambda each: [_host(each)])

    def of_pod(pod: Pod) -> list[Key]:
        node = pod.spec.node_name
        return [key_of(each) for each in machines.by_index(BY_HOST, node)] if node else []

    reconciler = IdleMachineReconciler(manager.kube, hosts, caches, runners)
    controller = Controller(reconciler, name="idle-machines")
    manager.add(
        controller.for_kind(Machine).watches(Pod, to=of_pod, labels={labels.RUNNER: labels.TRUE})
    )
