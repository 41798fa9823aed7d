"""Background probes of this host: tart, the GUI session, disks, slots and images; `facts` returns their last results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from bramley.agent.crash_recovery import restart_on_crash
from bramley.agent.dhcp_leases import DhcpLeases, LeaseUsage
from bramley.agent.gui_session import GuiSession
from bramley.agent.host import Host, Space
from bramley.agent.ledger import ImageRecord
from bramley.agent.node.guest_probes import GuestExec, GuestProbes, LivenessSink
from bramley.agent.node.status import Check, Facts
from bramley.agent.slots import TakenSlots
from bramley.base import errors, log

logger = log.get(__name__)

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class ProbeTimings:
    """The period of a probe, the delay after a failure, and the time limit."""

    every: timedelta = timedelta(seconds=30)
    recheck: timedelta = timedelta(seconds=5)
    limit: timedelta = timedelta(minutes=2)


@dataclass(slots=True, eq=False)
class Probe(Generic[A]):
    """Runs one check periodically and keeps its last result.

    A check has a time limit, so a program that hangs is a failure too. One failure after a success is rechecked soon; the second in
    a row is reported.
    """

    name: str
    probe: Callable[[], Awaitable[A]]
    _: KW_ONLY
    on_change: Callable[[], None]
    timings: ProbeTimings = field(default_factory=ProbeTimings)
    # The last value, and the current error: None before the first check, empty after a success.
    value: A | None = None
    error: str | None = None
    _failures: int = 0

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            started = asyncio.get_running_loop().time()
            await self.run_once()
            elapsed = asyncio.get_running_loop().time() - started
            await asyncio.sleep(self._pause(elapsed))

    async def run_once(self) -> None:
        """Check now."""
        before = (self.value, self.error)
        try:
            async with asyncio.timeout(self.timings.limit.total_seconds()):
                self.value = await self.probe()
        except (errors.BramleyError, OSError, TimeoutError) as error:
            self._record_failure(str(error) or "timed out")
        else:
            self._failures = 0
            self.error = ""
        if (self.value, self.error) != before:
            self.on_change()

    def _pause(self, elapsed: float) -> float:
        """Return the seconds until the next check; the duration of the last one does not delay it."""
        recheck = self.timings.recheck.total_seconds()
        if self._failures:
            return recheck
        return max(self.timings.every.total_seconds() - elapsed, recheck)

    def _record_failure(self, message: str) -> None:
        self._failures += 1
        logger.warning("Probe failed", probe=self.name, failures=self._failures, error=message)
        if self.error != "" or self._failures > 1:
            self.error = message


# For checks that start programs: these cost more than everything else that an idle agent does.
SLOW = ProbeTimings(every=timedelta(minutes=1))
# One in this many checks of tart lists VMs instead of only printing the version: once in five minutes.
LIST_EVERY = 5
# For cheap checks with urgent results: each leaked slot is half of a Mac's capacity.
FAST = ProbeTimings(every=timedelta(seconds=10))


class Tart(GuestExec, Protocol):
    """The commands of tart that the probes use."""

    async def version(self) -> str:
        """Return tart's version."""
        ...

    async def list(self) -> Sequence[object]:
        """Return VMs and images."""
        ...


