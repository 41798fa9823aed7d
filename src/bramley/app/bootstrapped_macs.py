"""The Macs of `bramley up --bootstrap`: they start bare, each behind its own SSH server, and become Nodes over SSH.

The host steps, the SSH connection and the agent's two archives are those of a real Mac; only the Mac itself and the tart that
is installed on it are simulated. All processes of a Mac end with this process; its disk stays.
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
from bramley.app import hosts, macs, sample_images, sim_mac
from bramley.app.agent_bundle import agent_archives
from bramley.app.agent_bundle.archive import Archive
from bramley.app.listen_address import Address
from bramley.app.up import MacFailed, MacReady, MacSettings, Progress, StepDone, Waiting
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.host import converge, progress, sequence, ssh
from bramley.host.agent_daemon import AgentJob
from bramley.host.artifacts import Artifact, ArtifactStore
from bramley.host.spec import MacSpec
from bramley.host.step import Step
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.config import ClientConfig
from bramley.kube.http import HttpTransport
from bramley.sim.macos.state import FOLDER
from bramley.sim.ssh import sandbox, tart_bundle
from bramley.sim.ssh.server import SimulatedHost

ARCHIVES = "archives"
USER = "m1"
_LOOPBACK = "127.0.0.1"
_TOKEN_LIFETIME = timedelta(days=30)
_BOOT_SECONDS = 2.0
# Below the ephemeral ports: an agent binds its port only much later, and no other program gets it by chance until then.
_PORTS = range(16_384, 32_768)
_PORT_ATTEMPTS = 100


class BootstrappedMacs:
    """The Macs of one server; `run` until `stop`."""

    def __init__(self, settings: MacSettings, kubeconfig: Path, *, clock: Clock) -> None:
        self._settings = settings
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._names = settings.names
        self._served: list[SimulatedHost] = []
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping.set()

    def kill(self) -> None:
        """Kill every process of every Mac."""
        for served in self._served:
            served.end()

    async def run(self, on_progress: Callable[[Progress], None]) -> None:
        """Switch the Macs on, bootstrap them, and keep them running until `stop`."""
        access = config_loader.load(self._kubeconfig)
        # First: agents that a killed start of the other kind left running would report for Nodes of the same names.
        await macs.end(macs.mac_folders(self._settings.other_folder), self._settings.stop_timeout)
        async with Client(HttpTransport(access), clock=self._clock) as kube:
            await macs.retire_surplus(kube, self._settings)
            artifacts = await self._artifacts(on_progress)
            if artifacts:
                await self._run_all(Fleet(kube, access, artifacts, self._clock, on_progress))
            await self._stopping.wait()

    async def _artifacts(self, on_progress: Callable[[Progress], None]) -> AgentArtifacts | None:
        """Return the artifacts for the Macs, or None if they cannot be built or `stop` is called meanwhile."""
        async with asyncio.TaskGroup() as group:
            building = group.create_task(self._build_artifacts(on_progress))
            stopping = group.create_task(self._stopping.wait())
            await asyncio.wait({building, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (building, stopping):
                task.cancel()
        return None if building.cancelled() else building.result()

    async def _build_artifacts(
        self, on_progress: Callable[[Progress], None]
    ) -> AgentArtifacts | None:
        # First: archives take long to build, and are useless where no Mac can be switched on.
        if missing := await asyncio.to_thread(sandbox.unavailable_reason):
            self._fail_all(missing, on_progress)
            return None
        folder = self._settings.folder / ARCHIVES
        if not agent_archives.is_cached(folder):
            on_progress(Waiting("building the agent's archives, once; this takes up to a minute"))
        try:
            return await build_artifacts(folder)
        except (errors.BramleyError, OSError) as error:
            reason = f"the agent's archives cannot be built: {describe(error, folder)}"
            self._fail_all(reason, on_progress)
            return None

    def _fail_all(self, reason: str, on_progress: Callable[[Progress], None]) -> None:
        # Not after Ctrl-C, which also ends the child process that builds the archives.
        if not self._stopping.is_set():
            for name in self._names:
                on_progress(MacFailed(name, reason))

    async def _run_all(self, fleet: Fleet) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run_one(fleet, name)) for name in self._names]
            await self._stopping.wait()
            for task in tasks:
                task.cancel()

    async def _run_one(self, fleet: Fleet, name: str) -> None:
        try:
            async with sim_mac.host(_settings(self._settings.folder / name)) as served:
                self._served.append(served)
                await self._bootstrap(fleet, served, name)
                await self._stopping.wait()
        except (errors.BramleyError, OSError) as error:
            fleet.on_progress(MacFailed(name, describe(error, self._settings.folder)))

    async def _bootstrap(self, fleet: Fleet, served: SimulatedHost, name: str) -> None:
        """Bootstrap one Mac and report the result; after a failure it stays switched on for inspection."""
        started = self._clock.monotonic()
        try:
            await fleet.bootstrap(served, name, within=self._settings.start_timeout)
        except (errors.BramleyError, OSError) as error:
            reason = describe(error, served.root)
            fleet.on_progress(
                MacFailed(name, f"{reason}; its SSH server listens on {_LOOPBACK}:{served.port}")
            )
            return
        fleet.on_progress(MacReady(name, timedelta(seconds=self._clock.monotonic() - started)))


@dataclass(frozen=True, slots=True)
class AgentArtifacts:
    """The files that are streamed to every Mac."""

    store: ArtifactStore
    tart: Artifact
    interpreter: Artifact
    agent: Artifact


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the bootstraps of all Macs share."""

    kube: Client
    access: ClientConfig
    artifacts: AgentArtifacts
    clock: Clock
    on_progress: Callable[[Progress], None]

    async def bootstrap(self, served: SimulatedHost, name: str, *, within: timedelta) -> None:
        """Apply all steps to one Mac and wait until its Node is Ready."""
        _write_tart_script(served)
        steps = await self.steps(served, name)
        since = self.clock.now().replace(microsecond=0)
        async with self.connected(served, name) as mac:
            # With a claim: `bramley host apply` may be run on this Mac at the same time.
            await converge.apply(
                mac, steps, on_progress=lambda news: self._report(name, news), claim=hosts.claim()
            )
        await macs.wait_until_ready(self.kube, name, since=since, within=within)

    async def steps(self, served: SimulatedHost, name: str) -> list[Step]:
        """Return the steps that make one Mac a Node."""
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
        return ssh.open(target, clock=self.clock, artifacts=self.artifacts.store)

    def _report(self, name: str, news: progress.Progress) -> None:
        if isinstance(news, progress.StepFinished):
            self.on_progress(StepDone(name, news.step.name, news.changed))

    async def _spec(self, served: SimulatedHost, name: str) -> MacSpec:
        issued = await identity.create(self.kube, name, expires=_TOKEN_LIFETIME)
        server = kubeconfig.server_for_agent(self.access, None)
        serving, metrics, health = _endpoints(served.root / FOLDER / "ports")
        job = AgentJob(
            node_name=name,
            host_cpu=8,
            host_memory_mb=16_384,
            max_pods=2,
            user=USER,
            node_labels={labels.FLEET: sample_images.FLEET},
            node_ip=_LOOPBACK,
            kubelet_bind_address=serving,
            metrics_bind_address=metrics,
            health_bind_address=health,
        )
        return MacSpec(
            job=job,
            password=_password(served),
            kubeconfig=kubeconfig.render(
                name, issued.token, server=server, trust=self.access.trust
            ),
            client_authority=(self.access.trust.authorities or "").encode(),
            tart=self.artifacts.tart,
            interpreter=self.artifacts.interpreter,
            agent=self.artifacts.agent,
        )


