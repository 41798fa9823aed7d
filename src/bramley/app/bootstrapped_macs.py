"""The Macs of `bramley up --bootstrap`: they begin bare, each behind an SSH server of its own, and are made Nodes over it.

What brings them there is what brings a real Mac there: the steps, the connection, the agent's two archives. Only the Mac itself, and
the tart that is installed on it, are simulated. Everything on a Mac ends with this process; its disk stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bramley.access import identity, kubeconfig
from bramley.api.names import host as places
from bramley.api.names import labels
from bramley.apiserver.pki import private_files
from bramley.app import demo, hosts, macs, sim_mac
from bramley.app.agent_bundle import agent_archives
from bramley.app.agent_bundle.archive import Archive
from bramley.app.listening import Address
from bramley.app.up import CameUp, Failed, MacSettings, News, Stepped, Waiting
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.host import sequence, ssh
from bramley.host import converge
from bramley.host.artifacts import Artifact, Depot
from bramley.host.agent_daemon import AgentJob
from bramley.host.spec import MacSpec
from bramley.host.step import Step
from bramley.kube import connecting
from bramley.kube.access import Access
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport
from bramley.sim.macos.state import FOLDER
from bramley.sim.ssh import bubble, tart_bundle
from bramley.sim.ssh.serving import SimulatedHost

ARCHIVES = "archives"
USER = "m1"
_LOOPBACK = "127.0.0.1"
_TOKENS_LIVE = timedelta(days=30)
_BOOT_SECONDS = 2.0
# Below those that systems hand out by themselves: an agent listens there only much later, and nobody gets it by chance till then.
_PORTS = range(16_384, 32_768)
_TRIES = 100


class BootstrappedMacs:
    """All Macs of one server; `run` until `stop`."""

    def __init__(self, settings: MacSettings, way_in: Path, *, clock: Clock) -> None:
        self._settings = settings
        self._way_in = way_in
        self._clock = clock
        self._names = settings.names
        self._served: list[SimulatedHost] = []
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping.set()

    def kill(self) -> None:
        """End every process of every Mac at once."""
        for served in self._served:
            served.end()

    async def run(self, tell: Callable[[News], None]) -> None:
        """Switch the Macs on, make them Nodes, and keep them until asked to stop."""
        found = connecting.find(self._way_in)
        # Agents that a killed start of the other kind left would speak for Nodes of the same names.
        await macs.end(macs.kept(self._settings.elsewhere), self._settings.stop_within)
        async with Client(HttpTransport(found), clock=self._clock) as kube:
            await macs.retire_others(kube, self._settings)
            brought = await self._brought(tell)
            if brought:
                await self._keep(Fleet(kube, found, brought, self._clock, tell))
            await self._stopping.wait()

    async def _brought(self, tell: Callable[[News], None]) -> Brought | None:
        """Return what is streamed to the Macs, or tell why there is none; who stops meanwhile does not wait for it."""
        async with asyncio.TaskGroup() as group:
            bringing = group.create_task(self._bring(tell))
            stopping = group.create_task(self._stopping.wait())
            await asyncio.wait({bringing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (bringing, stopping):
                task.cancel()
        return None if bringing.cancelled() else bringing.result()

    async def _bring(self, tell: Callable[[News], None]) -> Brought | None:
        # Before anything else: archives take long to make, and are of no use where no Mac can be switched on.
        if missing := await asyncio.to_thread(bubble.missing):
            self._fail_all(missing, tell)
            return None
        folder = self._settings.folder / ARCHIVES
        if not agent_archives.is_cached(folder):
            tell(Waiting("the agent's archives are made first, once; that takes up to a minute"))
        try:
            return await bring(folder)
        except (errors.BramleyError, OSError) as error:
            self._fail_all(f"the agent's archives could not be made: {why(error, folder)}", tell)
            return None

    def _fail_all(self, reason: str, tell: Callable[[News], None]) -> None:
        # Ctrl-C ends what is being made, too; whoever typed it knows why.
        if not self._stopping.is_set():
            for name in self._names:
                tell(Failed(name, reason))

    async def _keep(self, fleet: Fleet) -> None:
        since, first_up = self._clock.now().replace(microsecond=0), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one(fleet, name, first_up)) for name in self._names]
            tasks.append(group.create_task(macs.show_sample(fleet.kube, first_up, since)))
            await self._stopping.wait()
            for task in tasks:
                task.cancel()

    async def _one(self, fleet: Fleet, name: str, first_up: asyncio.Event) -> None:
        try:
            async with sim_mac.host(_settings(self._settings.folder / name)) as served:
                self._served.append(served)
                if await self._bootstrap(fleet, served, name):
                    first_up.set()
                await self._stopping.wait()
        except (errors.BramleyError, OSError) as error:
            fleet.tell(Failed(name, why(error, self._settings.folder)))

    async def _bootstrap(self, fleet: Fleet, served: SimulatedHost, name: str) -> bool:
        """Make one Mac a Node and tell how that went; one that is not stays switched on, for people to look at."""
        begun = self._clock.monotonic()
        try:
            await fleet.bootstrap(served, name, within=self._settings.start_within)
        except (errors.BramleyError, OSError) as error:
            told = why(error, served.root)
            fleet.tell(Failed(name, f"{told}; it listens on {_LOOPBACK}:{served.port}"))
            return False
        fleet.tell(CameUp(name, timedelta(seconds=self._clock.monotonic() - begun)))
        return True


@dataclass(frozen=True, slots=True)
class Brought:
    """What is streamed to every Mac."""

    depot: Depot
    tart: Artifact
    interpreter: Artifact
    agent: Artifact


@dataclass(frozen=True, slots=True)
class Fleet:
    """What all Macs share."""

    kube: Client
    found: Access
    brought: Brought
    clock: Clock
    tell: Callable[[News], None]

    async def bootstrap(self, served: SimulatedHost, name: str, *, within: timedelta) -> None:
        """Make one Mac a Node, step by step, and wait until that is Ready."""
        _give_images(served)
        steps = await self.steps(served, name)
        since = self.clock.now().replace(microsecond=0)
        async with self.connected(served, name) as mac:
            # Somebody may do it by hand at the same time: the Mac listens for everybody.
            await converge.apply(
                mac, steps, tell=lambda news: self._hear(name, news), claim=hosts.claim()
            )
        await macs.wait_until_ready(self.kube, name, since=since, within=within)

    async def steps(self, served: SimulatedHost, name: str) -> list[Step]:
        """Return what makes one Mac a Node."""
        return sequence.steps(await self._spec(served, name), clock=self.clock)

    def connected(
        self, served: SimulatedHost, name: str
    ) -> AbstractAsyncContextManager[ssh.SshConnection]:
        """Connect to one Mac as its user."""
        target = ssh.Target(
            host=_LOOPBACK,
            port=served.port,
            user=USER,
            credentials=ssh.Credentials(password=_password(served)),
            name=name,
        )
        return ssh.open(target, clock=self.clock, artifacts=self.brought.depot)

    def _hear(self, name: str, news: converge.Progress) -> None:
        if isinstance(news, converge.Ended):
            self.tell(Stepped(name, news.step.name, news.changed))

    async def _spec(self, served: SimulatedHost, name: str) -> MacSpec:
        made = await identity.create(self.kube, name, expires=_TOKENS_LIVE)
        server = kubeconfig.reachable(self.found, None)
        serving, metrics, health = _endpoints(served.root / FOLDER / "ports")
        job = AgentJob(
            node_name=name,
            host_cpu=8,
            host_memory_mb=16_384,
            max_pods=2,
            user=USER,
            node_labels={labels.FLEET: demo.FLEET},
            node_ip=_LOOPBACK,
            kubelet_bind_address=serving,
            metrics_bind_address=metrics,
            health_bind_address=health,
        )
        return MacSpec(
            job=job,
            password=_password(served),
            kubeconfig=kubeconfig.render(name, made.token, server=server, trust=self.found.trust),
            client_authority=(self.found.trust.authorities or "").encode(),
            tart=self.brought.tart,
            interpreter=self.brought.interpreter,
            agent=self.brought.agent,
        )


def why(error: Exception, folder: Path) -> str:
    """Say what went wrong and where: a disk that is full tells no place by itself."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename or folder})"
    return str(error)


