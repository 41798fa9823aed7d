"""The process of `bramley up`: the server of `bramley apiserver`, and pool controllers, dispatch and Macs that stop before it does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
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
    from bramley.app.machine_artifacts import ArtifactSettings
    from bramley.app.macs import Macs
    from bramley.app.managed_macs import ManagedMacs
    from bramley.app.own_macs import OwnMac
    from bramley.app.pools import PoolControllers
    from bramley.app.sample_dispatch import GitHubApp, SampleDispatch
    from bramley.kube.client import Client

# Its file in the data folder records that the sample pool was created.
_SAMPLE_MARK = ".sample-pool"


@dataclass(frozen=True, slots=True)
class MacSettings:
    """Number, folders and timeouts of the simulated Macs."""

    folder: Path
    count: int = 3
    # Usually seconds; the machine may be busy.
    start_timeout: timedelta = timedelta(minutes=3)
    stop_timeout: timedelta = timedelta(seconds=10)

    @property
    def names(self) -> list[str]:
        """Return the names of the Macs."""
        return [f"mac-{number}" for number in range(1, self.count + 1)]

    @property
    def surplus(self) -> list[str]:
        """Return the names of Macs of earlier starts that are still to be removed from the cluster."""
        active = {root.name for root in self._roots if not _mark(root).exists()}
        return sorted(active - {*self.names})

    @property
    def has_work(self) -> bool:
        """Return whether there are Macs to start or to remove."""
        return bool(self.names or self.surplus)

    def mark_retired(self, name: str) -> None:
        """Record that a Mac was removed from the cluster: a Node of that name is not ours from now on."""
        _mark(self.folder / name).touch()

    def clear_retired_marks(self) -> None:
        """Delete the records of earlier removals of the Macs that start now."""
        for name in self.names:
            _mark(self.folder / name).unlink(missing_ok=True)

    @property
    def _roots(self) -> list[Path]:
        return [*self.folder.glob("mac-*")]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the server and of the Macs."""

    server: apiserver.Settings
    macs: MacSettings
    # How many simulated Macs are rented, beside a builder; None rents none.
    rented: int | None = None
    # Macs that the user owns, and the artifacts for them.
    own: tuple[OwnMac, ...] = ()
    artifacts: ArtifactSettings | None = None
    # Whether sample jobs are queued at the simulated GitHub.
    sample_jobs: bool = True


@dataclass(frozen=True, slots=True)
class MacReady:
    """The Node of a Mac is Ready, and proven if the machine controllers manage it."""

    name: str
    after: timedelta


@dataclass(frozen=True, slots=True)
class MacFailed:
    """A Mac did not start; one that is managed is tried again."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class MacStep:
    """What happens to a Mac now."""

    name: str
    step: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """All Macs wait for an operation that takes long."""

    operation: str


@dataclass(frozen=True, slots=True)
class ExpectedMacs:
    """How many managed Macs there are, or will be."""

    count: int


Progress = MacReady | MacFailed | MacStep | Waiting | ExpectedMacs


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
    """What runs beside the server: pool controllers, dispatch, and the Macs of each kind, if there are any."""

    pools: PoolControllers
    dispatch: SampleDispatch
    macs: Sequence[Macs | ManagedMacs]
    _reconciling: asyncio.Task[None] | None = None

    async def run(self, stop: Stop, on_progress: Callable[[Progress], None]) -> None:
        """Run all until a stop is requested, then end them in order."""
        async with asyncio.TaskGroup() as group:
            dispatching = group.create_task(self.dispatch.run())
            self._reconciling = group.create_task(self.pools.run())
            running = [group.create_task(each.run(on_progress)) for each in self.macs]
            await stop.requested.wait()
            self.pools.stop()
            # Before the Macs: VMs that end with them are not to be replaced.
            await asyncio.wait((self._reconciling,))
            for each in self.macs:
                each.stop()
            if running:
                # Before dispatch and GitHub: requests of guests end with their VMs instead of with an error.
                await asyncio.wait(running)
            self.dispatch.stop()
            await asyncio.wait((dispatching,))

    def kill(self) -> None:
        """End all at once."""
        self.dispatch.stop()
        self.dispatch.stop()
        if self._reconciling is not None:
            self._reconciling.cancel()
        for each in self.macs:
            each.kill()


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
        sample_replicas=settings.macs.count + (settings.rented or 0),
        sample_mark=settings.server.data_dir / _SAMPLE_MARK,
        dispatch_url=addresses.dispatch_url + names.DISPATCH_PATH,
        dispatch=addresses.client_settings(),
    )
    return Clients(pools, dispatch, [*_macs(settings, addresses.app, clock)])


def _macs(settings: Settings, app: GitHubApp, clock: Clock) -> Iterator[Macs | ManagedMacs]:
    kubeconfig = settings.server.kubeconfig
    if settings.macs.has_work:
        from bramley.app.macs import Macs

        yield Macs(settings.macs, kubeconfig, clock=clock)
    if settings.rented is not None or settings.own:
        from bramley.app import managed_macs

        managed = managed_macs.Settings(
            data_dir=settings.server.data_dir,
            kubeconfig=kubeconfig,
            app=app,
            rented=settings.rented,
            own=settings.own,
            artifacts=settings.artifacts,
        )
        yield managed_macs.ManagedMacs(managed, clock=clock)


async def _kill_when_forced(stop: Stop, clients: Clients, server_stop: Stop) -> None:
    await stop.forced.wait()
    clients.kill()
    # Twice: the second request forces the stop.
    server_stop.request()
    server_stop.request()