def describe(error: Exception, folder: Path) -> str:
    """Return the error message with a path: that of a full disk has none by itself."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename or folder})"
    return str(error)


async def build_artifacts(folder: Path) -> AgentArtifacts:
    """Build the artifacts for the Macs, or use those cached in the folder."""
    archives = await agent_archives.cached_by_child_process(folder)
    tart = folder / "tart.tar.gz"
    private_files.write(tart, tart_bundle.archive())
    store = ArtifactStore()
    return AgentArtifacts(
        store,
        tart=await store.load(tart, name="tart", version=tart_bundle.VERSION),
        interpreter=await _add(store, archives.interpreter),
        agent=await _add(store, archives.code),
    )


async def _add(store: ArtifactStore, archive: Archive) -> Artifact:
    manifest = archive.manifest
    return await store.load(archive.path, name=manifest.name, version=manifest.version)


def _password(served: SimulatedHost) -> Secret:
    return Secret((served.root / FOLDER / sim_mac.PASSWORD).read_text().rstrip("\n"))


def _settings(root: Path) -> sim_mac.Settings:
    return sim_mac.Settings(
        root=root, listen=Address(_LOOPBACK, 0), user=USER, boot_seconds=_BOOT_SECONDS
    )


def _write_tart_script(served: SimulatedHost) -> None:
    """Configure the simulated tart of the Mac with the image of the demonstration."""
    home, owner = f"{places.home(USER)}/.tart", f"{USER}:staff"
    files = served.mac.files
    files.make_folder(home, mode=0o700, owner=owner)
    files.write(
        f"{home}/sim.json",
        json.dumps(sample_images.SIMULATED_TART).encode(),
        mode=0o600,
        owner=owner,
    )


def _endpoints(ports_file: Path) -> list[str]:
    """Return the addresses of an agent: those of the last start if they are free, so that a second start changes nothing."""
    before = ports_file.read_text().split() if ports_file.exists() else []
    with contextlib.ExitStack() as sockets:
        endpoints = [
            _free_port(sockets, int(before[each]) if each < len(before) else 0) for each in range(3)
        ]
    ports_file.write_text(" ".join(str(port) for port in endpoints))
    return [f"{_LOOPBACK}:{port}" for port in endpoints]


def _free_port(sockets: contextlib.ExitStack, preferred: int) -> int:
    """Return the preferred port if it is free, otherwise another one; it stays bound until all ports are chosen."""
    trial = sockets.enter_context(socket.socket())
    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    others = secrets.SystemRandom().sample(_PORTS, _PORT_ATTEMPTS)
    for port in (preferred, *others) if preferred else others:
        with contextlib.suppress(OSError):
            trial.bind((_LOOPBACK, port))
            return port
    raise errors.BadConfiguration(
        "no port is free for the agent of a simulated Mac; stop other programs and try again"
    )
