"""The agent: `Agent` runs it until it is stopped, `run` is the process on a Mac.

A process and a simulated Mac under virtual time differ in `AgentDeps` only. Stopping the agent never stops a VM.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bramley.agent import state_folder
from bramley.agent.agent_token import AgentToken, AgentTokenRenewal
from bramley.agent.ledger import Ledger
from bramley.agent.node import address
from bramley.app.agent_components import AgentComponents
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
class AgentDeps:
    """The dependencies of an agent: cluster, host, time and randomness; `has_sockets` is false under virtual time."""

    kube: Client
    programs: Programs
    runs: Runs
    host: Host
    clock: Clock
    rng: random.Random
    registry: CollectorRegistry
    has_sockets: bool = True
    # By default records survive a power failure; a simulated Mac has none.
    open_ledger: Callable[[Path], Ledger] = Ledger
    # Awaited before anything else: what an earlier agent has left must not run beside this one.
    clean_up: Callable[[], Awaitable[None]] | None = None
    # Tasks of a real host, such as log rotation.
    background_tasks: tuple[Callable[[], Coroutine[Any, Any, object]], ...] = ()


class Agent:
    """One agent; `run` until `stop`."""

    def __init__(self, settings: Settings, deps: AgentDeps) -> None:
        # Set once the Node is registered with its status.
        self.ready = asyncio.Event()
        self.components: AgentComponents | None = None
        self._settings = settings
        self._deps = deps
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin to stop; VMs keep running."""
        self._stopping.set()

    @property
    def node_uid(self) -> str:
        """Return the last observed uid of the Node; empty before it was observed."""
        return self.components.node.uid if self.components else ""

    async def run(self) -> None:
        """Run this host as a Node and its Pods as VMs; AnotherAgent if another agent holds the lock."""
        settings = await address.with_address(self._settings, self._deps.programs, self._deps.host)
        state_folder.make_folders(settings.folders)
        # Before the components: the ledger allows one writer only.
        with state_folder.hold_lock(settings.folders.lock):
            if self._deps.clean_up is not None:
                await self._deps.clean_up()
            self.components = components = AgentComponents(settings, self._deps)
            # Before any task runs tart, which would remove what an interrupted pull has left.
            await components.partial_downloads.hold_existing()
            logger.info("Starting agent", node=settings.node.name, address=settings.node.address)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(task) for task in components.tasks()]
                tasks.append(group.create_task(self._set_ready(components)))
                await self._stopping.wait()
                logger.info("Stopping agent", reason="stop requested; VMs keep running")
                await components.stop()
                for task in tasks:
                    task.cancel()
        logger.info("Stopped agent")

    async def _set_ready(self, components: AgentComponents) -> None:
        await components.node.registered.wait()
        self.ready.set()


def run(settings: Settings, *, kubeconfig: str | None, environment: Mapping[str, str]) -> None:
    """Run the agent of this machine until a signal arrives; programs that it starts inherit the environment."""
    asyncio.run(_process(settings, kubeconfig, environment))


async def _process(
    settings: Settings, kubeconfig: str | None, environment: Mapping[str, str]
) -> None:
    clock, rng = SystemClock(), random.Random()
    state_folder.make_folders(settings.folders)
    token, kube = _connect(settings, kubeconfig, environment, clock=clock)
    async with kube:
        deps = _host_deps(settings, kube, environment, clock=clock, rng=rng)
        node = settings.node.name
        renewal = AgentTokenRenewal(token, kube, node=node, clock=clock, rng=rng)
        tasks = (*deps.background_tasks, renewal.run)
        agent = Agent(settings, replace(deps, background_tasks=tasks))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, agent.stop)
        await agent.run()


def _connect(
    settings: Settings, kubeconfig: str | None, environment: Mapping[str, str], *, clock: Clock
) -> tuple[AgentToken, Client]:
    """Return the agent's token and a client that uses it."""
    from bramley.kube import config_loader
    from bramley.kube.client import Client
    from bramley.kube.http import HttpTransport

    explicit = Path(kubeconfig) if kubeconfig else None
    config = config_loader.load(explicit, environment=environment, clock=clock)
    token = AgentToken(config.credentials, settings.folders.agent_token)
    return token, Client(HttpTransport(replace(config, credentials=token)), clock=clock)


def _host_deps(
    settings: Settings,
    kube: Client,
    environment: Mapping[str, str],
    *,
    clock: Clock,
    rng: random.Random,
) -> AgentDeps:
    """Return the dependencies of an agent on this machine."""
    from prometheus_client import CollectorRegistry

    from bramley.agent import platform
    from bramley.agent.processes import ProcessJournal, SystemPrograms
    from bramley.agent.supervised_runs import SupervisedRuns
    from bramley.agent.vm_logs import VmLogs

    folders = settings.folders
    host = platform.current(tart_home=folders.tart_home)
    journal = ProcessJournal(folders.state / "programs", host)
    runs = SupervisedRuns(
        folders.state, folders.vm_logs, clock, environment=environment, system=host
    )
    logs = VmLogs(folders.vm_logs, clock=clock, is_in_use=runs.exists)
    return AgentDeps(
        kube=kube,
        programs=SystemPrograms(environment, journal=journal),
        runs=runs,
        host=host,
        clock=clock,
        rng=rng,
        registry=CollectorRegistry(),
        clean_up=journal.kill_leftovers,
        background_tasks=(logs.run,),
    )
