"""Composition of one agent: its components in the order of their dependencies, and the tasks that run them.

Components are created after the lock of the host is held.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bramley.agent.crash_recovery import restart_on_crash
from bramley.agent.dhcp_leases import DhcpLeases
from bramley.agent.gc import collector, leases
from bramley.agent.gc.collector import GarbageCollector
from bramley.agent.guest.environment import NodeFacts
from bramley.agent.guest.folders import UserData
from bramley.agent.guest.guests import Guests
from bramley.agent.guest.tokens import Tokens
from bramley.agent.gui_session import GuiSession
from bramley.agent.host_clock import HostClock
from bramley.agent.images.credentials import Keyring
from bramley.agent.images.disk_space import DiskSpace
from bramley.agent.images.image_manager import ImageManager
from bramley.agent.images.image_requests import PullBackoff
from bramley.agent.images.image_store import ImageStore
from bramley.agent.images.partial_downloads import PartialDownloads
from bramley.agent.images.puller import Puller
from bramley.agent.images.staging import Staging, StagingSettings
from bramley.agent.ledger import VmState
from bramley.agent.metrics import AgentMetrics
from bramley.agent.metrics_proxy import MetricsProxy
from bramley.agent.node import lease
from bramley.agent.node.controller import NodeController
from bramley.agent.node.host_probes import HostProbes
from bramley.agent.pods import controller
from bramley.agent.pods.context import PodDeps
from bramley.agent.pods.controller import PodController
from bramley.agent.settings import Endpoint, Settings
from bramley.agent.slots import Slots
from bramley.agent.tart.driver import Tart
from bramley.api.core import Node
from bramley.api.names import agent as names
from bramley.api.names import events
from bramley.runtime.client import Selection
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.probes import ProbeSettings

if TYPE_CHECKING:
    from bramley.agent.serving.endpoints import Endpoints
    from bramley.app.agent import AgentDeps

# Reconciles in progress may finish; the next agent continues those that take longer.
DRAIN = timedelta(seconds=5)
STOP_TIMEOUT = timedelta(seconds=8)


class AgentComponents:
    """The components of one agent."""

    def __init__(self, settings: Settings, deps: AgentDeps) -> None:
        self._settings = settings
        self._deps = deps
        self._manager_stopped = asyncio.Event()
        kube, clock, rng = deps.kube, deps.clock, deps.rng
        self.clock = self._new_clock()
        self.metrics = AgentMetrics(deps.registry)
        self.ledger = deps.open_ledger(settings.folders.ledger)
        self.dhcp_leases = DhcpLeases(settings.folders.dhcp_leases, clock)
        self.tart = self._new_tart()
        self.slots = self._new_slots()
        self.session = self._new_session()
        self.manager = self._new_manager()
        self.image_store = ImageStore(self.ledger, settings.folders.tart_home, clock)
        self.partial_downloads = PartialDownloads(settings.folders.tart_home, deps.host, deps.clock)
        self.collector = self._new_collector() if settings.gc_enabled else None
        self.images = self._new_images()
        self.staging = self._new_staging()
        self.user_data = UserData(settings.folders.user_data)
        self.guest_tokens = Tokens(kube, self.user_data, clock=clock, rng=rng, metrics=self.metrics)
        self.guests = self._new_guests()
        self.metrics_proxy = self._new_metrics_proxy()
        self.pods = self._add_pod_controller()
        self.host_probes = self._new_host_probes()
        self.node = NodeController(
            settings.node, kube, facts=self.host_probes.facts, clock=clock, rng=rng
        )
        self.lease = lease.LeaseController(
            settings.node.name, kube, uid=lambda: self.node.uid, clock=clock, rng=rng
        )
        self._watch_node()
        self._add_health_checks()
        self.endpoints = self._new_endpoints()

    def tasks(self) -> Iterator[Coroutine[Any, Any, object]]:
        """Yield the tasks of the agent; each runs until it is cancelled."""
        yield self.lease.run()
        yield self.node.run()
        yield from self.host_probes.runnables()
        yield self.images.run()
        yield restart_on_crash("removals", self.tart.removals.run)
        yield restart_on_crash("staging", self.staging.run)
        yield restart_on_crash("tokens", self.guest_tokens.run)
        if self.endpoints is not None:
            yield from self.endpoints.runnables()
            yield self._publish_port(self.endpoints)
        if self.collector is not None:
            yield restart_on_crash("collector", self.collector.run)
        yield self._run_manager()
        yield from (
            restart_on_crash("background task", task) for task in self._deps.background_tasks
        )

    async def stop(self) -> None:
        """Stop the manager, which finishes reconciles and flushes events, before the other tasks are cancelled."""
        self.manager.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT.total_seconds()):
                await self._manager_stopped.wait()
        if self.metrics_proxy is not None:
            self.metrics_proxy.close()

    async def _run_manager(self) -> None:
        try:
            await self.manager.run()
        finally:
            self._manager_stopped.set()

    def _new_clock(self) -> HostClock:
        deps, folders = self._deps, self._settings.folders
        return HostClock(deps.clock, folders.clock, boot_id=deps.host.boot_id)

    def _new_tart(self) -> Tart:
        return Tart(
            self._deps.programs,
            binary=self._settings.tart_binary,
            home=self._settings.folders.tart_home,
            metrics=self.metrics,
        )

    def _new_slots(self) -> Slots:
        deps = self._deps
        return Slots(
            self.ledger,
            runs=deps.runs,
            tart=self.tart,
            host=deps.host,
            clock=deps.clock,
            max_vms=self._settings.node.max_pods,
            leases=lambda: leases.held(self._settings.folders.leases),
            refusal_file=self._settings.folders.refusal,
        )

    def _new_session(self) -> GuiSession | None:
        if self._settings.gui_session_uid is None:
            return None
        deps = self._deps
        return GuiSession(
            self._settings.gui_session_uid,
            deps.programs,
            clock=deps.clock,
            rng=deps.rng,
            has_running_vm=self._runs_any_vm,
        )

    def _new_manager(self) -> Manager:
        settings, deps = self._settings, self._deps
        served = [
            _probes(settings.metrics, metrics=True),
            _probes(settings.health, metrics=False),
        ]
        probes = tuple(each for each in served if each is not None) if deps.has_sockets else ()
        return Manager(
            deps.kube,
            clock=deps.clock,
            rng=deps.rng,
            registry=deps.registry,
            settings=ManagerSettings(probes=probes, drain=DRAIN, tune_gc=deps.has_sockets),
        )

    def _new_collector(self) -> GarbageCollector:
        deps, settings = self._deps, self._settings
        return GarbageCollector(
            tart=self.tart,
            store=self.image_store,
            ledger=self.ledger,
            host=deps.host,
            clock=self.clock,
            list_pods=collector.list_pods_of(deps.kube, settings.node.name),
            remove_vm=self._remove_vm,
            drop_partial_downloads=self.partial_downloads.drop_idle,
            leases=settings.folders.leases,
            binary=settings.tart_binary,
        )

    def _new_images(self) -> ImageManager:
        deps, clock, rng = self._deps, self._deps.clock, self._deps.rng
        # Without the collector nothing may delete images on a full disk either.
        reclaim = (self.collector.reclaim, self.collector.reclaim_later) if self.collector else ()
        space = DiskSpace(deps.host, self._settings.folders.tart_home, *reclaim)
        return ImageManager(
            tart=self.tart,
            ledger=self.ledger,
            store=self.image_store,
            puller=Puller(
                self.tart,
                clock=clock,
                rng=rng,
                metrics=self.metrics,
                space=space,
                partials=self.partial_downloads,
            ),
            keyring=Keyring(deps.kube, self._settings.registry_credentials),
            host=deps.host,
            clock=clock,
            backoff=PullBackoff(clock, rng),
            space=space,
        )

    def _new_staging(self) -> Staging:
        deps, settings = self._deps, self._settings
        return Staging(
            settings.node.name,
            deps.kube,
            images=self.images,
            store=self.image_store,
            host=deps.host,
            clock=deps.clock,
            settings=StagingSettings(megabytes_per_second=settings.stage_megabytes_per_second),
        )

    def _new_guests(self) -> Guests:
        node = self._settings.node
        node_facts = NodeFacts(
            node=node.name,
            host=node.address or node.name,
            allocatable={"cpu": str(node.cpu), "memory": f"{node.memory_mb}Mi"},
        )
        return Guests(
            self._deps.kube,
            self.user_data,
            self.guest_tokens,
            node_facts=node_facts,
            logs=self._settings.folders.vm_logs,
        )

    def _add_pod_controller(self) -> PodController:
        deps, node = self._deps, self._settings.node
        pod_deps = PodDeps(
            node=node.name,
            host_address=node.address or node.name,
            kube=self.manager.kube,
            pods=controller.pod_cache(self.manager, node.name),
            recorder=self.manager.recorder(events.AGENT_COMPONENT, instance=node.name),
            ledger=self.ledger,
            tart=self.tart,
            runs=deps.runs,
            host=deps.host,
            images=self.images,
            data=self.user_data,
            guests=self.guests,
            gui_session=self.session,
            slots=self.slots,
            metrics=self.metrics,
            clock=self.clock,
            rng=deps.rng,
            metrics_proxy=self.metrics_proxy,
            dhcp_leases=self.dhcp_leases,
            boot_timeout=self._settings.vm_boot_timeout,
        )
        return controller.add_to_manager(self.manager, pod_deps)

    def _new_metrics_proxy(self) -> MetricsProxy | None:
        if not self._deps.has_sockets:
            return None
        return MetricsProxy(
            host=self._settings.node.address,
            find_address=lambda vm: self.tart.ip(vm, timedelta()),
            vms=self.ledger.vms,
            clock=self._deps.clock,
            allowed=self._settings.scrape_allowed,
        )

    def _new_host_probes(self) -> HostProbes:
        return HostProbes(
            tart=self.tart,
            host=self._deps.host,
            session=self.session,
            disk=self._settings.folders.tart_home,
            running_vms=self._running_vms,
            slots=self.slots.taken_by_others,
            images=self.images.present,
            liveness=self.pods.deps.liveness,
            metrics=self.metrics,
            dhcp_leases=self.dhcp_leases,
            on_change=self._update_node,
        )

    def _watch_node(self) -> None:
        selection = Selection.of(fields={"metadata.name": self._settings.node.name})
        informer = self.manager.informer(Node, selection)
        informer.on_change(self.node.on_change)
        informer.on_change(self.staging.on_change)

    def _add_health_checks(self) -> None:
        for probes in self.manager.probes:
            # By the name of the check a client sees which of several agents on a machine answers.
            probes.add_health_check(f"{names.HEALTH_OF_NODE}{self._settings.node.name}", lambda: "")
            probes.add_ready_check(names.READY_LEASE, self.lease.expired_reason)

    def _running_vms(self) -> list[str]:
        """Return our VMs whose guest may be running."""
        vms = self.ledger.vms().values()
        started = (record.vm for record in vms if record.state is VmState.STARTED)
        return [vm for vm in started if self._deps.runs.is_alive(vm)]

    def _runs_any_vm(self) -> bool:
        """Return whether any VM, ours or not, runs on this host or is about to: the record is written before the process starts."""
        try:
            return bool(self.slots.occupied() or self._deps.host.guest_processes())
        except OSError:
            # Unknown counts as running: a restart of loginwindow would end the VM.
            return True

    # Bound late: the collector is created before the Pod controller, and the probes before the Node controller.
    async def _remove_vm(self, vm: str) -> None:
        await self.pods.remove_vm(vm)

    def _update_node(self) -> None:
        self.node.update_now()

    def _new_endpoints(self) -> Endpoints | None:
        serving = self._settings.serving
        if serving is None or not self._deps.has_sockets:
            return None
        # Imported here: agents without these endpoints stay smaller.
        from bramley.agent.serving.endpoints import Endpoints

        pods = self.pods.deps.pods
        return Endpoints(
            self._settings,
            serving,
            kube=self._deps.kube,
            programs=self._deps.programs,
            host=self._deps.host,
            ledger=self.ledger,
            pods=lambda namespace, name: pods.find(Key(namespace, name)),
            clock=self._deps.clock,
        )

    async def _publish_port(self, endpoints: Endpoints) -> None:
        await endpoints.server.ready.wait()
        self.host_probes.kubelet_port = endpoints.server.port
        self.node.update_now()


def _probes(endpoint: Endpoint | None, *, metrics: bool) -> ProbeSettings | None:
    if endpoint is None:
        return None
    return ProbeSettings(endpoint.host, endpoint.port, health=not metrics, metrics=metrics)
