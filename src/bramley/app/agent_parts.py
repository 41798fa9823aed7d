"""The parts of an agent, made for one start of it: who knows whom. They are made once the host's lock is held."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bramley.agent.gui import Session
from bramley.agent.ledger.ledger import Ledger
from bramley.agent.ledger.records import VmState
from bramley.agent.metrics import AgentMetrics
from bramley.agent.node import lease
from bramley.agent.node.keeping import NodeKeeper
from bramley.agent.node.view import View
from bramley.agent.settings import Endpoint, Settings
from bramley.agent.slots import Slots
from bramley.agent.tart.driver import Tart
from bramley.api.core import Node
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.probes import ProbeSettings
from bramley.runtime.source import Selection

if TYPE_CHECKING:
    from bramley.app.agent import Around

# A reconcile under way may end; what takes longer is taken up again by the next agent.
DRAIN = timedelta(seconds=5)


class Parts:
    """All parts of one agent."""

    def __init__(self, settings: Settings, around: Around) -> None:
        self._settings = settings
        self._around = around
        self.metrics = AgentMetrics(around.registry)
        self.ledger = Ledger(settings.folders.ledger)
        self.tart = Tart(
            around.programs,
            binary=settings.tart_binary,
            home=settings.folders.tart_home,
            metrics=self.metrics,
        )
        self.slots = Slots(
            self.ledger,
            runs=around.runs,
            tart=self.tart,
            host=around.host,
            clock=around.clock,
            most=settings.node.max_pods,
        )
        self.session = self._new_session()
        self.manager = self._new_manager()
        self.view = View(
            self.tart,
            around.host,
            session=self.session,
            disk=settings.folders.tart_home,
            running=self._running,
            leaks=self.slots.leaks,
            metrics=self.metrics,
            changed=self._changed,
        )
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
        own = Selection.of(fields={"metadata.name": settings.node.name})
        self.manager.informer(Node, own).on_change(self.node.on_change)

    def jobs(self) -> Iterator[Coroutine[Any, Any, object]]:
        """Yield what runs side by side; each of them runs until it is cancelled."""
        yield self.heartbeat.run()
        yield self.node.run()
        yield from self.view.jobs()
        yield self.manager.run()
        yield from (job() for job in self._around.beside)

    async def stop(self) -> None:
        """End what has to end in order, before the rest is cancelled."""
        self.manager.stop()

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
            settings=ManagerSettings(probes=probes, drain=DRAIN, calm_collector=around.has_sockets),
        )

    def _running(self) -> list[str]:
        """Return the VMs of ours whose guest may answer."""
        started = (
            vm for vm, record in self.ledger.vms().items() if record.state is VmState.STARTED
        )
        return [vm for vm in started if self._around.runs.is_alive(vm)]

    def _runs_a_vm(self) -> bool:
        """Tell whether any VM runs on this host, ours or not, or is about to: the record comes before the process."""
        try:
            return bool(self.slots.occupied() or self._around.host.guest_processes())
        except OSError:
            return True

    def _changed(self) -> None:
        self.node.wake()


def _probes(endpoint: Endpoint | None, *, metrics: bool) -> ProbeSettings | None:
    if endpoint is None:
        return None
    return ProbeSettings(endpoint.host, endpoint.port, health=not metrics, metrics=metrics)
