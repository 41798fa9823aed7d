"""The controller of this Node's Pods, and the background tasks that belong to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from bramley.agent.pods.context import PodDeps, record_ref
from bramley.agent.pods.orphans import Orphans
from bramley.agent.pods.reconciler import PodReconciler
from bramley.api.pod import Pod
from bramley.base.backoff import Backoff
from bramley.runtime.cache import Cache
from bramley.runtime.client import Selection
from bramley.runtime.controller import Controller, ControllerSettings
from bramley.runtime.manager import Manager

# Only Pods that have a slot occupy a worker for long, in a clone or a stop. The spare workers keep other Pods unblocked.
SPARE_WORKERS = 16
# Every step has its own, shorter deadline; this one is the last resort.
DEADLINE = timedelta(minutes=15)
RETRY_BACKOFF = Backoff(timedelta(milliseconds=200), timedelta(seconds=30))


@dataclass(frozen=True, slots=True)
class PodController:
    """Runs this Node's Pods as VMs."""

    deps: PodDeps
    reconciler: PodReconciler

    async def remove_vm(self, vm: str) -> None:
        """Remove a VM whose Pod is gone, with all its resources; a VM without a record or with a live Pod is left alone."""
        record = self.deps.ledger.vm(vm)
        uids = {pod.uid for pod in self.deps.pods.all()}
        if record is not None and record.uid not in uids:
            await self.reconciler.sync(record_ref(record))


def pod_cache(manager: Manager, node: str) -> Cache[Pod]:
    """Return the cache of the Pods that are bound to a Node."""
    return manager.informer(Pod, _bound_to(node)).cache


def add_to_manager(manager: Manager, deps: PodDeps) -> PodController:
    """Register the Pod controller and its background tasks."""
    manager.informer(Pod, _bound_to(deps.node)).on_change(deps.deletion_watcher.on_change)
    reconciler = PodReconciler(deps)
    settings = ControllerSettings(
        workers=SPARE_WORKERS + deps.slots.limit, deadline=DEADLINE, backoff=RETRY_BACKOFF
    )
    manager.add(
        Controller(reconciler, settings)
        .for_kind(Pod, fields={"spec.nodeName": deps.node})
        .triggered_by(deps.trigger)
    )
    manager.add_runnable(deps.exit_watcher.run)
    manager.add_runnable(Orphans(deps, reconciler).run)
    return PodController(deps, reconciler)


def _bound_to(node: str) -> Selection:
    return Selection.of(fields={"spec.nodeName": node})
