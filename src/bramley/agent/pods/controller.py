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
    Means,
    Preflight,
    Scraping,
)
from bramley.agent.pods.guest_liveness import Hearing
from bramley.agent.pods.orphans import Orphans
from bramley.agent.pods.pod_state import Memory
from bramley.agent.pods.reconciler import PodReconciler
from bramley.agent.pods.watchers import Departures, Exits
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
    session: Preflight | None
    slots: Slots
    metrics: AgentMetrics
    clock: SteadyClock
    rng: random.Random
    scraping: Scraping | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """What makes this Node's Pods VMs, and what it works with."""

    means: Means
    reconciler: PodReconciler

    async def remove(self, vm: str) -> None:
        """Tear down a VM whose Pod is gone, with all that belongs to it; done if it is not ours any more, or its Pod is here."""
        record = self.means.ledger.vm(vm)
        here = {pod.uid for pod in self.means.pods.all()}
        if record is not None and record.uid not in here:
            await self.reconciler.take_turn(context.record_ref(record))


def join(manager: Manager, parts: Parts) -> Joined:
    """Have the manager make this Node's Pods VMs."""
    selection = Selection.of(fields={"spec.nodeName": parts.node})
    informer = manager.informer(Pod, selection)
    means = _means(manager, parts, selection)
    informer.on_change(means.departures.on_change)
    reconciler = PodReconciler(means)
    settings = ControllerSettings(
        workers=SPARE_WORKERS + parts.slots.limit, deadline=DEADLINE, backoff=RETRIES
    )
    manager.add(
        Controller(reconciler, settings)
        .for_kind(Pod, fields={"spec.nodeName": parts.node})
        .triggered_by(means.bell)
    )
    manager.add_runnable(means.exits.run)
    manager.add_runnable(Orphans(means, reconciler).run)
    return Joined(means, reconciler)


def _means(manager: Manager, parts: Parts, selection: Selection) -> Means:
    pods, bell = manager.informer(Pod, selection).cache, Trigger()
    return Means(
        host_address=parts.host_address,
        kube=manager.kube,
        pods=pods,
        recorder=manager.recorder(events.AGENT_COMPONENT, instance=parts.node),
        bell=bell,
        ledger=parts.ledger,
        tart=parts.tart,
        runs=parts.runs,
        host=parts.host,
        images=parts.images,
        data=parts.data,
        guests=parts.guests,
        session=parts.session,
        slots=parts.slots,
        metrics=parts.metrics,
        memory=Memory(clock=parts.clock, rng=parts.rng),
        exits=Exits(parts.runs, bell),
        departures=Departures(pods),
        hearing=Hearing(parts.ledger, bell),
        clock=parts.clock,
        scraping=parts.scraping,
    )
