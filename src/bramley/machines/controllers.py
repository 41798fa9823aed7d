"""All controllers of the provider, and the function that adds them to a manager."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from prometheus_client import CollectorRegistry

from bramley.api import conditions
from bramley.api.cluster_api import Cluster, Machine
from bramley.api.core import Node, Pod
from bramley.api.mac_host import MacHost
from bramley.api.meta import K
from bramley.api.names import conditions as types
from bramley.api.names import events, labels
from bramley.api.runner_pool import RunnerPool
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.machines import (
    fleet_spread,
    host_sweep,
    idle_machines,
    mac_draft,
    macs,
    objects,
    tuist_clusters,
)
from bramley.machines.binding import Binding
from bramley.machines.bootstrap_secrets import BootstrapSecrets
from bramley.machines.builder_runners import BuilderRunners
from bramley.machines.host_access import (
    Connect,
    FleetKeys,
    OwnedLogins,
    RentedLogins,
    SharedSecrets,
)
from bramley.machines.host_configuration import HostDefaults
from bramley.machines.host_failures import HostFailures
from bramley.machines.host_leases import HostLeases
from bramley.machines.host_metrics import HostMetrics
from bramley.machines.host_operations import HostOperations
from bramley.machines.host_work import HostWork, Logins
from bramley.machines.mac_host_reconciler import MacHostReconciler
from bramley.machines.machine_caches import MachineCaches
from bramley.machines.machine_reconciler import MachineReconciler
from bramley.machines.macs import Macs
from bramley.machines.metrics import MachineMetrics
from bramley.machines.release import Releases
from bramley.machines.runner_registration import Resolver, RunnerDirectory
from bramley.providers.provider import HostProvider
from bramley.providers.zone_lists import ZoneLists
from bramley.runtime.cache import Cache
from bramley.runtime.client import Selection
from bramley.runtime.controller import Controller, ControllerSettings
from bramley.runtime.keys import Key, key_of
from bramley.runtime.manager import Manager
from bramley.runtime.queue import Trigger

BY_NAME = "controllers.name"
BY_UID = "controllers.uid"
_SMOKE = {labels.SMOKE: labels.TRUE}
_RUNNERS = {labels.RUNNER: labels.TRUE}
# Every outcome has a time; this is only for a bug that loses one.
_RESYNC = timedelta(hours=1)
# A claim or a release is several calls to the provider, each with its own deadline.
_DEADLINE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of all controllers."""

    secrets_namespace: str = "default"
    decisions: mac_draft.Settings = field(default_factory=mac_draft.Settings)
    # Empty: that of a RunnerPool of the fleet.
    smoke_image: str = ""
    # How many hosts are bootstrapped or updated at once.
    operations: int = 4
    workers: int = 16
    default_pool_prefix: str = ""
    ssh_port: int = 22
    # After how many machines that have failed on a host it is not adopted any more; 0: never.
    quarantine_after: int = 2
    sweep: host_sweep.Settings = field(default_factory=host_sweep.Settings)
    spread: fleet_spread.Settings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the controllers are made of."""

    # The client of the manager.
    client: Client
    defaults: HostDefaults
    connect: Connect
    registrations: Resolver
    runners: RunnerDirectory
    clock: Clock
    registry: CollectorRegistry
    # Returns the provider, which must call the function before each request; None without rented Macs.
    provider: Callable[[Callable[[], None]], HostProvider] | None = None


def add(manager: Manager, parts: Parts, settings: Settings) -> None:
    """Add all controllers; those of rented Macs only with a provider."""
    shared = _Shared(manager, parts, settings)
    shared.add_mac_hosts()
    if parts.provider is not None:
        shared.add_machines(parts.provider(manager.check))
    if settings.spread is not None:
        fleet_spread.add(manager, parts.client, settings.spread)


class _Shared:
    """What the controllers of both kinds share."""

    def __init__(self, manager: Manager, parts: Parts, settings: Settings) -> None:
        self.manager = manager
        self.parts = parts
        self.settings = settings
        self.metrics = MachineMetrics(parts.registry)
        self.operations = HostOperations(settings.operations, parts.clock, self.metrics)
        manager.add_runnable(self.operations.run)
        self.secrets = SharedSecrets(parts.client, parts.clock)
        self.caches = macs.Caches(
            manager.informer(Node).cache,
            manager.informer(Pod, Selection.of(labels=_SMOKE)).cache,
            manager.informer(Pod, Selection.of(labels=_RUNNERS)).cache,
            manager.informer(RunnerPool).cache,
        )
        self.caches.index()

    def epoch(self) -> int:
        """Return the epoch of this process's leadership, 0 without election."""
        return self.manager.leadership.epoch if self.manager.leadership else 0

    def macs(self, logins: Logins, trigger: Trigger) -> Macs:
        """Return what one kind of Macs needs."""
        parts, kube = self.parts, self.manager.kube
        work = HostWork(
            kube,
            parts.client.checked(self.manager.check),
            parts.defaults,
            parts.connect,
            self.secrets,
            self.settings.secrets_namespace,
            parts.registrations,
            self.epoch,
            parts.clock,
        )
        runners = BuilderRunners(kube, parts.runners, work, logins)
        return Macs(
            kube,
            parts.client,
            self.caches,
            self.operations,
            work,
            logins,
            runners,
            self.settings.decisions,
            self.settings.smoke_image,
            trigger,
            parts.clock,
        )

    def add_mac_hosts(self) -> None:
        """Add the controller of Macs that a team owns."""
        trigger, hosts = Trigger(), self.manager.informer(MacHost).cache
        index(hosts)
        logins = OwnedLogins(self.parts.client, self.secrets)
        reconciler = MacHostReconciler(
            self.manager.kube,
            self.macs(logins, trigger),
            hosts,
            self.manager.recorder(events.MACHINES_COMPONENT),
            self.parts.clock,
        )
        reconciler.index()
        self._watch_nodes(hosts, trigger)
        controller = Controller(reconciler, settings=self._controller_settings())
        self.manager.add(
            controller.for_kind(MacHost)
            .watches(Pod, to=_of_smoke_pod(hosts), labels=_SMOKE)
            .triggered_by(trigger)
        )

    def add_machines(self, provider: HostProvider) -> None:
        """Add the controllers of rented Macs."""
        manager, parts, trigger = self.manager, self.parts, Trigger()
        found = manager.informer(ScalewayAppleSiliconMachine).cache
        index(found)
        clusters = manager.informer(Cluster).cache
        owners = manager.informer(Machine).cache
        caches = MachineCaches(found, owners, objects.Pauses(clusters))
        caches.index()
        reconciler = self._machine_reconciler(provider, caches, trigger)
        self._watch_nodes(found, trigger)
        controller = Controller(reconciler, settings=self._controller_settings())
        manager.add(
            controller.for_kind(ScalewayAppleSiliconMachine)
            .watches(Pod, to=_of_smoke_pod(found), labels=_SMOKE)
            .watches(Machine, to=_of_owner)
            .watches(Cluster, to=_of_cluster(found))
            .triggered_by(trigger)
        )
        tuist_clusters.add(manager, clock=parts.clock)
        idle_machines.add(manager, owners, found, self.caches, parts.runners)

    def _machine_reconciler(
        self, provider: HostProvider, caches: MachineCaches, trigger: Trigger
    ) -> MachineReconciler:
        manager, clock = self.manager, self.parts.clock
        kube, reader, namespace = manager.kube, self.parts.client, self.settings.secrets_namespace
        releases = self._releases(provider)
        zones, metrics = ZoneLists(provider, clock=clock), HostMetrics(self.parts.registry)
        failures = HostFailures(
            reader=reader,
            kube=kube,
            metrics=metrics,
            namespace=namespace,
            clock=clock,
            threshold=self.settings.quarantine_after,
        )
        sweep = host_sweep.HostSweep(
            releases=releases,
            zones=zones,
            failures=failures,
            metrics=metrics,
            settings=self.settings.sweep,
        )
        host_sweep.add(manager, sweep)
        secrets, leases = releases.secrets, releases.leases
        keys = FleetKeys(reader, kube, provider, namespace, clock)
        return MachineReconciler(
            kube,
            self.macs(RentedLogins(keys, secrets), trigger),
            caches,
            Binding(provider, zones, leases, secrets, releases, kube),
            releases,
            keys,
            failures,
            manager.recorder(events.MACHINES_COMPONENT),
            self.metrics,
            clock,
            self.settings.ssh_port,
        )

    def _releases(self, provider: HostProvider) -> Releases:
        manager, parts, namespace = self.manager, self.parts, self.settings.secrets_namespace
        leases = HostLeases(
            parts.client,
            manager.kube,
            namespace=namespace,
            clock=parts.clock,
            epoch=self.epoch,
            raise_epoch=manager.raise_epoch,
        )
        return Releases(
            provider,
            leases,
            BootstrapSecrets(parts.client, manager.kube, namespace),
            parts.client,
            manager.kube,
            parts.clock,
            self.settings.default_pool_prefix,
        )

    def _controller_settings(self) -> ControllerSettings:
        return ControllerSettings(workers=self.settings.workers, deadline=_DEADLINE, resync=_RESYNC)

    def _watch_nodes(self, owners: Cache[K], trigger: Trigger) -> None:
        """Enqueue the object of a Node when something changes that decisions depend on; heartbeats do not count."""

        def changed(key: Key, old: Node | None, new: Node | None) -> None:
            if _facts(old) != _facts(new):
                for each in owners.by_index(BY_NAME, key.name):
                    trigger.enqueue(key_of(each))

        self.manager.informer(Node).on_change(changed)


