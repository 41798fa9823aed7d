"""What this host looks like now: probes of tart, the GUI session and disks, and what other parts hold in memory.

`facts` waits for nobody and never fails: it reads what the probes have left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from bramley.agent.crash_recovery import lasting
from bramley.agent.gui_session import Session
from bramley.agent.host import Host, Space
from bramley.agent.ledger import ImageRecord
from bramley.agent.node.guest_probes import Ears, Guests, Listening
from bramley.agent.node.status import Check, Facts
from bramley.base import errors, log

logger = log.get(__name__)

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class ProbeTimings:
    """How often one looks, how soon again after a failure, and how long a look may take."""

    every: timedelta = timedelta(seconds=30)
    doubt: timedelta = timedelta(seconds=5)
    limit: timedelta = timedelta(minutes=2)


class Probe(Generic[A]):
    """Looks at one thing again and again."""

    def __init__(
        self,
        name: str,
        look: Callable[[], Awaitable[A]],
        *,
        changed: Callable[[], None],
        timings: ProbeTimings | None = None,
    ) -> None:
        # The last good answer, and what is wrong now: None before the first look, empty when all is well.
        self.answer: A | None = None
        self.trouble: str | None = None
        self._name = name
        self._look = look
        self._changed = changed
        self._timings = timings or ProbeTimings()
        self._failures = 0

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            began = asyncio.get_running_loop().time()
            await self.once()
            took = asyncio.get_running_loop().time() - began
            await asyncio.sleep(self._pause(took))

    async def once(self) -> None:
        """Look now."""
        before = (self.answer, self.trouble)
        try:
            async with asyncio.timeout(self._timings.limit.total_seconds()):
                self.answer = await self._look()
        except (errors.BramleyError, OSError, TimeoutError) as error:
            self._failed(str(error) or "it does not answer")
        else:
            self._failures = 0
            self.trouble = ""
        if (self.answer, self.trouble) != before:
            self._changed()

    def _pause(self, took: float) -> float:
        """Return the seconds until the next look; one that took long does not make the next one late."""
        doubt = self._timings.doubt.total_seconds()
        return doubt if self._failures else max(self._timings.every.total_seconds() - took, doubt)

    def _failed(self, told: str) -> None:
        self._failures += 1
        logger.warning("Probe failed", probe=self._name, failures=self._failures, error=told)
        if self.trouble != "" or self._failures > 1:
            self.trouble = told


# What starts programs costs more than all else that an idle agent does.
RARELY = ProbeTimings(every=timedelta(minutes=1))
# Every so many looks at tart one goes deeper than its version: once in five minutes.
LIST_EVERY = 5
# Cheap to look at, and soon to be known: each leak costs half of a Mac.
SOON = ProbeTimings(every=timedelta(seconds=10))


class Tart(Guests, Protocol):
    """What the view asks of tart."""

    async def version(self) -> str:
        """Return tart's version, or raise what keeps it from answering."""
        ...

    async def list(self) -> Sequence[object]:
        """Return what tart has, or raise what keeps it from looking."""
        ...


class Metrics(Protocol):
    """What the view counts."""

    def guest_disks(self, percents: Mapping[str, float]) -> None:
        """Say how full the disks of all running guests are."""
        ...


@dataclass(frozen=True, slots=True)
class Others:
    """What other parts of the agent know: VMs whose guest may answer, evidence of leaked slots, images on disk; and who listens to guests."""

    running: Callable[[], list[str]]
    leaks: Callable[[], Sequence[str]]
    images: Callable[[], Sequence[ImageRecord]]
    ears: Ears


class View:
    """Looks at the host in the background."""

    def __init__(
        self,
        tart: Tart,
        host: Host,
        *,
        session: Session | None,
        disk: Path,
        others: Others,
        metrics: Metrics,
        changed: Callable[[], None],
    ) -> None:
        # Told by the server, once it is there.
        self.kubelet_port: Callable[[], int] = int
        self._host = host
        self._tart = tart
        self._disk = disk
        self._others = others
        self._asked = 0
        self._metrics = metrics
        self._listening = Listening(
            tart, others.ears, running=others.running, ensure_well=self._ensure_tart_is_well
        )
        self._answers = Probe("tart", self._ask_tart, changed=changed, timings=RARELY)
        self._space = Probe("host disk", self._measure_host, changed=_nothing)
        self._guests = Probe("guest disks", self._measure_guests, changed=_nothing, timings=RARELY)
        self._slots = Probe("slots", self._look_for_leaks, changed=changed, timings=SOON)
        self._images = Probe("images", self._look_for_images, changed=changed, timings=SOON)
        # Not only looked at: a Node that is not ready gets no Pods, so nobody else would revive it.
        self._session: Probe[None] | None = None
        if session is not None:
            self._session = Probe("GUI session", session.ensure, changed=changed, timings=RARELY)

    def jobs(self) -> Iterator[Coroutine[Any, Any, object]]:
        """Yield the probes; each runs until it is cancelled."""
        yield lasting("probe of tart", self._answers.run)
        yield lasting("probe of host disk", self._space.run)
        yield lasting("probe of guest disks", self._guests.run)
        yield lasting("probe of slots", self._slots.run)
        yield lasting("probe of images", self._images.run)
        if self._session is not None:
            yield lasting("probe of the GUI session", self._session.run)

    def facts(self) -> Facts:
        """Return what is known now."""
        session = self._session
        return Facts(
            tart=Check(self._answers.trouble),
            session=None if session is None else Check(session.trouble),
            space=self._space.answer if not self._space.trouble else None,
            guest_disks=self._guests.answer or {},
            images=self._images.answer or (),
            leaks=self._slots.answer or (),
            boot_id=self._boot_id(),
            kubelet_port=self.kubelet_port(),
        )

    async def _ask_tart(self) -> str:
        version = await self._tart.version()
        self._asked += 1
        # Listing takes tart through all of its folders and locks. It also sweeps what a pull that was cut off has left,
        # so it is never the first thing that an agent does.
        if self._asked % LIST_EVERY == 0:
            await self._tart.list()
        return version

    async def _ensure_tart_is_well(self) -> None:
        """Raise what ails tart now, or did when it was looked at last."""
        if self._answers.trouble:
            raise errors.Unavailable(self._answers.trouble)
        # Not only its version: what keeps it from its folders and locks would keep it from any guest, too.
        await self._tart.list()

    async def _measure_host(self) -> Space:
        place = self._disk
        # tart makes its home with the first image.
        while not place.exists() and place != place.parent:
            place = place.parent
        return self._host.space(place)

    async def _measure_guests(self) -> Mapping[str, float]:
        measured = await self._listening.look()
        self._metrics.guest_disks(measured)
        return measured

    async def _look_for_leaks(self) -> Sequence[str]:
        return tuple(self._others.leaks())

    async def _look_for_images(self) -> Sequence[ImageRecord]:
        return tuple(self._others.images())

    def _boot_id(self) -> str:
        try:
            return self._host.boot_id()
        except OSError:
            return ""


def _nothing() -> None:
    """Disks change all the time; the Node tells it with its next beat."""
