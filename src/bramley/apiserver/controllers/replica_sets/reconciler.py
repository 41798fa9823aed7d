"""The ReplicaSet reconciler: creates and deletes Pods until a ReplicaSet has the desired number, and reports the status.

Pods are created in batches of doubling size, so that a template which the API rejects costs one rejection and not a hundred.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from bramley.api.apps import ReplicaSet
from bramley.api.core import Pod
from bramley.apiserver.controllers.objects import keys_selecting, patch_object
from bramley.apiserver.controllers.replica_sets import active_pods, controller_ref
from bramley.apiserver.controllers.replica_sets.active_pods import status_patch
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

NAME = "replicaset-controller"
BURST = 500
BY_CONTROLLER = "replica_sets.controller"
ORPHANS = "replica_sets.orphans"


@dataclass(frozen=True, slots=True)
class ReplicaSetReconciler:
    """Keeps the desired number of Pods of each ReplicaSet."""

    client: Client
    kube: FencedKube
    pods: Cache[Pod]
    sets: Cache[ReplicaSet]
    recorder: Recorder
    clock: Clock

    async def reconcile(self, owner: ReplicaSet) -> Outcome:
        """Create or delete Pods, and report the status."""
        candidates = [
            *self.pods.by_index(BY_CONTROLLER, owner.uid),
            *self.pods.by_index(ORPHANS, owner.namespace),
        ]
        active = [pod for pod in candidates if active_pods.is_active(pod)]
        claim = controller_ref.claim_objects(owner, owner.spec.selector, active)
        pods = await controller_ref.adopt_and_release(self.kube, owner, claim)
        failure = "" if owner.deleting else await self._manage(owner, pods)
        # Before the error is raised: the status shows why Pods are missing.
        await self._report(owner, pods, failure)
        if failure:
            # Retried with backoff: a quota or policy may have rejected the Pod, and no event reports when that changes.
            raise errors.ApiUnavailable(failure)
        after = active_pods.next_available(owner, pods, self.clock.now())
        return Settled() if after is None else CheckAgain(after, "a Pod is ready but not available")

    async def _manage(self, owner: ReplicaSet, pods: Sequence[Pod]) -> str:
        desired = owner.spec.replicas
        if len(pods) < desired:
            return await self._create(owner, min(desired - len(pods), BURST))
        if len(pods) > desired:
            return await self._delete(owner, pods, min(len(pods) - desired, BURST))
        return ""

    async def _create(self, owner: ReplicaSet, count: int) -> str:
        body = pod_of(owner)
        # Slow start, as in kube-controller-manager: a template that is always refused costs few requests.
        batch = 1
        while count:
            batch = min(batch, count)
            if failure := await _first(self._create_one(owner, body) for _ in range(batch)):
                return failure
            count -= batch
            batch *= 2
        return ""

    async def _create_one(self, owner: ReplicaSet, body: dict[str, object]) -> str:
        try:
            created = await self.client.create_wire(Pod.resource, body, namespace=owner.namespace)
        except errors.BramleyError as error:
            if "because it is being terminated" in str(error):
                return ""
            self.recorder.warning(owner, "FailedCreate", f"Error creating: {error}")
            return str(error)
        # The plain client recorded nothing; without this the next reconcile could create the Pod again from a stale cache.
        pod = self.kube.record_write(msgspec.convert(created, Pod))
        self.recorder.event(owner, "SuccessfulCreate", f"Created pod: {pod.name}")
        return ""

    async def _delete(self, owner: ReplicaSet, pods: Sequence[Pod], count: int) -> str:
        chosen = active_pods.pods_to_delete(
            pods, self._related_pods(owner), count=count, now=self.clock.now()
        )
        return await _first(self._delete_one(owner, pod) for pod in chosen)

    async def _delete_one(self, owner: ReplicaSet, pod: Pod) -> str:
        try:
            await self.kube.delete(pod)
        except errors.NotFound:
            return ""
        except errors.BramleyError as error:
            self.recorder.warning(owner, "FailedDelete", f"Error deleting: {error}")
            return str(error)
        self.recorder.event(owner, "SuccessfulDelete", f"Deleted pod: {pod.name}")
        return ""

    def _related_pods(self, owner: ReplicaSet) -> Iterable[Pod]:
        """Return the Pods of all ReplicaSets that the same Deployment controls."""
        controller = controller_ref.controller_of(owner)
        siblings = [
            each
            for each in self.sets.all(namespace=owner.namespace)
            if (ref := controller_ref.controller_of(each)) is not None
            and controller is not None
            and ref.uid == controller.uid
        ]
        for each in siblings or [owner]:
            yield from self.pods.by_index(BY_CONTROLLER, each.uid)

    async def _report(self, owner: ReplicaSet, pods: Sequence[Pod], failure: str) -> None:
        now = self.clock.now()
        status = active_pods.calculate_status(owner, pods, failure=failure, now=now)
        if status == owner.status:
            return
        with suppress(errors.NotFound):
            patch = status_patch(status, always=("replicas",))
            await patch_object(self.kube, owner, patch, subresource="status", only="uid")


async def _first(acts: Iterable[Coroutine[None, None, str]]) -> str:
    """Run all concurrently and return the first failure in their order; empty if there is none."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(act) for act in acts]
    return next((task.result() for task in tasks if task.result()), "")


def pod_of(owner: ReplicaSet) -> dict[str, object]:
    """Return the Pod of a ReplicaSet's template as JSON."""
    template = owner.spec.template
    meta = template.get("metadata") or {}
    copied = {key: meta[key] for key in ("labels", "annotations", "finalizers") if meta.get(key)}
    identity = {
        "generateName": f"{owner.name}-",
        "ownerReferences": [controller_ref.controller_ref_wire(owner)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**identity, **copied},
        "spec": template.get("spec", {}),
    }


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the ReplicaSet controller to a manager."""
    del timings
    pods, sets = manager.informer(Pod).cache, manager.informer(ReplicaSet).cache
    controller_ref.index_by_controller(pods, BY_CONTROLLER, ORPHANS)
    reconciler = ReplicaSetReconciler(
        client, manager.kube, pods, sets, manager.recorder(NAME), clock
    )

    def could_adopt(pod: Pod) -> list[Key]:
        return [] if controller_ref.controller_of(pod) is not None else keys_selecting(sets, pod)

    controller = Controller(reconciler, name="replicaset").for_kind(ReplicaSet).owns(Pod)
    manager.add(controller.watches(Pod, to=could_adopt))
