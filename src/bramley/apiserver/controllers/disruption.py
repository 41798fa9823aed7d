"""The disruption controller: keeps the status of PodDisruptionBudgets, which evictions check.

The expected number of Pods comes from their controllers: Deployments and ReplicaSets from the cache, others by their scale
subresource. A budget that cannot be calculated allows no disruption.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import msgspec

from bramley.api import conditions
from bramley.api.apps import Deployment, ReplicaSet
from bramley.api.core import Pod
from bramley.api.label_selectors import matches
from bramley.api.meta import Condition, OwnerReference
from bramley.api.policy import PodDisruptionBudget, PodDisruptionBudgetStatus
from bramley.apiserver.controllers.deployments.replica_counts import scaled_value
from bramley.apiserver.controllers.discovery import PartialTypes, discover
from bramley.apiserver.controllers.objects import keys_selecting, patch_object
from bramley.apiserver.controllers.replica_sets import active_pods
from bramley.apiserver.controllers.replica_sets.controller_ref import controller_of
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
ALLOWED = "DisruptionAllowed"


@dataclass(frozen=True, slots=True)
class BudgetCount:
    """The calculated status of a budget, when to calculate it again, and Pods that were evicted but not deleted."""

    status: PodDisruptionBudgetStatus
    again: timedelta | None = None
    not_deleted: tuple[Pod, ...] = ()


def needs_scale(budget: PodDisruptionBudget) -> bool:
    """Return whether the budget depends on the scale of the Pods' controllers."""
    spec = budget.spec
    return spec.max_unavailable is not None or isinstance(spec.min_available, str)


def desired_healthy(budget: PodDisruptionBudget, expected: int) -> int:
    """Return how many healthy Pods there must be."""
    spec = budget.spec
    if spec.max_unavailable is not None:
        return max(expected - scaled_value(spec.max_unavailable, expected, round_up=True), 0)
    return scaled_value(spec.min_available, expected, round_up=True)


def count(
    budget: PodDisruptionBudget,
    pods: Sequence[Pod],
    *,
    expected: int,
    now: datetime,
    deletion_timeout: timedelta,
) -> BudgetCount:
    """Calculate how many of these Pods may be evicted now."""
    running = {pod.name: pod for pod in pods if not pod.deleting}
    recorded = {name: at for name, at in budget.status.disrupted_pods.items() if name in running}
    # An eviction records its Pod here; until the deletion is observed it counts as disrupted, up to the timeout.
    disrupted = {name: at for name, at in recorded.items() if at + deletion_timeout >= now}
    healthy = sum(
        conditions.is_true(pod.status.conditions, "Ready")
        for name, pod in running.items()
        if name not in disrupted
    )
    desired = desired_healthy(budget, expected)
    allowed = max(healthy - desired, 0) if expected > 0 else 0
    status = PodDisruptionBudgetStatus(
        observed_generation=budget.metadata.generation,
        disrupted_pods=disrupted,
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        conditions=budget_conditions(budget, allowed=allowed, now=now),
    )
    soonest = min((at + deletion_timeout - now for at in disrupted.values()), default=None)
    late = tuple(running[name] for name in recorded if name not in disrupted)
    return BudgetCount(status, soonest, late)


def budget_conditions(
    budget: PodDisruptionBudget, *, allowed: int, now: datetime, failure: str = ""
) -> list[Condition]:
    """Return the conditions of a budget that allows so many disruptions, or whose calculation failed."""
    reason = "SufficientPods" if allowed else "InsufficientPods"
    status = budget.status
    condition = Condition(
        type=ALLOWED,
        status="True" if allowed and not failure else "False",
        reason="SyncFailed" if failure else reason,
        message=failure,
        observed_generation=status.observed_generation if failure else budget.metadata.generation,
    )
    return conditions.put(status.conditions, condition, now=now)


def status_patch(
    status: PodDisruptionBudgetStatus, before: Mapping[str, datetime]
) -> Mapping[str, object]:
    """Return the patch that writes a status; Pods that are no longer recorded are removed by name."""
    always = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    disrupted = {**dict.fromkeys(before), **msgspec.to_builtins(status.disrupted_pods)}
    # An empty message is written too: the API requires the field.
    written = [{"message": "", **msgspec.to_builtins(each)} for each in status.conditions]
    patch = dict(active_pods.status_patch(status, always=always)["status"])
    return {"status": {**patch, "disruptedPods": disrupted or None, "conditions": written}}


