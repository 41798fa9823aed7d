"""Garbage collection of VMs and images: every few minutes, and whenever an operation ran out of disk space.

Each pass observes, plans, executes one step, and repeats. A new plan is made before every step, under the guard that blocks new
leases, so it never contains what was leased, started or requested meanwhile, and it becomes empty when the disk has recovered. The
guard must be held from the plan to the end of the step. Errors end a pass and are only logged.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec

from bramley.agent.gc import leases
from bramley.agent.gc.plan import (
    DeleteImage,
    DeleteVm,
    Facts,
    Listed,
    Plan,
    PodFact,
    ProcessTable,
    Step,
    decide,
    pod_fact,
    read_process_table,
)
from bramley.agent.host import Host, Space
from bramley.agent.host_clock import HostClock
from bramley.agent.images.image_store import ImageStore
from bramley.agent.ledger import ImageRecord, Ledger, VmRecord
from bramley.agent.tart.driver import Tart
from bramley.api.core import Pod
from bramley.base import errors, log
from bramley.kube.client import Client

logger = log.get(__name__)

PERIOD = timedelta(minutes=5)
# Above the 10 % at which the Node reports DiskPressure, so that collection comes first.
FLOOR = 0.15
# More than any disk has: everything that is not needed is deleted.
ALL = float("inf")

ListPods = Callable[[], Awaitable[Sequence[Pod]]]
RemoveVm = Callable[[str], Awaitable[None]]
R = TypeVar("R", VmRecord, ImageRecord)


@dataclass(slots=True, kw_only=True, eq=False)
class GarbageCollector:
    """Deletes VMs and images that the agent created and no Pod needs; not created with `--disable-vm-gc`.

    `remove_vm` removes one VM with all its resources.
    """

    tart: Tart
    store: ImageStore
    ledger: Ledger
    host: Host
    clock: HostClock
    list_pods: ListPods
    remove_vm: RemoveVm
    # Called when space is short, before the first command of tart.
    drop_partial_downloads: Callable[[], None] = lambda: None
    leases: Path
    binary: str
    period: timedelta = PERIOD
    floor: float = FLOOR
    # One pass at a time.
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # What the next pass of `run` must free, and whether it is to begin now.
    _needed: int = 0
    _is_needed: asyncio.Event = field(default_factory=asyncio.Event)
    _blocked: str = ""

    async def run(self) -> None:
        """Collect now, in every period, and when `reclaim_later` is called, until cancelled."""
        while True:
            self._is_needed.clear()
            needed, self._needed = self._needed, 0
            await self._run_pass(needed)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.period.total_seconds()):
                    await self._is_needed.wait()

    async def collect(self) -> bool:
        """Make one pass and return whether anything was deleted."""
        return await self._run_pass(0)

    async def reclaim(self, needed: int | None = None) -> bool:
        """Make one pass for a caller that needs so many free bytes, or ran out of space; return whether anything was deleted."""
        return await self._run_pass(ALL if needed is None else needed)

    def reclaim_later(self, needed: int) -> None:
        """Request a pass of `run` for so many free bytes; it begins when no other is in progress."""
        self._needed = max(self._needed, needed)
        self._is_needed.set()

    async def _run_pass(self, needed: float) -> bool:
        async with self._lock:
            space = self._space()
            if space is not None and (space.free_share < self.floor or space.free < needed):
                self.drop_partial_downloads()
            try:
                # First: a Pod that requests an image before its adoption would record it as pulled by another program.
                self._adopt_bases()
                # Outside of the guard, which blocks new leases; the plan protects records that are younger than these lists.
                pods, listed = await self._list_pods(), await self._list_vms()
                return await self._run_steps(pods, listed, needed)
            except (errors.BramleyError, OSError) as error:
                logger.warning(
                    "Garbage collection failed", reason=type(error).__name__, error=str(error)
                )
                return False

    async def _run_steps(
        self, pods: Sequence[PodFact] | None, listed: Listed | None, needed: float
    ) -> bool:
        executed: set[Step] = set()
        while True:
            with leases.guard(self.leases) as is_locked:
                plan = decide(self._observe(pods, listed, needed)) if is_locked else Plan()
                self._log_blocked(plan)
                self._record_use(plan)
                step = next((step for step in plan.steps if step not in executed), None)
                if step is None:
                    return bool(executed)
                executed.add(step)
                await self._execute(step)
                listed = _without_deleted(listed, step)

    def _adopt_bases(self) -> None:
        """Record the golden bases of an agent without a ledger, so that they are deleted by the same rules as ours."""
        for golden, reference in self.store.unrecorded_bases().items():
            with contextlib.suppress(OSError):
                size = self.host.allocated(self.tart.home / "vms" / golden)
                self.store.adopt_base(golden, reference, size=size)

    def _record_use(self, plan: Plan) -> None:
        """Renew `last_used` of needed images, so that it dates from when the last Pod that needed them is gone."""
        for record in self.store.records():
            if record.digest in plan.needed:
                self.store.record_use(record)

    async def _execute(self, step: Step) -> None:
        logger.info("Executing garbage collection step", step=step)
        if isinstance(step, DeleteVm):
            await self.remove_vm(step.vm)
        elif isinstance(step, DeleteImage):
            await self._delete_image(step)
        else:
            await self._delete_cached(step.cached)
        # The next plan depends on the free space.
        await self.tart.removals.finish()

    async def _delete_image(self, step: DeleteImage) -> None:
        store = self.store
        async with store.lock(step.golden).exclusive():
            if step.golden and store.has_folder(step.golden):
                await self.tart.delete(step.golden)
            await self._delete_cached(step.cached)
            # Last: while the record exists, the next pass repeats an interrupted deletion.
            store.forget(step.digest)

    async def _delete_cached(self, cached: Sequence[str]) -> None:
        for image in cached:
            await self.tart.delete(image)

    async def _list_pods(self) -> Sequence[PodFact] | None:
        try:
            return [pod_fact(pod) for pod in await self.list_pods()]
        except errors.BramleyError as error:
            logger.warning(
                "Garbage collector cannot list Pods", reason=error.reason, error=str(error)
            )
            return None

    async def _list_vms(self) -> Listed | None:
        try:
            rows = await self.tart.list()
        except errors.BramleyError as error:
            logger.warning(
                "Garbage collector cannot list VMs", reason=error.reason, error=str(error)
            )
            return None
        return Listed(
            vms=frozenset(row.name for row in rows if row.is_local),
            images=frozenset(row.name for row in rows if not row.is_local)
            | self.store.cached_images(),
        )

    def _observe(
        self, pods: Sequence[PodFact] | None, listed: Listed | None, needed: float
    ) -> Facts:
        records, space = self.store.records(), self._space()
        vms = self.ledger.vms()
        goldens = frozenset(each.golden for each in self.store.present())
        return Facts(
            now=self.clock.now(),
            pods=pods,
            listed=listed,
            processes=self._processes(),
            vms={name: self._rebased(record) for name, record in vms.items()},
            images=[self._rebased(record) for record in records],
            goldens=goldens,
            running=frozenset(
                name for name in goldens | vms.keys() if self.tart.is_running(name, self.host)
            ),
            in_use=frozenset(each.digest for each in records if self.store.is_in_use(each)),
            leases=leases.held(self.leases),
            is_low=space is not None and space.free_share < self.floor,
            needs_space=needed == ALL or (space is not None and space.free < needed),
        )

    def _rebased(self, record: R) -> R:
        """Return a record with its dates corrected for jumps of the clock: a jump must not make anything old."""
        dates = {
            name: self.clock.rebased(date)
            for name in ("created_at", "pulled_at", "last_used")
            if (date := getattr(record, name, None)) is not None
        }
        return msgspec.structs.replace(record, **dates)

    def _processes(self) -> ProcessTable | None:
        try:
            return read_process_table(self.host.processes(), tart=self.binary)
        except OSError as error:
            logger.warning("Garbage collector cannot read the process table", error=str(error))
            return None

    def _space(self) -> Space | None:
        try:
            return self.host.space(self.tart.home)
        except OSError:
            return None

    def _log_blocked(self, plan: Plan) -> None:
        if plan.blocked_by and plan.blocked_by != self._blocked:
            logger.warning("Garbage collection is blocked", reason=plan.blocked_by)
        self._blocked = plan.blocked_by


def list_pods_of(kube: Client, node: str) -> ListPods:
    """Return a function that lists the Pods of a Node from the server; it fails if one of them cannot be decoded."""

    async def list_pods() -> Sequence[Pod]:
        listing = await kube.list(Pod, fields={"spec.nodeName": node})
        if listing.undecodable:
            raise errors.Unavailable(f"{len(listing.undecodable)} Pods cannot be decoded")
        return listing.items

    return list_pods


def _without_deleted(listed: Listed | None, step: Step) -> Listed | None:
    if listed is None or isinstance(step, DeleteVm):
        return listed
    return replace(listed, images=listed.images - set(step.cached))
