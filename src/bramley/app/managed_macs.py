"""The Macs of `bramley up` that the machine controllers manage: rented from a simulated Scaleway, or those that a user owns.

The controllers are those of `bramley machines`. The simulated Macs start bare, behind SSH servers on loopback addresses; all their
processes end with this process. Scaleway's records and their disks stay, so the next start continues with them.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

from bramley.api.cluster_api import MachineDeployment
from bramley.api.mac_host import MacHost
from bramley.api.names import machines as names
from bramley.apiserver.pki import private_files
from bramley.app import cluster_api, machine_artifacts, machines, pools, sim_scaleway
from bramley.app.agent_access import Cluster
from bramley.app.agent_bundle import agent_archives
from bramley.app.listen_address import Address, is_loopback
from bramley.app.mac_progress import MacProgress
from bramley.app.machine_artifacts import ArtifactSettings, Program
from bramley.app.machines import HostOptions, ScalewayCredentials
from bramley.app.own_macs import OwnMac
from bramley.app.restarted_manager import RestartedManager
from bramley.app.sample_dispatch import GitHubApp
from bramley.app.sample_fleets import BUILDER_TYPE, RUNNER_VERSION, SampleFleets
from bramley.app.up import ExpectedMacs, MacFailed, Progress, Waiting
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.host.artifacts import ArtifactStore
from bramley.host.connection import Connection
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport
from bramley.machines import controllers
from bramley.machines.host_access import Connect, Login
from bramley.providers import scaleway_account
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.sim.macos import stand_ins
from bramley.sim.scaleway.scaleway import ACCESS_KEY
from bramley.sim.scaleway.ssh_macs import SshMacs
from bramley.sim.ssh import sandbox, tart_bundle

logger = log.get(__name__)

_LOOPBACK = "127.0.0.1"
_ARCHIVES = "archives"
_RUNNER = f"actions-runner-osx-arm64-{RUNNER_VERSION}.tar.gz"
# So that a reinstallation takes seconds.
_SPEED = 120.0
# Agents renew their tokens only while this process runs.
_TOKEN_LIFETIME = timedelta(days=30)
_DRAIN = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The data folder, its server, and the Macs."""

    data_dir: Path
    kubeconfig: Path
    app: GitHubApp
    # How many simulated Macs are rented beside a builder; None rents none.
    rented: int | None = None
    own: tuple[OwnMac, ...] = ()
    # For Macs that a user owns; those for simulated ones are built.
    artifacts: ArtifactSettings | None = None

    @property
    def folder(self) -> Path:
        """Return the folder of the simulated Scaleway and its Macs."""
        return self.data_dir / sim_scaleway.FOLDER


