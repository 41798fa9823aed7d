"""Joins the Pods' part to a manager: the controller of this Node's Pods, and what runs beside it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

from bramley.agent.guest.folders import UserData
from bramley.agent.guest.guests import Guests
from bramley.agent.host import Host
from bramley.agent.host_clock import SteadyClock
from bramley.agent.ledger import Ledger
from bramley.agent.metrics import AgentMetrics
from bramley.agent.pods import context
from bramley.agent.pods.context import (
    Images,
    PodDeps,
    SessionCheck,
    MetricsProxy,
)
from bramley.agent.pods.guest_liveness import GuestLiveness
from bramley.agent.pods.orphans import Orphans
from bramley.agent.pods.pod_state import PodStates
from bramley.agent.pods.reconciler import PodReconciler
from bramley.agent.pods.watchers import PodDeletionWatcher, VmExitWatcher
from bramley.agent.runs import Runs
from bramley.agent.slots import Slots
from bramley.agent.tart.driver import Tart
from bramley.api.names import events
from bramley.api.pod import Pod
from bramley.base.backoff import Backoff
from bramley.runtime.client import Selection
from bramley.runtime.controller import Controller, ControllerSettings
from bramley.runtime.manager import Manager
from bramley.runtime.queue import Trigger

# Only Pods with a slot take long, in a clone or a stop; with this many workers none of them holds up another Pod.
SPARE_WORKERS = 16
# No step takes longer, for all have their own deadlines; this is the last net.
DEADLINE = timedelta(minutes=15)
RETRIES = Backoff(timedelta(milliseconds=200), timedelta(seconds=30))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What other parts of the agent give to this one; see `Means`."""

    node: str
    host_address: str
    ledger: Ledger
    tart: Tart
    runs: Runs
    host: Host
    images: Images
    data: UserData
    guests: Guests
    gui_session: SessionCheck | None
    slots: Slots
    metrics: AgentMetrics
    clock: SteadyClock
    rng: random.Random
    metrics_proxy: MetricsProxy | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """What makes this Node's Pods VMs, and what it works with."""

    deps: PodDeps
    reconciler: PodReconciler

    async def remove(self, vm: str) -> None:
        """Tear down a VM whose Pod is gone, with all that belongs to it; done if it is not ours any more, or its Pod is here."""
        record = self.deps.ledger.vm(vm)
        here = {pod.uid for pod in self.deps.pods.all()}
        if record is not None and record.uid not in here:
            await self.reconciler.sync(context.record_ref(record))


def join(manager: Manager, parts: Parts) -> Joined:
    """Have the manager make this Node's Pods VMs."""
    selection = Selection.of(fields={"spec.nodeName": parts.node})
    informer = manager.informer(Pod, selection)
    deps = _means(manager, parts, selection)
    informer.on_change(deps.deletion_watcher.on_change)
    reconciler = PodReconciler(deps)
    settings = ControllerSettings(
        workers=SPARE_WORKERS + parts.slots.limit_failure, deadline=DEADLINE, backoff=RETRIES
    )
    manager.add(
        Controller(reconciler, settings)
        .for_kind(Pod, fields={"spec.nodeName": parts.node})
        .triggered_by(deps.trigger)
    )
    manager.add_runnable(deps.exit_watcher.run)
    manager.add_runnable(Orphans(deps, reconciler).run)
    return Joined(deps, reconciler)


def _means(manager: Manager, parts: Parts, selection: Selection) -> PodDeps:
    pods, trigger = manager.informer(Pod, selection).cache, Trigger()
    return PodDeps(
        host_address=parts.host_address,
        kube=manager.kube,
        pods=pods,
        recorder=manager.recorder(events.AGENT_COMPONENT, instance=parts.node),
        trigger=trigger,
        ledger=parts.ledger,
        tart=parts.tart,
        runs=parts.runs,
        host=parts.host,
        images=parts.images,
        data=parts.data,
        guests=parts.guests,
        gui_session=parts.gui_session,
        slots=parts.slots,
        metrics=parts.metrics,
        states=PodStates(clock=parts.clock, rng=parts.rng),
        exit_watcher=VmExitWatcher(parts.runs, trigger),
        deletion_watcher=PodDeletionWatcher(pods),
        liveness=GuestLiveness(parts.ledger, trigger),
        clock=parts.clock,
        metrics_proxy=parts.metrics_proxy,
    )
