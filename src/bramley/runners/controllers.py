"""The controllers of `bramley runners`, and the function that adds them to a manager.

`runner-pools` has one worker: pools that share hosts share a cap, and its reconciles never wait for anything but the API. The
controllers that may wait for dispatch have several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from bramley.api.core import Node, ServiceAccount
from bramley.api.names import events, groups, labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.base.clock import Clock
from bramley.runners import pods
from bramley.runners.autoscaling import reconciler as autoscaler
from bramley.runners.dispatch_client import Sessions, Signals
from bramley.runners.hosts import fleet_of, host_of
from bramley.runners.metrics import PoolMetrics, ReaperMetrics
from bramley.runners.pod_actions import PodActions
from bramley.runners.pod_template import TemplateSettings
from bramley.runners.pods import PodViews
from bramley.runners.reaper import PodReaper, ServiceAccountReaper
from bramley.runners.reconciler import BY_FLEET, BY_LABEL, NAME, Observations, PoolReconciler
from bramley.runners.roll_signals import RollSignalsPoller
from bramley.runtime.client import Selection
from bramley.runtime.controller import Controller, ControllerSettings
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.queue import Trigger

_RUNNERS = {labels.RUNNER: labels.TRUE}


@dataclass(frozen=True, slots=True)
class Settings:
    """The namespace of the pools, and what their Pods get."""

    namespace: str = groups.RUNNERS_NAMESPACE
    template: TemplateSettings = field(default_factory=TemplateSettings)


def add(
    manager: Manager,
    settings: Settings,
    *,
    clock: Clock,
    registry: CollectorRegistry,
    signals: Signals | None = None,
    sessions: Sessions | None = None,
) -> None:
    """Add the controllers; without `signals` nothing is scaled, without `sessions` nothing is reported."""
    observations = _observe(manager, settings.namespace)
    poller = RollSignalsPoller(signals, observations.pools.cache, clock) if signals else None
    if poller is not None:
        manager.add_runnable(poller.run)
    reconciler = PoolReconciler(
        kube=manager.kube,
        observations=observations,
        actions=PodActions(manager.kube, observations.pods.cache, settings.template),
        recorder=manager.recorder(events.RUNNERS_COMPONENT),
        metrics=PoolMetrics(registry, clock),
        clock=clock,
        signals=poller.find if poller is not None else lambda _: None,
        epoch=lambda: manager.leadership.epoch if manager.leadership is not None else 0,
        raise_epoch=manager.raise_epoch,
        has_dispatch=bool(settings.template.dispatch_url),
    )
    controller = (
        Controller(reconciler, ControllerSettings(workers=1), name=NAME)
        .for_kind(RunnerPool, namespace=settings.namespace)
        .watches(Pod, to=pool_of_pod, namespace=settings.namespace, labels=_RUNNERS)
        .triggered_by(_fleet_changes(observations))
    )
    manager.add(controller.triggered_by(poller.trigger) if poller is not None else controller)
    _add_reapers(manager, settings, observations, sessions, clock=clock, registry=registry)
    if signals is not None:
        autoscaler.add(
            manager, signals, namespace=settings.namespace, clock=clock, registry=registry
        )


def _observe(manager: Manager, namespace: str) -> Observations:
    pools = manager.informer(RunnerPool, Selection.of(namespace))
    runner_pods = manager.informer(Pod, Selection.of(namespace, labels=_RUNNERS))
    nodes = manager.informer(Node)
    if not pools.cache.has_index(BY_FLEET):
        pools.cache.index(BY_FLEET, fleet_of_pool)
    pools.cache.index(BY_LABEL, lambda pool: [pool.spec.dispatch_label])
    if not nodes.cache.has_index(BY_FLEET):
        nodes.cache.index(BY_FLEET, fleet_of_node)
    runner_pods.cache.index(pods.BY_POOL, pods.index_by_pool())
    views = PodViews(runner_pods.cache)
    runner_pods.on_change(views.on_change)
    return Observations(pools, runner_pods, nodes, views)


def _add_reapers(
    manager: Manager,
    settings: Settings,
    observations: Observations,
    sessions: Sessions | None,
    *,
    clock: Clock,
    registry: CollectorRegistry,
) -> None:
    pools, namespace = observations.pools.cache, settings.namespace
    pod_reaper = PodReaper(manager.kube, pools, sessions, ReaperMetrics(registry), clock)
    freed = Trigger()
    manager.add(
        Controller(pod_reaper, name="runner-pods")
        .for_kind(Pod, namespace=namespace, labels=_RUNNERS)
        .triggered_by(freed)
    )
    observations.pools.on_change(_enqueue_ended(observations, freed))
    account_reaper = ServiceAccountReaper(manager.kube, pools, observations.pods.cache, clock)
    manager.add(
        Controller(account_reaper, name="runner-service-accounts")
        .for_kind(ServiceAccount, namespace=namespace, labels=labels.RUNNER_POOL)
        .watches(Pod, to=account_of_pod, namespace=namespace, labels=_RUNNERS)
    )


def pool_of_pod(pod: Pod) -> list[Key]:
    """Return the pool that a Pod belongs to."""
    name = pod.metadata.labels.get(labels.RUNNER_POOL, "")
    return [Key(pod.namespace or "", name)] if name else []


def account_of_pod(pod: Pod) -> list[Key]:
    """Return the ServiceAccount of a Pod that is being deleted or gone; both have the same name."""
    return [Key(pod.namespace or "", pod.name)]


def fleet_of_pool(pool: RunnerPool) -> list[str]:
    """Return the fleet of a macOS pool."""
    return [pool.spec.fleet_selector] if pool.spec.os == labels.DARWIN else []


def fleet_of_node(node: Node) -> list[str]:
    """Return the fleet of a Node that can run the Pods of its pools."""
    fleet = fleet_of(node)
    return [] if fleet is None else [fleet]


def _fleet_changes(observations: Observations) -> Trigger:
    """Return a trigger that enqueues the pools of a fleet when one of its hosts, or what pools share, changes."""
    trigger = Trigger()

    def enqueue(fleets: Iterable[str]) -> None:
        for fleet in dict.fromkeys(fleets):
            for pool in observations.pools.cache.by_index(BY_FLEET, fleet):
                trigger.enqueue(Key(pool.namespace or "", pool.name))

    def node_changed(_key: Key, old: Node | None, new: Node | None) -> None:
        # Most changes of a Node are heartbeats.
        if old is None or new is None or _host_facts(old) != _host_facts(new):
            enqueue(fleet for each in (old, new) if each for fleet in fleet_of_node(each))

    def pool_changed(_key: Key, old: RunnerPool | None, new: RunnerPool | None) -> None:
        if old is None or new is None or _shared_facts(old) != _shared_facts(new):
            enqueue(fleet for each in (old, new) if each for fleet in fleet_of_pool(each))

    observations.nodes.on_change(node_changed)
    observations.pools.on_change(pool_changed)
    return trigger


def _host_facts(node: Node) -> tuple[object, ...]:
    """Return what the decisions about the pools of a fleet depend on."""
    return fleet_of(node), host_of(node)


def _shared_facts(pool: RunnerPool) -> tuple[object, ...]:
    """Return what the decisions about other pools of the fleet depend on."""
    status = pool.status
    return (
        *(pool.spec.replicas, pool.spec.rollout, pool.spec.fleet_selector, pool.deleting),
        pool.spec.dispatch_label,
        *(status.target_image, status.last_good_image, status.roll_phase),
    )


def _enqueue_ended(
    observations: Observations, trigger: Trigger
) -> Callable[[Key, RunnerPool | None, RunnerPool | None], None]:
    """Return a handler that enqueues the Pods that have ended when their pool has freed slots."""

    def changed(_key: Key, old: RunnerPool | None, new: RunnerPool | None) -> None:
        if new is None or (old is not None and old.status.slots == new.status.slots):
            return
        for pod in observations.views.of_pool(new.name):
            if pod.is_terminal and not pod.is_deleting:
                trigger.enqueue(Key(new.namespace or "", pod.name))

    return changed
