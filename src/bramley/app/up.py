"""The process of `bramley up`: the server of `bramley apiserver`, and pool controllers and simulated Macs that stop before it does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from bramley.api.names import dispatch as names
from bramley.app import apiserver
from bramley.app.https_server import Stop
from bramley.app.listen_address import Address
from bramley.base.clock import Clock, SystemClock

if TYPE_CHECKING:
    from bramley.app.bootstrapped_macs import BootstrappedMacs
    from bramley.app.macs import Macs
    from bramley.app.pools import PoolControllers
    from bramley.app.sample_dispatch import SampleDispatch
    from bramley.kube.client import Client

# Its file in the data folder records that the sample pool was created.
_SAMPLE_MARK = ".sample-pool"


@dataclass(frozen=True, slots=True)
class MacSettings:
    """Number, folders and timeouts of the simulated Macs."""

    folder: Path
    count: int = 3
    # Whether the Macs start bare and are bootstrapped over SSH.
    bootstrap: bool = False
    # The folder of the other kind of Macs; those of an earlier start are removed from the cluster.
    other_folder: Path | None = None
    # Usually seconds; the machine may be busy.
    start_timeout: timedelta = timedelta(minutes=3)
    stop_timeout: timedelta = timedelta(seconds=10)

    @property
    def names(self) -> list[str]:
        """Return the names of the Macs."""
        return [f"mac-{number}" for number in range(1, self.count + 1)]

    @property
    def surplus(self) -> list[str]:
        """Return the names of Macs of earlier starts, of either kind, that are still to be removed from the cluster."""
        active = {root.name for root in self._roots if not _mark(root).exists()}
        return sorted(active - {*self.names})

    @property
    def has_work(self) -> bool:
        """Return whether there are Macs to start or to remove."""
        return bool(self.names or self.surplus)

    def mark_retired(self, name: str) -> None:
        """Record that a Mac was removed from the cluster: a Node of that name is not ours from now on."""
        for root in self._roots:
            if root.name == name:
                _mark(root).touch()

    def clear_retired_marks(self) -> None:
        """Delete the records of earlier removals of the Macs that start now."""
        for root in self._roots:
            if root.name in self.names:
                _mark(root).unlink(missing_ok=True)

    @property
    def _roots(self) -> list[Path]:
        folders = (self.folder, self.other_folder)
        return [root for folder in folders if folder for root in folder.glob("mac-*")]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the server and of the simulated Macs."""

    server: apiserver.Settings
    macs: MacSettings
    # Whether sample jobs are queued at the simulated GitHub.
    sample_jobs: bool = True


@dataclass(frozen=True, slots=True)
class MacReady:
    """The Node of a Mac is Ready."""

    name: str
    after: timedelta


@dataclass(frozen=True, slots=True)
class MacFailed:
    """A Mac did not start."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step of the bootstrap of a Mac is done; `changed` is the number of its changes."""

    name: str
    step: str
    changed: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """All Macs wait for an operation that takes long."""

    operation: str


Progress = MacReady | MacFailed | StepDone | Waiting


def _mark(root: Path) -> Path:
    # Beside the folder of the Mac, which stays and may be the root of a file system.
    return root.with_name(f".retired-{root.name}")


def run(
    settings: Settings,
    *,
    on_serving: Callable[[Address], None],
    on_progress: Callable[[Progress], None],
) -> None:
    """Serve until a signal arrives; the callbacks report that clients can connect, and how the Macs start."""

    def started(address: Address) -> None:
        apiserver.start_garbage_collector()
        on_serving(address)

    apiserver.run_until_signalled(
        lambda stop: serve(
            settings, on_serving=started, on_progress=on_progress, stop=stop, clock=SystemClock()
        )
    )