def index(objects: Cache[K]) -> None:
    """Add the indexes by which objects of other kinds are mapped."""
    objects.index(BY_NAME, lambda each: [each.name])
    objects.index(BY_UID, lambda each: [each.uid])


def _facts(node: Node | None) -> tuple[object, ...] | None:
    if node is None:
        return None
    ready = conditions.find(node.status.conditions, types.READY)
    state = (ready.status, ready.message) if ready is not None else None
    return node.uid, node.deleting, node.spec, state


def _of_smoke_pod(owners: Cache[K]) -> Callable[[Pod], Iterable[Key]]:
    def keys(pod: Pod) -> list[Key]:
        uid = pod.metadata.labels.get(labels.MACHINE_UID, "")
        return [key_of(each) for each in owners.by_index(BY_UID, uid)]

    return keys


def _of_owner(machine: Machine) -> list[Key]:
    reference = machine.spec.infrastructure_ref
    is_ours = reference.kind == ScalewayAppleSiliconMachine.resource.kind
    return [Key(machine.namespace or "", reference.name)] if is_ours else []


def _of_cluster(
    machines: Cache[ScalewayAppleSiliconMachine],
) -> Callable[[Cluster], Iterable[Key]]:
    def keys(cluster: Cluster) -> list[Key]:
        return [
            key_of(each)
            for each in machines.all(namespace=cluster.namespace)
            if each.metadata.labels.get(labels.CAPI_CLUSTER) == cluster.name
        ]

    return keys
