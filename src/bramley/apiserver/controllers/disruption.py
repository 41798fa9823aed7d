"""Keeps the status of PodDisruptionBudgets, from which evictions learn whether a Pod may go now.

What a share is a share of, the Pods' controllers say: Deployments and ReplicaSets from the cache, all others by their scale.
A budget that cannot be counted allows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from math import ceil

import msgspec

from bramley.api.apps import Deployment, ReplicaSet
from bramley.api.core import Pod
from bramley.api.label_selectors import matches
from bramley.api.meta import Condition, OwnerReference
from bramley.api.policy import PodDisruptionBudget, PodDisruptionBudgetStatus
from bramley.apiserver.controllers.discovery import PartialTypes, discover
from bramley.apiserver.controllers.replica_sets import controller_ref
from bramley.apiserver.controllers.replica_sets.active_pods import ready_condition
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

ALLOWED = "DisruptionAllowed"


@dataclass(frozen=True, slots=True)
class Counted:
    """The status that a budget shall have, and when it has to be looked at again."""

    status: PodDisruptionBudgetStatus
    again: timedelta | None = None
    late: tuple[Pod, ...] = ()


def needs_scale(budget: PodDisruptionBudget) -> bool:
    """Tell whether one has to know how many Pods their controllers want, and not only how many there are."""
    spec = budget.spec
    return spec.max_unavailable is not None or isinstance(spec.min_available, str)


def desired(budget: PodDisruptionBudget, expected: int) -> int:
    """Return how many healthy Pods there must be."""
    spec = budget.spec
    if spec.max_unavailable is not None:
        return max(expected - _share(spec.max_unavailable, expected), 0)
    return 0 if spec.min_available is None else _share(spec.min_available, expected)


def _share(value: int | str, whole: int) -> int:
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    return ceil(Fraction(int(digits) * whole, 100)) if digits.isdigit() else 0


def count(
    budget: PodDisruptionBudget,
    pods: Sequence[Pod],
    *,
    expected: int,
    now: datetime,
    patience: timedelta,
) -> Counted:
    """Return how many Pods may be evicted now, of these and with so many expected."""
    here = {pod.name: pod for pod in pods if not pod.deleting}
    noted = {name: at for name, at in budget.status.disrupted_pods.items() if name in here}
    # Who evicts a Pod notes it; until the deletion is seen it counts as gone, but not for ever.
    going = {name: at for name, at in noted.items() if at + patience >= now}
    healthy = sum(
        ready_condition(pod) is not None for name, pod in here.items() if name not in going
    )
    wanted = desired(budget, expected)
    allowed = max(healthy - wanted, 0) if expected > 0 else 0
    status = PodDisruptionBudgetStatus(
        observed_generation=budget.metadata.generation,
        disrupted_pods=going,
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=wanted,
        expected_pods=expected,
        conditions=told(budget, allowed=allowed, now=now),
    )
    soonest = min((at + patience - now for at in going.values()), default=None)
    late = tuple(here[name] for name in noted if name not in going)
    return Counted(status, soonest, late)


def told(
    budget: PodDisruptionBudget, *, allowed: int, now: datetime, failure: str = ""
) -> list[Condition]:
    """Return the conditions of a budget that allows so many disruptions, or of one that could not be counted."""
    status, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    generation = budget.metadata.generation
    if failure:
        status, reason = "False", "SyncFailed"
        generation = budget.status.observed_generation
    old = next((each for each in budget.status.conditions if each.type == ALLOWED), None)
    since = old.last_transition_time if old is not None and old.status == status else None
    new = Condition(
        type=ALLOWED,
        status="True" if status == "True" else "False",
        reason=reason,
        message=failure,
        observed_generation=generation,
        last_transition_time=since or now.replace(microsecond=0),
    )
    return [*(each for each in budget.status.conditions if each.type != ALLOWED), new]


def patch(
    status: PodDisruptionBudgetStatus, before: Mapping[str, datetime]
) -> Mapping[str, object]:
    """Return the patch that writes a status; names that are noted no longer are taken out one by one."""
    noted: dict[str, str | None] = dict.fromkeys(before)
    noted |= {name: _text(at) for name, at in status.disrupted_pods.items()}
    return {
        "status": {
            "observedGeneration": status.observed_generation,
            "disruptionsAllowed": status.disruptions_allowed,
            "currentHealthy": status.current_healthy,
            "desiredHealthy": status.desired_healthy,
            "expectedPods": status.expected_pods,
            "disruptedPods": noted or None,
            "conditions": [_wire(each) for each in status.conditions],
        }
    }


def _wire(condition: Condition) -> dict[str, object]:
    when = condition.last_transition_time
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": condition.observed_generation,
        "lastTransitionTime": None if when is None else _text(when),
    }


def _text(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"


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
    kinds: PartialTypes = field(default_factory=PartialTypes)

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
        counted = count(
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
        if not needs_scale(budget):
            return len(pods)
        owners = {ref.uid: ref for pod in pods if (ref := controller_ref.controller_of(pod)) is not None}
        if any(controller_ref.controller_of(pod) is None for pod in pods):
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
            above = controller_ref.controller_of(owner)
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
        said = told(budget, allowed=0, now=self.clock.now(), failure=why)
        status = msgspec.structs.replace(budget.status, disruptions_allowed=0, conditions=said)
        await self._write(budget, status)

    async def _write(self, budget: PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> None:
        if status == budget.status:
            return
        patch = patch(status, budget.status.disrupted_pods)
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
