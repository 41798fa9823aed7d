"""The process of `bramley up`: the server of `bramley apiserver` and simulated Macs beside it, which stop before it does."""

from __future__ import annotations

import asyncio
import importlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from bramley.app import apiserver
from bramley.app.listening import Address
from bramley.app.serving import Stop
from bramley.base.clock import Clock, SystemClock

if TYPE_CHECKING:
    from bramley.app.bootstrapped_macs import BootstrappedMacs
    from bramley.app.macs import Macs

_MACS = "bramley.app.macs"
_BARE_MACS = "bramley.app.bootstrapped_macs"


@dataclass(frozen=True, slots=True)
class MacSettings:
    """How many Macs there are, where they are kept, and how long they may take."""

    folder: Path
    count: int = 3
    # Whether the Macs begin bare, and are made Nodes over SSH.
    bootstrap: bool = False
    # Where Macs of the other kind are kept: those of an earlier start are wanted no more.
    elsewhere: Path | None = None
    # Of a machine that may be busy: seconds, usually.
    start_within: timedelta = timedelta(minutes=3)
    stop_within: timedelta = timedelta(seconds=10)

    @property
    def names(self) -> list[str]:
        """Return what the wanted Macs are called."""
        return [f"mac-{number}" for number in range(1, self.count + 1)]

    @property
    def unwanted(self) -> list[str]:
        """Return the Macs of earlier starts, of either kind, that are wanted no more and were not taken away yet."""
        kept = {root.name for root in self._roots if not _mark(root).exists()}
        return sorted(kept - {*self.names})

    @property
    def are_of_concern(self) -> bool:
        """Tell whether there is anything to do about Macs: also where none is wanted, those of an earlier start have to go."""
        return bool(self.names or self.unwanted)

    def note_retired(self, name: str) -> None:
        """Remember that a Mac was taken away: a Node of that name is somebody else's from now on."""
        for root in self._roots:
            if root.name == name:
                _mark(root).touch()

    def note_wanted(self) -> None:
        """Forget that Macs which are wanted were taken away once."""
        for root in self._roots:
            if root.name in self.names:
                _mark(root).unlink(missing_ok=True)

    @property
    def _roots(self) -> list[Path]:
        folders = (self.folder, self.elsewhere)
        return [root for folder in folders if folder for root in folder.glob("mac-*")]


@dataclass(frozen=True, slots=True)
class Settings:
    """The server, and the Macs beside it."""

    server: apiserver.Settings
    macs: MacSettings


@dataclass(frozen=True, slots=True)
class CameUp:
    """A Mac's Node is Ready."""

    name: str
    after: timedelta


@dataclass(frozen=True, slots=True)
class Failed:
    """A Mac did not come up, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Stepped:
    """A step of a Mac's bootstrap is done; `changed` counts what was done for it."""

    name: str
    step: str
    changed: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """All Macs wait for something that takes long enough to be told."""

    what: str


News = CameUp | Failed | Stepped | Waiting


@dataclass(frozen=True, slots=True)
class Teller:
    """Who hears how it goes: that clients can connect, and each Mac's news."""

    started: Callable[[Address], None]
    news: Callable[[News], None]


def _mark(root: Path) -> Path:
    # Beside its files, which stay and may be those of a file system.
    return root.with_name(f".retired-{root.name}")


def run(settings: Settings, teller: Teller) -> None:
    """Serve until a signal comes."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_signalled(settings, teller))


async def _until_signalled(settings: Settings, teller: Teller) -> None:
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.ask)
    await serve(settings, teller, stop=stop, clock=SystemClock())


async def serve(settings: Settings, teller: Teller, *, stop: Stop, clock: Clock) -> None:
    """Serve until asked to stop: first the Macs end, then the server; asked twice, everything ends at once."""
    server_s_stop, serving = Stop(), asyncio.Event()

    def started(address: Address) -> None:
        apiserver.begin_collecting()
        teller.started(address)
        serving.set()

    beside = _Beside(settings, teller, clock)
    async with asyncio.TaskGroup() as group:
        server = group.create_task(
            apiserver.serve(settings.server, stop=server_s_stop, started=started, clock=clock)
        )
        forcing = group.create_task(_force(stop, beside, server_s_stop))
        await beside.run(serving, stop)
        server_s_stop.ask()
        await asyncio.wait((server,))
        forcing.cancel()


@dataclass(slots=True)
class _Beside:
    """The Macs, from when the server serves until somebody asks to stop."""

    settings: Settings
    teller: Teller
    clock: Clock
    macs: Macs | BootstrappedMacs | None = None

    async def run(self, serving: asyncio.Event, stop: Stop) -> None:
        await serving.wait()
        # Loading the client takes a moment, in a thread so that nobody has to wait for it.
        self.macs = running = await asyncio.to_thread(self._loaded)
        async with asyncio.TaskGroup() as group:
            group.create_task(running.run(self.teller.news))
            await stop.asked.wait()
            running.stop()

    def _loaded(self) -> Macs | BootstrappedMacs:
        settings, way_in = self.settings.macs, self.settings.server.kubeconfig
        if settings.bootstrap and settings.count:
            made = importlib.import_module(_BARE_MACS).BootstrappedMacs
        else:
            made = importlib.import_module(_MACS).Macs
        return made(settings, way_in, clock=self.clock)  # type: ignore[no-any-return]

    def kill(self) -> None:
        if self.macs is not None:
            self.macs.kill()


async def _force(stop: Stop, beside: _Beside, server_s_stop: Stop) -> None:
    await stop.forced.wait()
    beside.kill()
    server_s_stop.ask()
    server_s_stop.ask()
