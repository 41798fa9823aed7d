"""Keeps the status of PodDisruptionBudgets, from which evictions learn whether a Pod may go now.

What a share is a share of, the Pods' controllers say: Deployments and ReplicaSets from the cache, all others by their scale.
A budget that cannot be counted allows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from bramley.api.apps import Deployment, ReplicaSet
from bramley.api.core import Pod
from bramley.api.label_selectors import matches
from bramley.api.meta import OwnerReference
from bramley.api.policy import PodDisruptionBudget, PodDisruptionBudgetStatus
from bramley.apiserver.controllers import disruption_budget
from bramley.apiserver.controllers.discovery import Kinds, discover
from bramley.apiserver.controllers.replica_sets import claiming
from bramley.apiserver.controllers.timings import Timings
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.cache import Cache
from bramley.runtime.controller import Controller
from bramley.runtime.events import Recorder
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from bramley.runtime.writes import FencedKube

NAME = "controllermanager"


@dataclass(frozen=True, slots=True)
class BudgetReconciler:
    """Counts what each budget allows."""

    client: Client
    kube: FencedKube
    pods: Cache[Pod]
    sets: Cache[ReplicaSet]
    deployments: Cache[Deployment]
    recorder: Recorder
    clock: Clock
    timings: Timings
    kinds: Kinds = field(default_factory=Kinds)

    async def reconcile(self, budget: PodDisruptionBudget) -> Outcome:
        """Count the Pods of a budget and write down what that allows."""
        pods = [
            pod
            for pod in self.pods.all(namespace=budget.namespace)
            if matches(budget.spec.selector, pod.metadata.labels)
        ]
        try:
            expected = await self._expected(budget, pods)
        except (errors.NotFound, errors.Refused) as error:
            await self._fail(budget, str(error))
            raise errors.ApiUnavailable(str(error)) from error
        counted = disruption_budget.count(
            budget,
            pods,
            expected=expected,
            now=self.clock.now(),
            patience=self.timings.disruption_patience,
        )
        self._tell_late(budget, counted.late)
        await self._write(budget, counted.status)
        if counted.again is None:
            return Settled()
        return CheckAgain(counted.again, "an evicted Pod was not seen going yet")

    def _tell_late(self, budget: PodDisruptionBudget, late: Sequence[Pod]) -> None:
        message = (
            f"Pod was expected by PDB {budget.namespace}/{budget.name} to be deleted but it wasn't"
        )
        for pod in late:
            self.recorder.warning(pod, "NotDeleted", message)

    async def _expected(self, budget: PodDisruptionBudget, pods: Sequence[Pod]) -> int:
        if not pods:
            self.recorder.event(budget, "NoPods", "No matching pods found")
        if not disruption_budget.needs_scale(budget):
            return len(pods)
        owners = {ref.uid: ref for pod in pods if (ref := claiming.controller_of(pod)) is not None}
        if any(claiming.controller_of(pod) is None for pod in pods):
            message = (
                "Pods selected by this PodDisruptionBudget were found to be unmanaged. As a result, the status of the PDB "
                "cannot be calculated correctly, which may result in undefined behavior. To account for these pods please "
                'set ".spec.minAvailable" field of the PDB to an integer value.'
            )
            self.recorder.warning(budget, "UnmanagedPods", message)
        scales: dict[str, int] = {}
        for ref in owners.values():
            uid, replicas = await self._scale(ref, budget.namespace or "")
            scales[uid] = replicas
        return sum(scales.values())

    async def _scale(self, ref: OwnerReference, namespace: str) -> tuple[str, int]:
        """Return who decides how many there are, and how many that are."""
        owner = self.sets.find(Key(namespace, ref.name))
        if owner is not None and owner.uid == ref.uid:
            above = claiming.controller_of(owner)
            found = self.deployments.find(Key(namespace, above.name)) if above else None
            if above is not None and found is not None and found.uid == above.uid:
                return found.uid, found.spec.replicas
            return owner.uid, owner.spec.replicas
        resource = (await discover(self.client)).find(ref.api_version, ref.kind)
        if resource is None:
            raise errors.NotFound(f"no controller of the kind {ref.kind} is served")
        scale = await self.client.get_scale(self.kinds.of(resource), ref.name, namespace=namespace)
        return ref.uid, scale.spec.replicas

    async def _fail(self, budget: PodDisruptionBudget, why: str) -> None:
        message = f"Failed to calculate the number of expected pods: {why}"
        self.recorder.warning(budget, "CalculateExpectedPodCountFailed", message)
        said = disruption_budget.told(budget, allowed=0, now=self.clock.now(), failure=why)
        status = msgspec.structs.replace(budget.status, disruptions_allowed=0, conditions=said)
        await self._write(budget, status)

    async def _write(self, budget: PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> None:
        if status == budget.status:
            return
        patch = disruption_budget.patch(status, budget.status.disrupted_pods)
        # At exactly this version: whoever evicts writes here too, and must not be overwritten.
        with suppress(errors.NotFound):
            await self.kube.merge_patch(
                PodDisruptionBudget,
                budget.name,
                patch,
                namespace=budget.namespace,
                subresource="status",
                resource_version=budget.metadata.resource_version,
                uid=budget.uid,
            )


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Keep count of what each PodDisruptionBudget allows."""
    budgets = manager.informer(PodDisruptionBudget).cache
    reconciler = BudgetReconciler(
        client,
        manager.kube,
        manager.informer(Pod).cache,
        manager.informer(ReplicaSet).cache,
        manager.informer(Deployment).cache,
        manager.recorder(NAME),
        clock,
        timings,
    )

    def budgets_of(pod: Pod) -> list[Key]:
        return [
            Key(each.namespace or "", each.name)
            for each in budgets.all(namespace=pod.namespace)
            if matches(each.spec.selector, pod.metadata.labels)
        ]

    controller = Controller(reconciler, name="disruption").for_kind(PodDisruptionBudget)
    manager.add(controller.watches(Pod, to=budgets_of))