class Metrics(Protocol):
    """The metrics that the probes set."""

    def set_guest_disks(self, percents: Mapping[str, float]) -> None:
        """Set the disk usage of all running guests."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class HostProbes:
    """Checks tart, the GUI session, disks, slots and images in the background.

    `running_vms` returns the VMs whose guest may respond, `slots` what else takes slots, `images` the images on disk.
    """

    tart: Tart
    host: Host
    session: GuiSession | None
    disk: Path
    running_vms: Callable[[], list[str]]
    slots: Callable[[], TakenSlots]
    images: Callable[[], Sequence[ImageRecord]]
    liveness: LivenessSink
    metrics: Metrics
    on_change: Callable[[], None]
    dhcp_leases: DhcpLeases | None = None
    # Set once the server listens.
    kubelet_port: int = 0
    _tart_checks: int = 0
    _guest_probes: GuestProbes = field(init=False)
    _tart: Probe[str] = field(init=False)
    _space: Probe[Space] = field(init=False)
    _guests: Probe[Mapping[str, float]] = field(init=False)
    _slots: Probe[TakenSlots] = field(init=False)
    _images: Probe[Sequence[ImageRecord]] = field(init=False)
    _leases: Probe[LeaseUsage | None] = field(init=False)
    _session: Probe[None] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        on_change = self.on_change
        self._guest_probes = GuestProbes(
            self.tart, self.liveness, running=self.running_vms, check_tart=self._check_tart
        )
        self._tart = Probe("tart", self._probe_tart, on_change=on_change, timings=SLOW)
        self._space = Probe("host disk", self._measure_host_disk, on_change=_ignore)
        self._guests = Probe("guest disks", self._probe_guests, on_change=_ignore, timings=SLOW)
        self._slots = Probe("slots", _probe_of(self.slots), on_change=on_change, timings=FAST)
        images = _probe_of(lambda: tuple(self.images()))
        self._images = Probe("images", images, on_change=on_change, timings=FAST)
        self._leases = Probe("DHCP leases", self._count_leases, on_change=_ignore)
        # Restarted, not only checked: a Node that is not ready gets no Pods, so no start of a VM would do it.
        if self.session is not None:
            ensure = self.session.ensure
            self._session = Probe("GUI session", ensure, on_change=on_change, timings=SLOW)

    def runnables(self) -> Iterator[Coroutine[Any, Any, object]]:
        """Yield the probes; each runs until it is cancelled."""
        probes: list[Probe[Any]] = [
            self._tart,
            self._space,
            self._guests,
            self._slots,
            self._images,
            self._leases,
        ]
        if self._session is not None:
            probes.append(self._session)
        for probe in probes:
            yield restart_on_crash(f"probe of {probe.name}", probe.run)

    def facts(self) -> Facts:
        """Return the last results of all probes; does not wait and does not fail."""
        session = self._session
        return Facts(
            tart=Check(self._tart.error),
            session=None if session is None else Check(session.error),
            space=self._space.value if not self._space.error else None,
            guest_disks=self._guests.value or {},
            images=self._images.value or (),
            # The last value also while the file cannot be read.
            dhcp_leases=self._leases.value,
            slots=self._slots.value or TakenSlots(),
            boot_id=self._boot_id(),
            system=self.host.system_info(),
            tart_version=self._tart.value or "",
            kubelet_port=self.kubelet_port,
        )

    async def _probe_tart(self) -> str:
        version = await self.tart.version()
        self._tart_checks += 1
        # `tart list` reads all folders and takes all locks, and costs more than the version.
        if self._tart_checks % LIST_EVERY == 0:
            await self.tart.list()
        return version

    async def _check_tart(self) -> None:
        """Raise an error if tart does not work, or did not at its last check."""
        if self._tart.error:
            raise errors.Unavailable(self._tart.error)
        # Not only the version: a problem with its folders or locks would keep tart from reaching any guest.
        await self.tart.list()

    async def _count_leases(self) -> LeaseUsage | None:
        return None if self.dhcp_leases is None else self.dhcp_leases.usage()

    async def _measure_host_disk(self) -> Space:
        return self.host.space(self.disk)

    async def _probe_guests(self) -> Mapping[str, float]:
        measured = await self._guest_probes.probe()
        self.metrics.set_guest_disks(measured)
        return measured

    def _boot_id(self) -> str:
        try:
            return self.host.boot_id()
        except OSError:
            return ""


def _probe_of(read: Callable[[], A]) -> Callable[[], Awaitable[A]]:
    async def probe() -> A:
        return read()

    return probe


def _ignore() -> None:
    """Ignore a change: disk usage changes all the time and is published with the next update of the Node."""
