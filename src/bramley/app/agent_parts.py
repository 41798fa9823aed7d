"""The parts of an agent, made for one start of it: who knows whom. They are made once the host's lock is held."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bramley.agent.crash_recovery import lasting
from bramley.agent.gc import collector
from bramley.agent.gc.collector import Collector
from bramley.agent.gui_session import Session
from bramley.agent.host_clock import SteadyClock
from bramley.agent.images import composing, staging
from bramley.agent.images.credentials import Keyring
from bramley.agent.images.image_store import Stock
from bramley.agent.images.images import Images
from bramley.agent.ledger import VmState
from bramley.agent.metrics import AgentMetrics
from bramley.agent.metrics_proxy import Scraping
from bramley.agent.node import lease
from bramley.agent.node.controller import NodeKeeper
from bramley.agent.node.host_probes import Others, View
from bramley.agent.pods import controller
from bramley.agent.settings import Endpoint, Settings
from bramley.agent.slots import Slots
from bramley.agent.tart.driver import Tart
from bramley.api.core import Node
from bramley.api.names import agent as names
from bramley.app.agent_guests import GuestParts, endpoints, serving_jobs
from bramley.runtime.client import Selection
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.probes import ProbeSettings

if TYPE_CHECKING:
    from bramley.agent.serving.endpoints import Endpoints
    from bramley.app.agent import Surroundings

# A reconcile under way may end; what takes longer is taken up again by the next agent.
DRAIN = timedelta(seconds=5)
STOP_WITHIN = timedelta(seconds=8)


class Parts:
    """All parts of one agent."""

    def __init__(self, settings: Settings, around: Surroundings) -> None:
        self._settings = settings
        self._around = around
        self._managed = asyncio.Event()
        self.clock = self._new_clock()
        self.metrics = AgentMetrics(around.registry)
        self.ledger = around.open_ledger(settings.folders.ledger)
        self.tart = self._new_tart()
        self.slots = self._new_slots()
        self.session = self._new_session()
        self.manager = self._new_manager()
        self.stock = Stock(self.ledger, settings.folders.tart_home, around.clock)
        # Where there is no collector nothing else may delete on a full disk either.
        self.collector = self._new_collector() if settings.collects else None
        self.images = self._new_images()
        self.staging = self._new_staging()
        self.guests = GuestParts(settings, around, self.metrics)
        self.scraping = self._new_scraping()
        self.pods = self._join_pods()
        self.view = self._new_view()
        self.node = NodeKeeper(
            settings.node,
            around.kube,
            facts=self.view.facts,
            clock=around.clock,
            rng=around.rng,
        )
        self.heartbeat = lease.Heartbeat(
            settings.node.name,
            around.kube,
            uid=lambda: self.node.uid,
            clock=around.clock,
            rng=around.rng,
        )
        self._watch_node()
        self._tell_health()
        self.endpoints = self._new_endpoints()

    def jobs(self) -> Iterator[Coroutine[Any, Any, object]]:
        """Yield what runs side by side; each of them runs until it is cancelled."""
        yield self.heartbeat.run()
        yield self.node.run()
        yield from self.view.jobs()
        yield self.images.run()
        yield lasting("staging", self.staging.run)
        yield lasting("tokens", self.guests.tokens.run)
        if self.endpoints is not None:
            yield from serving_jobs(self.endpoints, self._on_serving)
        if self.collector is not None:
            yield lasting("collector", self.collector.run)
        yield self._manage()
        yield from (lasting("side job", job) for job in self._around.beside)

    async def stop(self) -> None:
        """End what has to end in order, before the rest is cancelled: steps under way, then events that are not told yet."""
        self.manager.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_WITHIN.total_seconds()):
                await self._managed.wait()
        if self.scraping is not None:
            self.scraping.close()

    async def _manage(self) -> None:
        try:
            await self.manager.run()
        finally:
            self._managed.set()

    def _new_clock(self) -> SteadyClock:
        around, folders = self._around, self._settings.folders
        return SteadyClock(around.clock, folders.clock, boot_id=around.host.boot_id)

    def _new_tart(self) -> Tart:
        return Tart(
            self._around.programs,
            binary=self._settings.tart_binary,
            home=self._settings.folders.tart_home,
            metrics=self.metrics,
        )

    def _new_slots(self) -> Slots:
        around = self._around
        return Slots(
            self.ledger,
            runs=around.runs,
            tart=self.tart,
            host=around.host,
            clock=around.clock,
            most=self._settings.node.max_pods,
        )

    def _new_session(self) -> Session | None:
        if self._settings.session_of is None:
            return None
        around = self._around
        return Session(
            self._settings.session_of,
            around.programs,
            clock=around.clock,
            rng=around.rng,
            runs_a_vm=self._runs_a_vm,
        )

    def _new_manager(self) -> Manager:
        settings, around = self._settings, self._around
        served = [
            _probes(settings.metrics, metrics=True),
            _probes(settings.health, metrics=False),
        ]
        probes = tuple(one for one in served if one is not None) if around.has_sockets else ()
        return Manager(
            around.kube,
            clock=around.clock,
            rng=around.rng,
            registry=around.registry,
            settings=ManagerSettings(probes=probes, drain=DRAIN, tune_gc=around.has_sockets),
        )

    def _new_collector(self) -> Collector:
        around, settings = self._around, self._settings
        return Collector(
            collector.Surroundings(
                tart=self.tart,
                stock=self.stock,
                ledger=self.ledger,
                host=around.host,
                clock=self.clock,
                list_pods=collector.pods_of(around.kube, settings.node.name),
                remove_vm=self._remove_vm,
                leases=settings.folders.leases,
                binary=settings.tart_binary,
            )
        )

    def _new_images(self) -> Images:
        around = self._around
        return composing.build(
            composing.Means(
                tart=self.tart,
                ledger=self.ledger,
                stock=self.stock,
                keys=Keyring(around.kube, self._settings.registry_credentials),
                host=around.host,
                clock=around.clock,
                rng=around.rng,
                metrics=self.metrics,
                reclaim=self.collector.reclaim if self.collector else None,
            )
        )

    def _new_staging(self) -> staging.Staging:
        around, settings = self._around, self._settings
        return staging.Staging(
            staging.Surroundings(
                node=settings.node.name,
                kube=around.kube,
                images=self.images,
                stock=self.stock,
                host=around.host,
                clock=around.clock,
            ),
            staging.StagingSettings(megabytes_per_second=settings.stage_megabytes_per_second),
        )

    def _join_pods(self) -> controller.Joined:
        around, node = self._around, self._settings.node
        return controller.join(
            self.manager,
            controller.Parts(
                node=node.name,
                host_address=node.address or node.name,
                ledger=self.ledger,
                tart=self.tart,
                runs=around.runs,
                host=around.host,
                images=self.images,
                data=self.guests.folders,
                guests=self.guests.guests,
                session=self.session,
                slots=self.slots,
                metrics=self.metrics,
                clock=self.clock,
                rng=around.rng,
                scraping=self.scraping,
            ),
        )

    def _new_scraping(self) -> Scraping | None:
        if not self._around.has_sockets:
            return None
        return Scraping(
            host=self._settings.node.address,
            find=lambda vm: self.tart.ip(vm, timedelta()),
            vms=self.ledger.vms,
            clock=self._around.clock,
            allowed=self._settings.scrape_allowed,
        )

    def _new_view(self) -> View:
        return View(
            self.tart,
            self._around.host,
            session=self.session,
            disk=self._settings.folders.tart_home,
            others=Others(
                self._running, self.slots.leaks, self.images.present, self.pods.means.hearing
            ),
            metrics=self.metrics,
            changed=self._changed,
        )

    def _watch_node(self) -> None:
        own = Selection.of(fields={"metadata.name": self._settings.node.name})
        informer = self.manager.informer(Node, own)
        informer.on_change(self.node.on_change)
        informer.on_change(self.staging.on_change)

    def _tell_health(self) -> None:
        for probes in self.manager.probes:
            # Whoever asks on a machine with several agents has to see which one answers.
            probes.health_check(f"{names.HEALTH_OF_NODE}{self._settings.node.name}", lambda: "")
            probes.ready_check(names.READY_LEASE, self.heartbeat.trouble)

    def _running(self) -> list[str]:
        """Return the VMs of ours whose guest may answer."""
        vms = self.ledger.vms().values()
        started = (record.vm for record in vms if record.state is VmState.STARTED)
        return [vm for vm in started if self._around.runs.is_alive(vm)]

    def _runs_a_vm(self) -> bool:
        """Tell whether any VM runs on this host, ours or not, or is about to: the record comes before the process."""
        try:
            return bool(self.slots.occupied() or self._around.host.guest_processes())
        except OSError:
            return True

    async def _remove_vm(self, vm: str) -> None:
        await self.pods.remove(vm)

    def _new_endpoints(self) -> Endpoints | None:
        serving = self._settings.serving
        if serving is None or not self._around.has_sockets:
            return None
        pods = self.pods.means.pods
        return endpoints(self._settings, self._around, serving, ledger=self.ledger, pods=pods)

    def _changed(self) -> None:
        self.node.wake()

    def _on_serving(self, port: int) -> None:
        self.view.kubelet_port = lambda: port
        self.node.wake()


def _probes(endpoint: Endpoint | None, *, metrics: bool) -> ProbeSettings | None:
    if endpoint is None:
        return None
    return ProbeSettings(endpoint.host, endpoint.port, health=not metrics, metrics=metrics)
