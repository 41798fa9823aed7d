"""The Deployment reconciler: rolls out templates, scales, keeps the revision history, and reports the progress.

Each reconcile takes one step; the changes of the ReplicaSets that follow from it enqueue the Deployment again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from bramley.api import conditions
from bramley.api.apps import Deployment, DeploymentStatus, ReplicaSet
from bramley.api.core import Pod
from bramley.api.label_selectors import LabelSelector
from bramley.api.meta import ConditionStatus
from bramley.apiserver.controllers.deployments import replica_counts, revisions, rollout_status
from bramley.apiserver.controllers.deployments.replica_counts import Scale
from bramley.apiserver.controllers.deployments.rollout_status import Conditions
from bramley.apiserver.controllers.objects import keys_selecting, patch_object
from bramley.apiserver.controllers.replica_sets import active_pods, controller_ref
from bramley.apiserver.controllers.replica_sets.active_pods import status_patch
from bramley.apiserver.controllers.replica_sets.reconciler import BY_CONTROLLER
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

NAME = "deployment-controller"
BY_DEPLOYMENT = "deployments.controller"
ORPHANS = "deployments.orphans"


@dataclass(slots=True)
class Rollout:
    """One reconcile of a Deployment: its ReplicaSets, and the conditions to report."""

    deployment: Deployment
    new: ReplicaSet | None
    olds: list[ReplicaSet]
    conditions: Conditions = field(default_factory=list)
    collisions: int | None = None


@dataclass(frozen=True, slots=True)
class DeploymentReconciler:
    """Rolls out Deployments."""

    client: Client
    kube: FencedKube
    sets: Cache[ReplicaSet]
    pods: Cache[Pod]
    recorder: Recorder
    clock: Clock

    async def reconcile(self, deployment: Deployment) -> Outcome:
        """Make the next step of the rollout, and report the status."""
        if deployment.spec.selector == LabelSelector():
            message = "This deployment is selecting all pods. A non-empty selector is required."
            self.recorder.warning(deployment, "SelectingAll", message)
            return Settled()
        rollout = await self._observe(deployment)
        if deployment.deleting:
            return await self._report(rollout, progress=False)
        now = self.clock.now()
        rollout.conditions = rollout_status.with_paused_condition(
            deployment, rollout.conditions, now
        )
        if deployment.spec.paused or _is_scaling_event(rollout):
            await self._sync_revision(rollout)
            await self._rescale(rollout)
            if deployment.spec.paused:
                await self._clean_up(rollout)
            return await self._report(rollout, progress=False)
        if replica_counts.is_rolling(deployment):
            await self._roll(rollout)
        else:
            await self._recreate(rollout)
        return await self._report(rollout, progress=True)

    async def _observe(self, deployment: Deployment) -> Rollout:
        candidates = [
            *self.sets.by_index(BY_DEPLOYMENT, deployment.uid),
            *self.sets.by_index(ORPHANS, deployment.namespace),
        ]
        claim = controller_ref.claim_objects(deployment, deployment.spec.selector, candidates)
        sets = await controller_ref.adopt_and_release(self.kube, deployment, claim)
        new = revisions.find_new_replica_set(deployment, sets)
        olds = [each for each in sets if new is None or each.uid != new.uid]
        before = deployment.status
        return Rollout(deployment, new, olds, before.conditions, before.collision_count)

    async def _roll(self, rollout: Rollout) -> None:
        new = await self._ensure_new(rollout)
        steps = (
            replica_counts.roll(rollout.deployment, new, rollout.olds) if new is not None else []
        )
        for step in steps:
            await self._scale(rollout, step)
        if not steps and self._is_complete(rollout):
            await self._clean_up(rollout)

    async def _recreate(self, rollout: Rollout) -> None:
        await self._sync_revision(rollout)
        active = [each for each in rollout.olds if each.spec.replicas]
        for each in active:
            await self._scale(rollout, Scale(each, 0))
        # Pods of two templates must never run at the same time.
        if active or any(self._has_pods(each) for each in rollout.olds):
            return
        new = await self._ensure_new(rollout)
        desired = rollout.deployment.spec.replicas
        if new is not None and new.spec.replicas != desired:
            await self._scale(rollout, Scale(new, desired))
        elif self._is_complete(rollout):
            await self._clean_up(rollout)

    def _has_pods(self, owner: ReplicaSet) -> bool:
        """Return whether a ReplicaSet still has Pods that have not ended."""
        pods = self.pods.by_index(BY_CONTROLLER, owner.uid)
        return any(pod.deleting or active_pods.is_active(pod) for pod in pods)

    async def _ensure_new(self, rollout: Rollout) -> ReplicaSet | None:
        """Return the ReplicaSet of the current template, and create it if there is none."""
        if rollout.new is None:
            rollout.new = await self._create(rollout)
        else:
            await self._sync_revision(rollout)
        return rollout.new

    async def _create(self, rollout: Rollout) -> ReplicaSet | None:
        deployment = rollout.deployment
        revision = revisions.next_revision(rollout.olds)
        size = replica_counts.size_of_new(deployment, 0, rollout.olds)
        body = revisions.body(deployment, revision=revision, replicas=size)
        name = body["metadata"]["name"]
        try:
            wire = await self.client.create_wire(
                ReplicaSet.resource, body, namespace=deployment.namespace
            )
        except errors.AlreadyExists:
            # An earlier creation whose response was lost, or a collision of hashes.
            return await self._find_existing(rollout, name)
        except errors.BramleyError as error:
            message = f'Failed to create new replica set "{name}": {error}'
            self._set_progressing(rollout, "False", rollout_status.CREATE_FAILED, message)
            await self._report(rollout, progress=False)
            raise
        made = self.kube.record_write(msgspec.convert(wire, ReplicaSet))
        if size:
            message = f"Scaled up replica set {name} from 0 to {size}"
            self.recorder.event(deployment, "ScalingReplicaSet", message)
        message = f'Created new replica set "{name}"'
        self._set_progressing(rollout, "True", rollout_status.CREATED, message)
        await self._set_revision(deployment, revision)
        return made

    async def _find_existing(self, rollout: Rollout, name: str) -> ReplicaSet | None:
        """Return the existing ReplicaSet of this name if it is ours and equal; else count a hash collision."""
        deployment = rollout.deployment
        existing = await self.kube.get(ReplicaSet, name, namespace=deployment.namespace)
        controller = controller_ref.controller_of(existing)
        is_ours = controller is not None and controller.uid == deployment.uid
        same = revisions.plain(existing.spec.template) == revisions.plain(deployment.spec.template)
        if is_ours and same:
            return existing
        rollout.collisions = (deployment.status.collision_count or 0) + 1
        return None

    def _set_progressing(
        self, rollout: Rollout, status: ConditionStatus, reason: str, message: str
    ) -> None:
        if rollout_status.has_deadline(rollout.deployment):
            rollout.conditions = rollout_status.set_condition(
                rollout.conditions,
                rollout_status.PROGRESSING,
                status,
                reason=reason,
                message=message,
                now=self.clock.now(),
            )

    async def _sync_revision(self, rollout: Rollout) -> None:
        """Set annotations and revision of the new ReplicaSet, and the same revision on the Deployment."""
        new, deployment = rollout.new, rollout.deployment
        if new is None:
            return
        revision = revisions.next_revision(rollout.olds)
        desired = revisions.desired_annotations(deployment, revision, new)
        ready = deployment.spec.min_ready_seconds
        if desired != new.metadata.annotations or ready != new.spec.min_ready_seconds:
            patch = {"metadata": {"annotations": desired}, "spec": {"minReadySeconds": ready}}
            rollout.new = await patch_object(self.kube, new, patch)
        await self._set_revision(deployment, revisions.revision_of(rollout.new or new))
        if conditions.find(rollout.conditions, rollout_status.PROGRESSING) is None:
            message = f'Found new replica set "{new.name}"'
            self._set_progressing(rollout, "True", rollout_status.FOUND, message)

    async def _set_revision(self, deployment: Deployment, revision: int) -> None:
        if revisions.revision_of(deployment) == revision:
            return
        patch = {"metadata": {"annotations": {revisions.REVISION: str(revision)}}}
        # Through the status subresource, since otherwise the annotation would increase the generation.
        await patch_object(self.kube, deployment, patch, subresource="status", only="uid")

    async def _rescale(self, rollout: Rollout) -> None:
        steps = replica_counts.rescale(rollout.deployment, rollout.new, rollout.olds)
        for step in steps:
            await self._scale(rollout, step)

    async def _scale(self, rollout: Rollout, step: Scale) -> None:
        owner, deployment = step.owner, rollout.deployment
        annotations = revisions.size_annotations(deployment)
        patch = {"spec": {"replicas": step.replicas}, "metadata": {"annotations": annotations}}
        changed = await patch_object(self.kube, owner, patch)
        if rollout.new is not None and rollout.new.uid == owner.uid:
            rollout.new = changed
        else:
            rollout.olds = [changed if each.uid == owner.uid else each for each in rollout.olds]
        before, after = owner.spec.replicas, step.replicas
        if before != after:
            direction = "up" if before < after else "down"
            message = f"Scaled {direction} replica set {owner.name} from {before} to {after}"
            self.recorder.event(deployment, "ScalingReplicaSet", message)

    async def _clean_up(self, rollout: Rollout) -> None:
        for each in revisions.beyond_history_limit(rollout.deployment, rollout.olds):
            with suppress(errors.NotFound):
                await self.kube.delete(each)

    def _is_complete(self, rollout: Rollout) -> bool:
        return rollout_status.is_complete(rollout.deployment, self._calculate_status(rollout))

    def _calculate_status(self, rollout: Rollout) -> DeploymentStatus:
        return rollout_status.calculate_status(
            rollout.deployment,
            rollout.new,
            rollout.olds,
            conditions=rollout.conditions,
            now=self.clock.now(),
        )

    async def _report(self, rollout: Rollout, *, progress: bool) -> Outcome:
        deployment, now = rollout.deployment, self.clock.now()
        counted = self._calculate_status(rollout)
        reported = counted.conditions
        if progress:
            reported = rollout_status.with_progress_condition(deployment, rollout.new, counted, now)
            reported = rollout_status.with_failure_condition(reported, rollout.new, rollout.olds)
        status = msgspec.structs.replace(
            counted, conditions=reported, collision_count=rollout.collisions
        )
        if status != deployment.status:
            with suppress(errors.NotFound):
                patch = status_patch(status)
                await patch_object(self.kube, deployment, patch, subresource="status", only="uid")
        current = conditions.find(reported, rollout_status.PROGRESSING)
        remaining = rollout_status.time_left(deployment, current, now) if progress else None
        if remaining is None or rollout_status.is_complete(deployment, status):
            return Settled()
        return CheckAgain(
            max(remaining, timedelta()) + timedelta(seconds=1), "the rollout has a deadline"
        )


def _is_scaling_event(rollout: Rollout) -> bool:
    """Return whether the Deployment was scaled since its ReplicaSets were last sized for it."""
    everyone: Sequence[ReplicaSet] = [
        *rollout.olds,
        *([rollout.new] if rollout.new is not None else []),
    ]
    sized_for = (
        each.metadata.annotations.get(replica_counts.DESIRED)
        for each in everyone
        if each.spec.replicas
    )
    desired = str(rollout.deployment.spec.replicas)
    return any(each is not None and each.isdigit() and each != desired for each in sized_for)


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the Deployment controller; it needs that of ReplicaSets, which indexes the Pods."""
    del timings
    sets, deployments = manager.informer(ReplicaSet).cache, manager.informer(Deployment).cache
    controller_ref.index_by_controller(sets, BY_DEPLOYMENT, ORPHANS)
    pods = manager.informer(Pod).cache
    recorder = manager.recorder(NAME)
    reconciler = DeploymentReconciler(client, manager.kube, sets, pods, recorder, clock)
    watches_to = _Watches(sets, deployments)
    controller = Controller(reconciler, name="deployment").for_kind(Deployment).owns(ReplicaSet)
    manager.add(
        controller.watches(ReplicaSet, to=watches_to.could_adopt).watches(
            Pod, to=watches_to.waiting
        )
    )


@dataclass(frozen=True, slots=True)
class _Watches:
    """Deployments to enqueue for changes of objects that they do not own."""

    sets: Cache[ReplicaSet]
    deployments: Cache[Deployment]

    def could_adopt(self, owner: ReplicaSet) -> list[Key]:
        """Return the Deployments that may adopt this ReplicaSet."""
        is_owned = controller_ref.controller_of(owner) is not None
        return [] if is_owned else keys_selecting(self.deployments, owner)

    def waiting(self, pod: Pod) -> list[Key]:
        """Return the Deployment of a Pod if it waits for old Pods to end."""
        ref = controller_ref.controller_of(pod)
        owner = self.sets.find(Key(pod.namespace or "", ref.name)) if ref is not None else None
        above = controller_ref.controller_of(owner) if owner is not None else None
        if above is None or above.kind != Deployment.resource.kind:
            return []
        key = Key(pod.namespace or "", above.name)
        deployment = self.deployments.find(key)
        return [key] if deployment is not None and not replica_counts.is_rolling(deployment) else []
