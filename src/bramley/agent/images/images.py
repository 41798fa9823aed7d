"""Images for Pods: asked for without waiting, fetched once however many ask, and turned into golden bases by digest.

Goldens are never run; VMs are cloned from them. An error of a clone says nothing against a base that is whole, so none is ever
deleted for it. Everything that takes time happens in tasks of `run`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from bramley.agent.host import Host
from bramley.agent.images.image_requests import (
    Answer,
    Failed,
    Failures,
    ImageRequest,
    OnChange,
    Owners,
    Pulling,
    PullPolicy,
    Ready,
)
from bramley.agent.images.image_store import Stock
from bramley.agent.images.pull_watch import Watched
from bramley.agent.images.puller import Order, Puller, Reclaim
from bramley.agent.ledger import ImageRecord, Ledger, VmState
from bramley.agent.tart import references
from bramley.agent.tart.driver import Credentials, Tart
from bramley.agent.tart.failures import NoSpace
from bramley.agent.tart.references import Reference
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.base.errors import Captured


@dataclass(slots=True, eq=False)
class Flight:
    """The first wish decides about credentials; every other one joins."""

    request: ImageRequest
    reference: Reference
    order: Order
    since: datetime
    listeners: dict[str, OnChange] = field(default_factory=dict)
    # Whether the registry was asked what the name means now.
    is_fresh: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def image(self) -> str:
        """Return the name that was asked for."""
        return self.request.image

    @property
    def percent(self) -> int | None:
        """Return how far the pull has come, as far as that is known."""
        return self.order.watched.progress.percent

    @property
    def must_ask(self) -> bool:
        """Tell whether the registry has to be asked although the tag may be in the cache."""
        return self.request.policy is PullPolicy.ALWAYS and not self.reference.digest

    def join(self, owner: str, on_change: OnChange, watched: Watched | None) -> None:
        """Wait for it too; the newest stage decides about its limit, and with the first Pod it is no longer held back."""
        self.listeners[owner] = on_change
        if watched is None:
            self.order.is_staged = False
            self.order.watched.limit = None
            self.order.watched.objection = lambda: None
        elif self.order.is_staged:
            self.order.watched.limit = watched.limit

    def tell(self) -> None:
        """Tell everybody that the answer may have changed."""
        for listener in list(self.listeners.values()):
            listener()


logger = log.get(__name__)

# How often those who wait are told of progress.
_TELL = timedelta(seconds=10)
_NEVER_AGAIN = timedelta(minutes=10)


class NotPresent(errors.Refused):
    """The image is not here and its policy forbids to fetch it."""


class Keys(Protocol):
    """Finds credentials for an image."""

    async def find(
        self, reference: Reference, *, namespace: str, secrets: Sequence[str]
    ) -> Credentials | None:
        """Return what fits first, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What images stand on; without `reclaim` a full disk is a failure like any other."""

    tart: Tart
    ledger: Ledger
    stock: Stock
    puller: Puller
    keys: Keys
    host: Host
    clock: Clock
    failures: Failures
    reclaim: Reclaim | None = None
    owners: Owners = field(default_factory=Owners)


class Images:
    """Answers what became of each image; see `asking` for the answers."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._stock = around.stock
        self._flights: dict[str, Flight] = {}
        self._starting: asyncio.Queue[Flight] = asyncio.Queue()

    async def run(self) -> None:
        """Fetch what is asked for, until cancelled; a pull that is cut off goes on with the next agent."""
        self._settle_unfinished()
        async with asyncio.TaskGroup() as group:
            while True:
                flight = await self._starting.get()
                if flight is self._flights.get(flight.image):
                    flight.task = group.create_task(self._fly(flight), name=flight.image)

    def want(self, request: ImageRequest, *, on_change: OnChange) -> Answer:
        """Say how it stands with an image, and see to it that it comes."""
        return self._ask(request, on_change, watched=None)

    def stage(self, request: ImageRequest, *, on_change: OnChange, watched: Watched) -> Answer:
        """Say how it stands with an image that nobody needs yet; `watched` holds its pull back."""
        return self._ask(request, on_change, watched=watched)

    def present(self) -> Sequence[ImageRecord]:
        """Return the images that a VM can be cloned from at once."""
        return self._stock.present()

    async def clone(self, golden: str, vm: str) -> None:
        """Make a VM's disk of a golden base. A clone of ours that never ran is replaced, anything else is AlreadyExists."""
        async with self._stock.lock(golden):
            await self._clear(vm)
            try:
                await self._around.tart.clone(golden, vm)
            except NoSpace:
                if not await self._make_room():
                    raise
                await self._clear(vm)
                await self._around.tart.clone(golden, vm)

    async def cancel(self, image: str) -> None:
        """End a staged pull that no Pod waits for, and leave nothing of it."""
        flight = self._flights.get(image)
        if flight is None or not flight.order.is_staged:
            return
        if flight.task is None:
            self._landed(flight)
        else:
            flight.task.cancel()
            await asyncio.wait([flight.task])
        await self.sweep()

    async def sweep(self) -> None:
        """Have tart remove what killed pulls left behind: every command but pull and clone does that first."""
        with contextlib.suppress(errors.BramleyError):
            await self._around.tart.list()

    def _ask(
        self, request: ImageRequest, on_change: OnChange, *, watched: Watched | None
    ) -> Answer:
        reference = references.parse(request.image)
        if reference is None:
            return Failed(errors.InvalidSpec(f"{request.image!r} is no image"), _NEVER_AGAIN)
        flight = self._flights.get(request.image)
        if flight is None:
            answer = self._known(request, reference)
            if answer is not None:
                return answer
            flight = self._start(request, reference, watched)
        flight.join(request.owner, on_change, watched)
        self._around.owners.waits(request.image, request.owner)
        return Pulling(flight.percent, flight.since)

    def _known(self, request: ImageRequest, reference: Reference) -> Ready | Failed | None:
        record = self._stock.find(reference, request.image)
        owners, image, owner = self._around.owners, request.image, request.owner
        must_ask = request.policy is PullPolicy.ALWAYS and not reference.digest
        is_fresh = not must_ask or owners.is_fresh(image, owner)
        if record is not None and is_fresh and self._stock.is_whole(record.golden):
            self._stock.used(record)
            return Ready(record.golden, record.digest, is_warm=not owners.has_waited(image, owner))
        if request.policy is PullPolicy.NEVER:
            return Failed(NotPresent(f"{image} is not on this host"), _NEVER_AGAIN)
        return self._around.failures.of(request)

    def _start(
        self, request: ImageRequest, reference: Reference, watched: Watched | None
    ) -> Flight:
        order = Order(reference, is_staged=watched is not None, watched=watched or Watched())
        flight = Flight(request, reference, order, self._around.clock.now())
        self._flights[request.image] = flight
        self._stock.coming.add(request.image)
        self._starting.put_nowait(flight)
        return flight

    async def _fly(self, flight: Flight) -> None:
        failures, owners = self._around.failures, self._around.owners
        try:
            await self._while_telling(flight)
        except errors.BramleyError as error:
            failures.note(flight.request, error)
        else:
            failures.forget(flight.request)
            if flight.is_fresh:
                owners.are_fresh(flight.image, flight.listeners)
        finally:
            # Before anybody is told, because they ask again at once.
            self._landed(flight)
            flight.tell()

    def _landed(self, flight: Flight) -> None:
        self._flights.pop(flight.image, None)
        self._stock.coming.discard(flight.image)

    async def _while_telling(self, flight: Flight) -> None:
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(_tell_progress(flight))
            # No image, whatever it is, may end the agent, which every other Pod of this host needs.
            with Captured() as caught:
                await self._materialise(flight)
            telling.cancel()
        if isinstance(caught.error, errors.BramleyError):
            raise caught.error
        if caught.error is not None:
            told = f"{flight.image} cannot be kept on this host: {caught.error}"
            raise errors.Unavailable(told) from caught.error

    async def _materialise(self, flight: Flight) -> None:
        record = self._adopted(flight) or await self._fetched(flight)
        async with self._stock.lock(record.golden):
            if not self._stock.is_whole(record.golden):
                await self._make_golden(flight.reference.at(record.digest), record.golden)
            self._stock.made(record)

    def _adopted(self, flight: Flight) -> ImageRecord | None:
        """Take over the base of this very digest that an agent without a ledger made."""
        reference = flight.reference
        if not reference.digest or not self._stock.has_golden(reference):
            return None
        record = self._stock.fetched(reference, flight.image, reference.digest)
        return self._stock.promise(record, reference)

    async def _fetched(self, flight: Flight) -> ImageRecord:
        reference, image, tart = flight.reference, flight.image, self._around.tart
        digest = None if flight.must_ask else tart.resolve(image)
        if digest is None or not self._stock.is_cached(reference, digest):
            await self._fetch(flight)
            digest = tart.resolve(image)
        if digest is None:
            raise errors.Unavailable(f"{image} was pulled and is not in tart's cache")
        record = self._stock.fetched(reference, image, digest)
        return self._stock.promise(record, reference)

    async def _fetch(self, flight: Flight) -> None:
        request, order = flight.request, flight.order
        order.credentials = await self._around.keys.find(
            flight.reference, namespace=request.namespace, secrets=request.pull_secrets
        )
        self._stock.began(flight.reference, flight.image)
        try:
            await self._around.puller.fetch(order)
        except (errors.BramleyError, asyncio.CancelledError):
            self._stock.gave_up(flight.image)
            raise
        flight.is_fresh = True

    async def _make_golden(self, source: str, golden: str) -> None:
        tart = self._around.tart
        await self._remove_half(golden)
        try:
            await tart.clone(source, golden)
        except NoSpace:
            await self._remove_half(golden)
            if not await self._make_room():
                raise
            await tart.clone(source, golden)
        except errors.BramleyError:
            await self._remove_half(golden)
            raise

    async def _remove_half(self, vm: str) -> None:
        """Remove what is left of a base that was never finished; one that is whole stays, whatever went wrong."""
        if not self._stock.is_whole(vm) and self._stock.has_folder(vm):
            await self._around.tart.delete(vm)

    async def _make_room(self) -> bool:
        return self._around.reclaim is not None and await self._around.reclaim()

    async def _clear(self, vm: str) -> None:
        if not self._stock.has_folder(vm):
            return
        around, record = self._around, self._around.ledger.vm(vm)
        is_ours = record is not None and record.state is VmState.CLAIMED
        if not is_ours or around.tart.is_running(vm, around.host):
            raise errors.AlreadyExists(
                f"there is a VM {vm}, and it is not a clone that we may replace"
            )
        await around.tart.delete(vm)

    def _settle_unfinished(self) -> None:
        """Take over what pulls have brought whose agent did not see their end; others may still be under way."""
        for image in self._stock.unfinished():
            reference, digest = references.parse(image), self._around.tart.resolve(image)
            if reference is not None and digest is not None:
                self._stock.settle(reference, image, digest)


async def _tell_progress(flight: Flight) -> None:
    told: int | None = None
    while True:
        await asyncio.sleep(_TELL.total_seconds())
        if flight.percent != told:
            told = flight.percent
            flight.tell()