class ManagedMacs:
    """The Macs of one server; `run` until `stop`."""

    def __init__(self, settings: Settings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._stopping = asyncio.Event()
        self._controllers: RestartedManager | None = None
        self._macs: SshMacs | None = None

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping.set()

    def kill(self) -> None:
        """Kill every process of every simulated Mac."""
        if self._macs is not None:
            self._macs.end()

    async def run(self, on_progress: Callable[[Progress], None]) -> None:
        """Run the controllers until `stop`, then switch the simulated Macs off."""
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self._run_or_report(on_progress))
            await self._stopping.wait()
            if self._controllers is None:
                running.cancel()
            else:
                self._controllers.stop()

    async def _run_or_report(self, on_progress: Callable[[Progress], None]) -> None:
        # All errors: the server keeps serving without these Macs.
        with errors.Captured() as captured:
            await self._run(on_progress)
        # Not after Ctrl-C, which also ends the child process that builds the archives.
        error = captured.error
        if error is not None and not self._stopping.is_set():
            if not isinstance(error, errors.BramleyError | OSError):
                logger.error("Managed Macs ended", exc=error)
            on_progress(MacFailed("Macs", describe(error, self._settings.data_dir)))
            on_progress(ExpectedMacs(0))

    async def _run(self, on_progress: Callable[[Progress], None]) -> None:
        settings = self._settings
        access = config_loader.load(settings.kubeconfig)
        async with AsyncExitStack() as stack:
            kube = await stack.enter_async_context(Client(HttpTransport(access), clock=self._clock))
            await pools.install_definitions(kube)
            chosen = machines.Settings(
                artifacts=await self._artifacts(on_progress),
                cluster=Cluster(settings.kubeconfig),
                hosts=self._hosts(access.server),
                machines=controllers.Settings(default_pool_prefix=names.POOL_PREFIX),
                github_api_url=settings.app.url,
                manager=ManagerSettings(drain=_DRAIN, tune_gc=False),
                # No other process manages these Macs.
                leader_elect=False,
            )
            if settings.rented is not None:
                chosen = await stack.enter_async_context(self._rented(kube, chosen, on_progress))
            for own in settings.own:
                await own.create(kube)
            on_progress(ExpectedMacs(await _count(kube, is_rented=settings.rented is not None)))
            progress = MacProgress(on_progress, self._clock)
            opened = partial(self._opened, chosen, progress)
            self._controllers = RestartedManager("machines", opened, random.Random())
            await self._controllers.run()

    @asynccontextmanager
    async def _opened(
        self, settings: machines.Settings, progress: MacProgress
    ) -> AsyncIterator[Manager]:
        connect = machines.over_ssh(self._clock)
        if self._settings.rented is not None:
            connect = to_simulated_macs(connect)
        async with machines.opened(settings, clock=self._clock, connect=connect) as manager:
            progress.watch(manager)
            yield manager

    @asynccontextmanager
    async def _rented(
        self, kube: Client, settings: machines.Settings, on_progress: Callable[[Progress], None]
    ) -> AsyncIterator[machines.Settings]:
        """Run the simulated Scaleway, create the fleets, and yield the settings with which their machines are reconciled."""
        await cluster_api.install_definitions(kube)
        folder, count = self._settings.folder, self._settings.rented or 0
        on_progress(Waiting("switching on the servers of a simulated Scaleway"))
        rented = sim_scaleway.Settings(
            listen=Address(_LOOPBACK, 0),
            root=folder,
            secret_key_file=folder / "secret-key",
            state_file=folder / sim_scaleway.STATE,
            servers=count + 1,
            builders=1,
            builder_type=BUILDER_TYPE,
            github_url=self._settings.app.url,
            network=_network(folder),
            ssh_port=0,
            speed=_SPEED,
        )
        async with sim_scaleway.served(rented) as (scaleway, served):
            if isinstance(scaleway.macs, SshMacs):
                self._macs = scaleway.macs
            await SampleFleets(folder / "fleets", count).create(kube, self._settings.app)
            on_progress(Waiting(f"rented from a simulated Scaleway at {served.url}"))
            account = {
                scaleway_account.ACCESS_KEY: ACCESS_KEY,
                scaleway_account.SECRET_KEY: rented.secret_key_file.read_text().strip(),
                scaleway_account.PROJECT_ID: rented.project_id,
                scaleway_account.API_URL: served.url,
            }
            yield replace(
                settings,
                scaleway=ScalewayCredentials(account),
                machines=replace(settings.machines, ssh_port=served.ssh_port),
            )

    def _hosts(self, server: str) -> HostOptions:
        is_local = all(each.is_local for each in self._settings.own)
        return HostOptions(
            token_lifetime=_TOKEN_LIFETIME, binds_to_address=is_local, api_server_url=server
        )

    async def _artifacts(self, on_progress: Callable[[Progress], None]) -> ArtifactSettings:
        if self._settings.artifacts is not None:
            # An error ends the start, instead of being repeated in the log.
            await machine_artifacts.load(self._settings.artifacts)
            return self._settings.artifacts
        # First: archives take long to build, and are useless where no Mac can be switched on.
        if missing := await asyncio.to_thread(sandbox.unavailable_reason):
            raise errors.BadConfiguration(missing)
        cache = self._settings.data_dir / _ARCHIVES
        if not agent_archives.is_cached(cache):
            on_progress(Waiting("building the agent's archives, once; this takes up to a minute"))
        return await build_artifacts(cache, self._settings.folder / "artifacts")


def to_simulated_macs(connect: Connect) -> Connect:
    """Return the function without connections to real Macs, for which the simulated Tart is not made."""

    def checked(login: Login, artifacts: ArtifactStore) -> AbstractAsyncContextManager[Connection]:
        if not is_loopback(login.address):
            raise errors.InvalidSpec(
                f"{login.address} is not a simulated Mac of this machine; real ones need bramley up --mac, without --bootstrap"
            )
        return connect(login, artifacts)

    return checked


async def build_artifacts(cache: Path, folder: Path) -> ArtifactSettings:
    """Return the artifacts for simulated Macs; the agent's archives are built, or found in the cache."""
    try:
        archives = await agent_archives.cached_by_child_process(cache)
    except (errors.BramleyError, OSError) as error:
        reason = describe(error, cache)
        raise errors.BadConfiguration(f"the agent's archives cannot be built: {reason}") from error
    tart, runner = folder / "tart.tar.gz", folder / _RUNNER
    private_files.write(tart, tart_bundle.archive())
    content = stand_ins.actions_runner(RUNNER_VERSION)
    private_files.write(runner, content)
    digest = hashlib.sha256(content).hexdigest()
    private_files.write(runner.with_name(f"{_RUNNER}.sha256"), digest.encode())
    return ArtifactSettings(
        agent=archives.code.path,
        interpreter=archives.interpreter.path,
        tart=Program(tart, tart_bundle.VERSION),
        actions_runners=folder,
    )


async def _count(kube: Client, *, is_rented: bool) -> int:
    """Return how many Macs are to become Ready."""
    found = (await kube.list(MachineDeployment)).items if is_rented else []
    return sum(each.spec.replicas for each in found) + len((await kube.list(MacHost)).items)


def _network(folder: Path) -> IPv4Network:
    """Return loopback addresses for a folder: agents of two starts listen on the same ports."""
    number = zlib.crc32(str(folder).encode())
    return IPv4Network((0x7F400000 | (number & 0x3FFF) << 8, 24))


def describe(error: Exception, folder: Path) -> str:
    """Return the error message with a path: that of a full disk has none by itself."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename or folder})"
    return str(error)