async def bring(folder: Path) -> Brought:
    """Make what is streamed to the Macs, or take it from the folder."""
    made = await agent_archives.cached_by_child_process(folder)
    tart = folder / "tart.tar.gz"
    private_files.write(tart, tart_bundle.archive())
    depot = Depot()
    code, interpreter = made.code, made.interpreter
    return Brought(
        depot,
        tart=await depot.take(tart, name="tart", version=tart_bundle.VERSION),
        interpreter=await _taken(depot, interpreter),
        agent=await _taken(depot, code),
    )


async def _taken(depot: Depot, archive: Archive) -> Artifact:
    manifest = archive.manifest
    return await depot.take(archive.path, name=manifest.name, version=manifest.version)


def _password(served: SimulatedHost) -> Secret:
    return Secret((served.root / FOLDER / sim_mac.PASSWORD).read_text().rstrip("\n"))


def _settings(root: Path) -> sim_mac.Settings:
    return sim_mac.Settings(
        root=root, listen=Address(_LOOPBACK, 0), user=USER, boot_seconds=_BOOT_SECONDS
    )


def _give_images(served: SimulatedHost) -> None:
    """Let the Mac's tart know the image of the demonstration."""
    home, owner = f"{places.home(USER)}/.tart", f"{USER}:staff"
    files = served.mac.files
    files.make_folder(home, mode=0o700, owner=owner)
    files.write(f"{home}/sim.json", json.dumps(demo.SCRIPT).encode(), mode=0o600, owner=owner)


def _endpoints(kept: Path) -> list[str]:
    """Return where an agent listens: the same as last time while that is free, so that a second start changes nothing."""
    before = kept.read_text().split() if kept.exists() else []
    with contextlib.ExitStack() as open_now:
        found = [
            _free(open_now, int(before[each]) if each < len(before) else 0) for each in range(3)
        ]
    kept.write_text(" ".join(str(port) for port in found))
    return [f"{_LOOPBACK}:{port}" for port in found]


def _free(open_now: contextlib.ExitStack, wanted: int) -> int:
    """Return this port if nobody has it, or else another one; it is taken until all are chosen."""
    trial = open_now.enter_context(socket.socket())
    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    others = secrets.SystemRandom().sample(_PORTS, _TRIES)
    for port in (wanted, *others) if wanted else others:
        with contextlib.suppress(OSError):
            trial.bind((_LOOPBACK, port))
            return port
    raise errors.BadConfiguration("no port is free for the agent of a simulated Mac")