@dataclass(frozen=True, slots=True)
class BudgetReconciler:
    """Calculates what each budget allows."""

    client: Client
    kube: FencedKube
    pods: Cache[Pod]
    sets: Cache[ReplicaSet]
    deployments: Cache[Deployment]
    recorder: Recorder
    clock: Clock
    timings: Timings
    types: PartialTypes = field(default_factory=PartialTypes)

    async def reconcile(self, budget: PodDisruptionBudget) -> Outcome:
        """Calculate and write the status of a budget."""
        pods = [
            pod
            for pod in self.pods.all(namespace=budget.namespace)
            if matches(budget.spec.selector, pod.metadata.labels)
        ]
        try:
            expected = await self._expected_pods(budget, pods)
        except (errors.NotFound, errors.Refused) as error:
            # Until it can be calculated, the budget must not allow evictions by an older count.
            await self._fail(budget, str(error))
            raise errors.ApiUnavailable(str(error)) from error
        now, timeout = self.clock.now(), self.timings.disruption_deletion_timeout
        counted = count(budget, pods, expected=expected, now=now, deletion_timeout=timeout)
        name = f"{budget.namespace}/{budget.name}"
        message = f"Pod was expected by PDB {name} to be deleted but it wasn't"
        for pod in counted.not_deleted:
            self.recorder.warning(pod, "NotDeleted", message)
        await self._write(budget, counted.status)
        if counted.again is None:
            return Settled()
        return CheckAgain(counted.again, "the deletion of an evicted Pod was not observed yet")

    async def _expected_pods(self, budget: PodDisruptionBudget, pods: Sequence[Pod]) -> int:
        if not pods:
            self.recorder.event(budget, "NoPods", "No matching pods found")
        if not needs_scale(budget):
            return len(pods)
        refs = [controller_of(pod) for pod in pods]
        if any(ref is None for ref in refs):
            message = (
                "Pods selected by this PodDisruptionBudget were found to be unmanaged. As a result, the status of the PDB "
                "cannot be calculated correctly, which may result in undefined behavior. To account for these pods please "
                'set ".spec.minAvailable" field of the PDB to an integer value.'
            )
            self.recorder.warning(budget, "UnmanagedPods", message)
        owners = {ref.uid: ref for ref in refs if ref is not None}
        # By the uid of the topmost controller, so that two ReplicaSets of one Deployment count once.
        scales = [await self._scale(ref, budget.namespace or "") for ref in owners.values()]
        return sum(dict(scales).values())

    async def _scale(self, ref: OwnerReference, namespace: str) -> tuple[str, int]:
        """Return the uid of the controller that sets the number of replicas, and that number."""
        owner = self.sets.find(Key(namespace, ref.name))
        if owner is not None and owner.uid == ref.uid:
            above = controller_of(owner)
            deployment = self.deployments.find(Key(namespace, above.name)) if above else None
            if above is not None and deployment is not None and deployment.uid == above.uid:
                return deployment.uid, deployment.spec.replicas
            return owner.uid, owner.spec.replicas
        resource = (await discover(self.client)).find(ref.api_version, ref.kind)
        if resource is None:
            raise errors.NotFound(f"no controller of the kind {ref.kind} is served")
        scale = await self.client.get_scale(self.types.of(resource), ref.name, namespace=namespace)
        return ref.uid, scale.spec.replicas

    async def _fail(self, budget: PodDisruptionBudget, reason: str) -> None:
        message = f"Failed to calculate the number of expected pods: {reason}"
        self.recorder.warning(budget, "CalculateExpectedPodCountFailed", message)
        failed = budget_conditions(budget, allowed=0, now=self.clock.now(), failure=reason)
        status = msgspec.structs.replace(budget.status, disruptions_allowed=0, conditions=failed)
        await self._write(budget, status)

    async def _write(self, budget: PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> None:
        if status == budget.status:
            return
        patch = status_patch(status, budget.status.disrupted_pods)
        # At exactly this version: evictions write the same status, and must not be overwritten.
        with suppress(errors.NotFound):
            await patch_object(self.kube, budget, patch, subresource="status")


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the disruption controller to a manager."""
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
    controller = Controller(reconciler, name="disruption").for_kind(PodDisruptionBudget)
    manager.add(controller.watches(Pod, to=partial(keys_selecting, budgets)))