async def serve(
    settings: Settings,
    *,
    on_serving: Callable[[Address], None],
    on_progress: Callable[[Progress], None],
    stop: Stop,
    clock: Clock,
) -> None:
    """Serve until a stop is requested: pools, Macs and dispatch stop first, then the server; a second request kills everything."""
    server_stop, serving = Stop(), asyncio.Event()

    def started(address: Address) -> None:
        on_serving(address)
        serving.set()

    async with asyncio.TaskGroup() as group:
        server = group.create_task(
            apiserver.serve(settings.server, stop=server_stop, on_serving=started, clock=clock)
        )
        await serving.wait()
        # In a thread: importing the client takes a while, and requests are served meanwhile.
        clients = await asyncio.to_thread(_clients, settings, clock)
        killing = group.create_task(_kill_when_forced(stop, clients, server_stop))
        await clients.run(stop, on_progress)
        # Only now: the agents write the last status of their Pods while they stop.
        server_stop.request()
        await asyncio.wait((server,))
        killing.cancel()


@dataclass(slots=True)
class Clients:
    """What runs beside the server: pool controllers, dispatch, and the Macs unless there is nothing to start or remove."""

    pools: PoolControllers
    dispatch: SampleDispatch
    macs: Macs | BootstrappedMacs | None
    _reconciling: asyncio.Task[None] | None = None

    async def run(self, stop: Stop, on_progress: Callable[[Progress], None]) -> None:
        """Run all until a stop is requested, then end them in order."""
        async with asyncio.TaskGroup() as group:
            dispatching = group.create_task(self.dispatch.run())
            self._reconciling = group.create_task(self.pools.run())
            running = None
            if self.macs is not None:
                running = group.create_task(self.macs.run(on_progress))
            await stop.requested.wait()
            self.pools.stop()
            # Before the Macs: VMs that end with them are not to be replaced.
            await asyncio.wait((self._reconciling,))
            if self.macs is not None and running is not None:
                self.macs.stop()
                # Before dispatch and GitHub: requests of guests end with their VMs instead of with an error.
                await asyncio.wait((running,))
            self.dispatch.stop()
            await asyncio.wait((dispatching,))

    def kill(self) -> None:
        """End all at once."""
        self.dispatch.stop()
        self.dispatch.stop()
        if self._reconciling is not None:
            self._reconciling.cancel()
        if self.macs is not None:
            self.macs.kill()


def _clients(settings: Settings, clock: Clock) -> Clients:
    from bramley.app import sample_dispatch
    from bramley.app.pools import PoolControllers
    from bramley.kube import config_loader

    def connect() -> Client:
        return config_loader.connect(settings.server.kubeconfig, clock=clock)

    folder = settings.server.data_dir / sample_dispatch.FOLDER
    addresses = sample_dispatch.reserve(folder, settings.server.kubeconfig)
    dispatch = sample_dispatch.SampleDispatch(
        folder, addresses, connect, clock, random.Random(), samples=settings.sample_jobs
    )
    pools = PoolControllers(
        connect,
        clock,
        random.Random(),
        sample_replicas=settings.macs.count,
        sample_mark=settings.server.data_dir / _SAMPLE_MARK,
        dispatch_url=addresses.dispatch_url + names.DISPATCH_PATH,
        dispatch=addresses.client_settings(),
    )
    macs = _macs(settings, clock) if settings.macs.has_work else None
    return Clients(pools, dispatch, macs)


def _macs(settings: Settings, clock: Clock) -> Macs | BootstrappedMacs:
    if settings.macs.bootstrap and settings.macs.count:
        from bramley.app.bootstrapped_macs import BootstrappedMacs

        return BootstrappedMacs(settings.macs, settings.server.kubeconfig, clock=clock)
    from bramley.app.macs import Macs

    return Macs(settings.macs, settings.server.kubeconfig, clock=clock)


async def _kill_when_forced(stop: Stop, clients: Clients, server_stop: Stop) -> None:
    await stop.forced.wait()
    clients.kill()
    # Twice: the second request forces the stop.
    server_stop.request()
    server_stop.request()
