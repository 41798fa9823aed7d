"""One simulated Mac, the embedded API and the agent's Pod controller, in one process under virtual time.

`kill` is `kill -9`: the agent is gone, its VMs and supervisors are not; `start` is the next agent on the same disk.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.agent.gc import leases
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
from bramley.agent.ledger import Ledger
from bramley.agent.metrics import AgentMetrics
from bramley.agent.platform.system import GUEST_SERVICE
from bramley.agent.pods import controller
from bramley.agent.pods.context import PodDeps
from bramley.agent.slots import Slots
from bramley.agent.tart.driver import Tart
from bramley.api.core import Event, Pod
from bramley.api.meta import ObjectMeta
from bramley.api.names import events as names
from bramley.api.pod import Container, PodSpec
from bramley.app import embedded
from bramley.base import errors
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response, Transport
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.sim.mac.agent_process import AgentProcess
from bramley.sim.mac.mac import SimulatedMac
from tests import virtual_time

NODE = "mac-1"
NAMESPACE = "default"
IMAGE = "registry.example/runner@sha256:" + "a" * 64
UID_OF_USER = 501


@dataclass
class RunningAgent:
    """One agent process and its objects."""

    side: AgentProcess
    manager: Manager
    deps: PodDeps
    metrics: AgentMetrics
    task: asyncio.Task[Any]

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@dataclass
class World:
    api: embedded.Api
    kube: Client
    transport: Callable[[], Any]
    mac: SimulatedMac
    group: asyncio.TaskGroup
    agents: list[RunningAgent] = field(default_factory=list)
    max_vms: int = 2
    # The agent gets no response from the API.
    is_disconnected: bool = False
    # How many guests were ever booted, and how many ran each time.
    boots: int = 0
    guest_counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        spawn = self.mac.table.spawn

        def counted(argv: tuple[str, ...], *rest: Any, **more: Any) -> Any:
            if argv == (GUEST_SERVICE,):
                self.boots += 1
                self.guest_counts.append(len(self.mac.tart.guests) + 1)
            return spawn(argv, *rest, **more)

        self.mac.table.spawn = counted  # type: ignore[method-assign]

    @property
    def agent(self) -> RunningAgent:
        return self.agents[-1]

    @property
    def deps(self) -> PodDeps:
        return self.agent.deps

    def start(self) -> RunningAgent:
        """Start an agent."""
        clock, rng = self.mac.clock, random.Random(len(self.agents))
        side = self.mac.start_agent()
        kube = Client(side.transport(_Transport(self, self.transport())), clock=clock)
        registry = CollectorRegistry()
        manager = Manager(
            kube, clock=clock, rng=rng, registry=registry, settings=ManagerSettings(tune_gc=False)
        )
        metrics = AgentMetrics(registry)
        deps, jobs = self._add_pod_controller(side, kube, manager, metrics)
        task = self.group.create_task(_together(manager.run, *jobs))
        self.agents.append(RunningAgent(side, manager, deps, metrics, task))
        return self.agent

    async def kill(self) -> None:
        """Kill the agent; its VMs keep running."""
        await self.agent.side.reap(self.agent.task)

    async def pod(self, name: str = "runner", *, image: str = IMAGE, **spec: Any) -> Pod:
        """Create a Pod on this Node."""
        return await self.kube.create(a_pod(name, image=image, **spec))

    async def find(self, name: str = "runner") -> Pod | None:
        try:
            return await self.kube.get(Pod, name, namespace=NAMESPACE)
        except errors.NotFound:
            return None

    async def get_pod(self, name: str = "runner") -> Pod:
        return await self.kube.get(Pod, name, namespace=NAMESPACE)

    async def delete(self, name: str = "runner", *, grace: timedelta | None = None) -> None:
        await self.kube.delete(Pod, name, namespace=NAMESPACE, grace=grace)

    async def free(self, name: str = "runner") -> None:
        """Remove all finalizers of a Pod, as in a forced deletion."""
        patch: dict[str, Any] = {"metadata": {"finalizers": []}}
        await self.kube.merge_patch(Pod, name, patch, namespace=NAMESPACE)

    async def phase(self, name: str = "runner") -> str:
        pod = await self.find(name)
        return pod.status.phase if pod is not None else "gone"

    async def until_phase(self, *phases: str, name: str = "runner", within: float = 600.0) -> Pod:
        """Wait until the Pod is in one of these phases."""
        async with asyncio.timeout(within):
            while True:
                revision = self.api.store.revision
                pod = await self.find(name)
                if pod is not None and pod.status.phase in phases:
                    return pod
                await self._until_written(revision)

    async def until_running_pod(self, *names: str, within: float = 600.0) -> str:
        """Wait until one of these Pods runs, and return its name."""
        async with asyncio.timeout(within):
            while True:
                for name in names:
                    if await self.phase(name) == "Running":
                        return name
                await asyncio.sleep(0.5)

    async def until_gone(self, name: str = "runner", within: float = 600.0) -> None:
        async with asyncio.timeout(within):
            revision = self.api.store.revision
            while await self.find(name) is not None:
                await self._until_written(revision)
                revision = self.api.store.revision

    async def _until_written(self, revision: int) -> None:
        """Wait until anything is written after this revision: until then every response is the same."""
        while self.api.store.revision == revision:
            await asyncio.sleep(0.25)

    async def until(self, fact: Callable[[], object], within: float = 600.0) -> None:
        async with asyncio.timeout(within):
            while not fact():
                await asyncio.sleep(0.5)

    async def events(self) -> list[str]:
        listed = await self.kube.list(Event, namespace=NAMESPACE)
        return [event.reason for event in listed.items]

    async def event_messages(self, reason: str) -> list[str]:
        listed = await self.kube.list(Event, namespace=NAMESPACE)
        return [event.message for event in listed.items if event.reason == reason]

    def vms(self) -> list[str]:
        """Return the VMs on disk, without golden bases."""
        folder = self.mac.folders.tart_home / "vms"
        names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
        return [name for name in names if not name.startswith("tuist-golden-")]

    def running(self) -> list[str]:
        return sorted(self.mac.tart.guests)

    def user_data(self) -> list[str]:
        return UserData(self.mac.folders.user_data).vms()

    def nothing_left(self) -> bool:
        """Return whether the Mac has nothing of any Pod."""
        return not (
            self.vms()
            or self.running()
            or self.user_data()
            or self.mac.supervised
            or Ledger(self.mac.folders.ledger, durable=False).vms()
        )

    def _add_pod_controller(
        self, side: AgentProcess, kube: Client, manager: Manager, metrics: AgentMetrics
    ) -> tuple[PodDeps, list[Callable[[], Any]]]:
        clock, rng, folders = self.mac.clock, random.Random(7), self.mac.folders
        tart = Tart(side.programs, binary="tart", home=folders.tart_home, metrics=metrics)
        ledger = Ledger(folders.ledger, durable=False)
        slots = Slots(
            ledger,
            runs=side.runs,
            tart=tart,
            host=side.host,
            clock=clock,
            max_vms=self.max_vms,
            leases=lambda: leases.held(folders.leases),
            refusal_file=folders.refusal,
        )
        images = self._images(side, kube, tart, ledger, metrics)
        data = UserData(folders.user_data)
        tokens = Tokens(kube, data, clock=clock, rng=rng, metrics=metrics)
        deps = PodDeps(
            node=NODE,
            host_address="10.20.0.11",
            kube=manager.kube,
            pods=controller.pod_cache(manager, NODE),
            recorder=manager.recorder(names.AGENT_COMPONENT, instance=NODE),
            ledger=ledger,
            tart=tart,
            runs=side.runs,
            host=side.host,
            images=images,
            data=data,
            guests=Guests(kube, data, tokens, node_facts=NodeFacts(NODE, "10.20.0.11")),
            gui_session=self._session(side, slots),
            slots=slots,
            metrics=metrics,
            clock=HostClock(clock, folders.clock, boot_id=side.host.boot_id),
            rng=rng,
        )
        controller.add_to_manager(manager, deps)
        return deps, [images.run, tokens.run]

    def _images(
        self, side: AgentProcess, kube: Client, tart: Tart, ledger: Ledger, metrics: AgentMetrics
    ) -> ImageManager:
        clock, rng = self.mac.clock, random.Random(8)
        space = DiskSpace(side.host, self.mac.folders.tart_home)
        return ImageManager(
            tart=tart,
            ledger=ledger,
            store=ImageStore(ledger, self.mac.folders.tart_home, clock),
            puller=Puller(
                tart,
                clock=clock,
                rng=rng,
                metrics=metrics,
                space=space,
                partials=PartialDownloads(self.mac.folders.tart_home, side.host, clock),
            ),
            keyring=Keyring(kube),
            host=side.host,
            clock=clock,
            backoff=PullBackoff(clock, rng),
            space=space,
        )

    def _session(self, side: AgentProcess, slots: Slots) -> GuiSession:
        return GuiSession(
            UID_OF_USER,
            side.programs,
            clock=self.mac.clock,
            rng=random.Random(9),
            has_running_vm=lambda: bool(slots.occupied()),
        )


class _Transport:
    """The agent's transport, which can be disconnected."""

    def __init__(self, world: World, inner: Transport) -> None:
        self._world = world
        self._inner = inner
        self.stream = inner.stream
        self.close = inner.close

    async def send(self, request: Request) -> Response:
        if self._world.is_disconnected:
            raise errors.ApiUnavailable("connection refused")
        return await self._inner.send(request)


