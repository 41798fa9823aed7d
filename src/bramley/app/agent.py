"""The agent: its parts put together, and run until somebody stops it.

`build` is the same for a real process and for a simulated Mac under virtual time; what differs is `Surroundings`. `run` is the real
process: real programs and supervisors of this machine, and signals. Stopping ends the agent and never a VM.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bramley.agent import state_folder
from bramley.agent.agent_token import AgentToken, AgentTokenRenewal
from bramley.agent.ledger import Ledger
from bramley.agent.node import address
from bramley.app.agent_parts import Parts
from bramley.base import log
from bramley.base.clock import Clock, SystemClock

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from bramley.agent.host import Host
    from bramley.agent.programs import Programs
    from bramley.agent.runs import Runs
    from bramley.agent.settings import Settings
    from bramley.kube.client import Client

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an agent meets: the cluster, the host, time and chance; `has_sockets` is false under virtual time."""

    kube: Client
    programs: Programs
    runs: Runs
    host: Host
    clock: Clock
    rng: random.Random
    registry: CollectorRegistry
    has_sockets: bool = True
    # How records are kept: by default so that they outlive a loss of power, which a simulated Mac does not know.
    open_ledger: Callable[[Path], Ledger] = Ledger
    # What the real side of a host does in the background, such as cutting logs.
    beside: tuple[Callable[[], Coroutine[Any, Any, object]], ...] = ()


class Agent:
    """One agent; `run` until `stop`."""

    def __init__(self, settings: Settings, around: Surroundings) -> None:
        # Set once the Node is registered and says how it is.
        self.ready = asyncio.Event()
        self.parts: Parts | None = None
        self._settings = settings
        self._around = around
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin to stop; VMs go on."""
        self._stopping.set()

    @property
    def node_uid(self) -> str:
        """Return the id of the Node as it was seen last; empty before that."""
        return self.parts.node.uid if self.parts else ""

    async def run(self) -> None:
        """Make this host a Node and its Pods VMs; AnotherAgent if one does already."""
        settings = await address.settled(self._settings, self._around.programs, self._around.host)
        state_folder.make_folders(settings.folders)
        with state_folder.hold_lock(settings.folders.lock):
            self.parts = parts = Parts(settings, self._around)
            logger.info("Starting", node=settings.node.name, address=settings.node.address)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(job) for job in parts.jobs()]
                tasks.append(group.create_task(self._tell_ready(parts)))
                await self._stopping.wait()
                logger.info("Stopping", reason="asked to; VMs go on")
                await parts.stop()
                for task in tasks:
                    task.cancel()
        logger.info("Stopped")

    async def _tell_ready(self, parts: Parts) -> None:
        await parts.node.registered.wait()
        self.ready.set()


def build(settings: Settings, around: Surroundings) -> Agent:
    """Return an agent that has not begun yet."""
    return Agent(settings, around)


def run(settings: Settings, *, kubeconfig: str | None, environment: Mapping[str, str]) -> None:
    """Run the agent of this machine until a signal comes; programs that it starts inherit the environment."""
    asyncio.run(_process(settings, kubeconfig, environment))


async def _process(
    settings: Settings, kubeconfig: str | None, environment: Mapping[str, str]
) -> None:
    clock, rng = SystemClock(), random.Random()
    state_folder.make_folders(settings.folders)
    own, kube = _way_in(settings, kubeconfig, environment, clock=clock)
    async with kube:
        around = _here(settings, kube, environment, clock=clock, rng=rng)
        node = settings.node.name
        renewal = AgentTokenRenewal(
            own, kube, node=node, uid=lambda: agent.node_uid, clock=clock, rng=rng
        )
        agent = build(settings, replace(around, beside=(*around.beside, renewal.run)))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, agent.stop)
        await agent.run()


def _way_in(
    settings: Settings, kubeconfig: str | None, environment: Mapping[str, str], *, clock: Clock
) -> tuple[AgentToken, Client]:
    """Return the agent's own credentials and a client that shows them."""
    from bramley.kube import config_loader
    from bramley.kube.client import Client
    from bramley.kube.http import HttpTransport

    explicit = Path(kubeconfig) if kubeconfig else None
    found = config_loader.load(explicit, environment=environment, clock=clock)
    own = AgentToken(found.credentials, settings.folders.own_token)
    return own, Client(HttpTransport(replace(found, credentials=own)), clock=clock)


def _here(
    settings: Settings,
    kube: Client,
    environment: Mapping[str, str],
    *,
    clock: Clock,
    rng: random.Random,
) -> Surroundings:
    """Return this machine, with its real programs and supervisors."""
    from prometheus_client import CollectorRegistry

    from bramley.agent import platform
    from bramley.agent.processes import ProcessJournal, SystemPrograms
    from bramley.agent.supervised_runs import SupervisedRuns
    from bramley.agent.vm_logs import VmLogs

    folders = settings.folders
    logs = VmLogs(folders.vm_logs, clock=clock)
    host = platform.current(tart_home=folders.tart_home)
    journal = ProcessJournal(folders.state / "programs", host)
    return Surroundings(
        kube=kube,
        programs=SystemPrograms(environment, journal=journal),
        runs=SupervisedRuns(
            folders.state, folders.vm_logs, clock, environment=environment, system=host
        ),
        host=host,
        clock=clock,
        rng=rng,
        registry=CollectorRegistry(),
        beside=(journal.clear, logs.run),
    )
