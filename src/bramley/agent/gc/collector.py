"""The collector: every few minutes, and whenever somebody runs out of space, it looks, plans one step, takes it and looks again.

Before every step the plan is made anew, under the guard that keeps new leases waiting: what became leased, live or needed in
the meantime is not in it any more, and it ends by itself when the disk has recovered. Errors end a pass and are only logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec

from bramley.agent.gc import leases, plan
from bramley.agent.gc.plan import (
    DeleteImage,
    DeleteVm,
    Facts,
    Listed,
    Plan,
    PodFact,
    Step,
    decide,
)
from bramley.agent.host import Host
from bramley.agent.host_clock import SteadyClock
from bramley.agent.images.image_store import Stock
from bramley.agent.ledger import ImageRecord, Ledger, VmRecord
from bramley.agent.tart.driver import Tart
from bramley.api.core import Pod
from bramley.base import errors, log
from bramley.kube.client import Client

logger = log.get(__name__)

PERIOD = timedelta(minutes=5)
# Above the 10 % at which the Node says DiskPressure, so that this comes first.
FLOOR = 0.15

ListPods = Callable[[], Awaitable[Sequence[Pod]]]
RemoveVm = Callable[[str], Awaitable[None]]
R = TypeVar("R", VmRecord, ImageRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the collector looks at and acts through; `remove_vm` tears down one VM of ours with all that belongs to it."""

    tart: Tart
    stock: Stock
    ledger: Ledger
    host: Host
    clock: SteadyClock
    list_pods: ListPods
    remove_vm: RemoveVm
    leases: Path
    binary: str
    period: timedelta = PERIOD
    floor: float = FLOOR


class Collector:
    """Deletes what we made and nobody needs; there is none of these where `--disable-vm-gc` is given."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        # One pass at a time, whoever asked for it.
        self._turn = asyncio.Lock()
        self._held_back = ""

    async def run(self) -> None:
        """Collect now and in every period, until cancelled."""
        while True:
            await self.collect()
            await asyncio.sleep(self._around.period.total_seconds())

    async def collect(self) -> bool:
        """Make one pass; tell whether anything was deleted."""
        return await self._pass(is_asked=False)

    async def reclaim(self) -> bool:
        """Make room for somebody who ran out of space; tell whether anything was deleted."""
        return await self._pass(is_asked=True)

    async def _pass(self, *, is_asked: bool) -> bool:
        async with self._turn:
            try:
                pods, listed = await self._pods(), await self._listed()
                return await self._steps(pods, listed, is_asked=is_asked)
            except (errors.BramleyError, OSError) as error:
                logger.warning("Ended a collection", reason=type(error).__name__, error=str(error))
                return False

    async def _steps(
        self, pods: Sequence[PodFact] | None, listed: Listed | None, *, is_asked: bool
    ) -> bool:
        taken: set[Step] = set()
        while True:
            with leases.guarding(self._around.leases) as is_quiet:
                plan = decide(self._look(pods, listed, is_asked=is_asked)) if is_quiet else Plan()
                self._tell_held_back(plan)
                self._note_use(plan)
                step = next((step for step in plan.steps if step not in taken), None)
                if step is None:
                    return bool(taken)
                taken.add(step)
                await self._take(step)
                listed = _without(listed, step)

    def _note_use(self, plan: Plan) -> None:
        """Let the day after which an image goes begin when the last Pod that needed it is gone."""
        for record in self._around.stock.records():
            if record.digest in plan.needed:
                self._around.stock.used(record)

    async def _take(self, step: Step) -> None:
        logger.info("Deleting", step=step)
        if isinstance(step, DeleteVm):
            await self._around.remove_vm(step.vm)
        elif isinstance(step, DeleteImage):
            await self._delete_image(step)
        else:
            await self._delete_cached(step.cached)

    async def _delete_image(self, step: DeleteImage) -> None:
        stock = self._around.stock
        async with stock.lock(step.golden):
            if step.golden and stock.has_folder(step.golden):
                await self._around.tart.delete(step.golden)
            await self._delete_cached(step.cached)
            stock.forget(step.digest)

    async def _delete_cached(self, cached: Sequence[str]) -> None:
        for image in cached:
            await self._around.tart.delete(image)

    async def _pods(self) -> Sequence[PodFact] | None:
        try:
            return [plan.of_pod(pod) for pod in await self._around.list_pods()]
        except errors.BramleyError as error:
            logger.warning("Cannot list Pods", reason=error.reason, error=str(error))
            return None

    async def _listed(self) -> Listed | None:
        try:
            rows = await self._around.tart.list()
        except errors.BramleyError as error:
            logger.warning("Cannot list VMs", reason=error.reason, error=str(error))
            return None
        return Listed(
            vms=frozenset(row.name for row in rows if row.is_local),
            images=frozenset(row.name for row in rows if not row.is_local),
        )

    def _look(
        self, pods: Sequence[PodFact] | None, listed: Listed | None, *, is_asked: bool
    ) -> Facts:
        around, records = self._around, self._around.stock.records()
        vms = around.ledger.vms()
        goldens = frozenset(each.golden for each in around.stock.present())
        return Facts(
            now=around.clock.now(),
            pods=pods,
            listed=listed,
            processes=self._processes(),
            vms={name: self._aged(record) for name, record in vms.items()},
            images=[self._aged(record) for record in records],
            goldens=goldens,
            live=frozenset(
                name for name in goldens | vms.keys() if around.tart.is_running(name, around.host)
            ),
            in_hand=frozenset(each.digest for each in records if around.stock.is_in_hand(each)),
            leases=leases.held(around.leases),
            is_low=self._is_low(),
            is_asked=is_asked,
        )

    def _aged(self, record: R) -> R:
        """Return a record with its dates as the clock would tell them now: a jump makes nothing old."""
        dates = {
            name: self._around.clock.restamped(date)
            for name in ("created_at", "pulled_at", "last_used")
            if (date := getattr(record, name, None)) is not None
        }
        return msgspec.structs.replace(record, **dates)

    def _processes(self) -> plan.ProcessTable | None:
        try:
            return plan.read_process_table(self._around.host.processes(), tart=self._around.binary)
        except OSError as error:
            logger.warning("Cannot read the process table", error=str(error))
            return None

    def _is_low(self) -> bool:
        try:
            return self._around.host.space(self._around.tart.home).free_share < self._around.floor
        except OSError:
            return False

    def _tell_held_back(self, plan: Plan) -> None:
        if plan.held_back and plan.held_back != self._held_back:
            logger.warning("Collecting nothing", reason=plan.held_back)
        self._held_back = plan.held_back


def pods_of(kube: Client, node: str) -> ListPods:
    """Return the question for all Pods of a Node, asked of the server itself; one that cannot be read spoils the list."""

    async def ask() -> Sequence[Pod]:
        listing = await kube.list(Pod, fields={"spec.nodeName": node})
        if listing.undecodable:
            raise errors.Unavailable(f"{len(listing.undecodable)} Pods cannot be read")
        return listing.items

    return ask


def _without(listed: Listed | None, step: Step) -> Listed | None:
    if listed is None or isinstance(step, DeleteVm):
        return listed
    return replace(listed, images=listed.images - set(step.cached))