def a_pod(name: str = "runner", *, image: str = IMAGE, **spec: Any) -> Pod:
    # The server's default is another; this is what runner Pods have.
    defaults = {"restart_policy": "Never", "containers": [Container(name="runner", image=image)]}
    return Pod(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=PodSpec(node_name=NODE, **{**defaults, **spec}),
    )


async def _together(*jobs: Callable[[], Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(job())


@asynccontextmanager
async def a_world(
    folder: Path, *, starts: bool = True, max_vms: int = 2, **guest: Any
) -> AsyncIterator[World]:
    """Create a Mac with an image in the registry; `guest` is the behaviour of its VMs."""
    clock = virtual_time.clock()
    async with (
        embedded.running(clock=clock) as (api, token),
        asyncio.TaskGroup() as machines,
        asyncio.TaskGroup() as group,
    ):
        mac = SimulatedMac(folder / "mac", clock=clock, rng=random.Random(5), group=machines)
        script = {"work": 60.0, "code": 0, **guest}
        mac.settings.image(IMAGE, size_bytes=2_000_000_000, guest=script)
        world = World(
            api,
            Client(api.transport(token), clock=clock),
            lambda: api.transport(token),
            mac,
            group,
            max_vms=max_vms,
        )
        if starts:
            world.start()
        try:
            yield world
        finally:
            for agent in world.agents:
                if not agent.task.done():
                    await agent.side.reap(agent.task)
            mac.table.clear()
