"""Staging: the Node's annotation names images to have ready before any Pod asks, and another one tells how far they are.

One image at a time, within a bandwidth limit, above the disk's floor, and behind every Pod. What is over, well or below the
floor, is over until the wish changes, so that collector and staging never chase each other. A wish that is withdrawn ends its pull
and leaves nothing of it.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

import msgspec

from bramley.agent.host import Host
from bramley.agent.images.image_requests import (
    Answer,
    Failed,
    ImageRequest,
    PullPolicy,
    Ready,
)
from bramley.agent.images.image_store import Stock
from bramley.agent.images.images import Images
from bramley.agent.images.pull_watch import Watched
from bramley.api import names
from bramley.api.core import Node
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.keys import Key

# More than a Mac's disk holds.
_MOST_IMAGES = 16
_LONGEST_MESSAGE = 300


class State(StrEnum):
    """How far a staged image is."""

    WAITING = "Waiting"
    PULLING = "Pulling"
    STAGED = "Staged"
    FAILED = "Failed"


class StagingRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Images to keep ready, in the order in which they are fetched."""

    images: tuple[str, ...] = ()
    megabytes_per_second: float | None = None


class StagedImage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How it stands with one of them."""

    image: str
    state: State
    percent: int | None = None
    digest: str = ""
    message: str = ""


class StagingReport(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The answer to one wish; `message` says what is wrong with the wish itself."""

    request: str
    images: tuple[StagedImage, ...] = ()
    message: str = ""

    def text(self) -> str:
        """Return it as the annotation holds it."""
        return msgspec.json.encode(self).decode()


def parse_request(text: str) -> StagingRequest:
    """Read a wish; BadRequest when it cannot be understood. No text is the wish for nothing."""
    if not text.strip():
        return StagingRequest()
    try:
        wish = msgspec.json.decode(text, type=StagingRequest)
    except msgspec.DecodeError as error:
        raise errors.BadRequest(f"the wish cannot be read: {error}") from error
    if len(wish.images) > _MOST_IMAGES:
        raise errors.BadRequest(f"more than {_MOST_IMAGES} images cannot be staged")
    if wish.megabytes_per_second is not None and wish.megabytes_per_second <= 0:
        raise errors.BadRequest("megabytesPerSecond must be more than nothing")
    return StagingRequest(tuple(dict.fromkeys(wish.images)), wish.megabytes_per_second)


def request_id(text: str) -> str:
    """Return what a report calls the wish of this text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def failed_image(image: str, error: errors.BramleyError) -> StagedImage:
    """Return the answer for an image that could not be had."""
    told = f"{error.reason}: {error}"
    return StagedImage(image, State.FAILED, message=told[:_LONGEST_MESSAGE])


logger = log.get(__name__)

_MEGABYTE = 1e6
_OWNER = "staging:"
# Less is no wait to any clock.
_SHORTEST_WAIT = 0.001


class BelowFloor(errors.Refused):
    """The disk has no room for what nobody needs yet."""


@dataclass(frozen=True, slots=True)
class StagingSettings:
    """The most that staging may take of line and disk, and how often progress is told."""

    megabytes_per_second: float | None = None
    floor: float = 0.15
    tell: timedelta = timedelta(seconds=10)
    retry: timedelta = timedelta(seconds=30)
    deadline: timedelta = timedelta(seconds=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What staging stands on."""

    node: str
    kube: Client
    images: Images
    stock: Stock
    host: Host
    clock: Clock


class Staging:
    """Brings the images that a Node is to hold, one after the other."""

    def __init__(self, around: Surroundings, settings: StagingSettings | None = None) -> None:
        self._around = around
        self._settings = settings or StagingSettings()
        self._kube = around.kube.within(self._settings.deadline)
        self._woken = asyncio.Event()
        # None until the Node was seen: before that nobody knows what is wished.
        self._text: str | None = None
        self._shown = ""
        self._shown_at = float("-inf")
        self._served = ""
        self._over: dict[str, StagedImage] = {}
        self._pulling = ""

    def on_change(self, _key: Key, _old: Node | None, new: Node | None) -> None:
        """Hear from the watch of the Node."""
        if new is None:
            return
        noted = new.metadata.annotations
        self._shown = noted.get(names.annotations.STAGED_IMAGES, "")
        text = noted.get(names.annotations.STAGE_IMAGES, "")
        if text != self._text:
            self._text = text
            self._woken.set()

    async def run(self) -> None:
        """Stage what the Node asks for, until cancelled."""
        while True:
            self._woken.clear()
            pause: timedelta | None = self._settings.retry
            try:
                pause = await self._step()
            except errors.BramleyError as error:
                logger.warning("Staging again", reason=error.reason, error=str(error))
            await self._wait(pause)

    async def _wait(self, pause: timedelta | None) -> None:
        try:
            async with asyncio.timeout(None if pause is None else pause.total_seconds()):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _step(self) -> timedelta | None:
        """Bring the wish one step further; return when to look again, None when all is said."""
        text = self._text
        if text is None:
            return None
        if text != self._served:
            self._over.clear()
            self._served = text
        try:
            wish = parse_request(text)
        except errors.BadRequest as error:
            await self._withdraw(())
            return await self._tell(StagingReport(request_id(text), message=str(error)))
        await self._withdraw(wish.images)
        told = tuple([await self._served_image(wish, image) for image in wish.images])
        pause = await self._tell(StagingReport(request_id(text), told) if told else None)
        is_over = all(image in self._over for image in wish.images)
        return pause if is_over else self._settings.tell

    async def _served_image(self, wish: StagingRequest, image: str) -> StagedImage:
        if image in self._over:
            return self._over[image]
        if self._pulling not in {"", image}:
            return StagedImage(image, State.WAITING)
        answer = self._ask(wish, image)
        self._pulling = "" if isinstance(answer, Ready | Failed) else image
        return await self._judged(image, answer)

    async def _judged(self, image: str, answer: Answer) -> StagedImage:
        if isinstance(answer, Ready):
            self._keep(answer.digest)
            self._over[image] = StagedImage(image, State.STAGED, digest=answer.digest)
            return self._over[image]
        if isinstance(answer, Failed):
            told = failed_image(image, answer.error)
            if isinstance(answer.error, errors.Refused):
                self._over[image] = told
                await self._around.images.sweep()
            return told
        return StagedImage(image, State.PULLING, percent=answer.percent)

    def _ask(self, wish: StagingRequest, image: str) -> Answer:
        trouble = self._objection()
        request = ImageRequest(image, _OWNER + request_id(self._served), policy=PullPolicy.ALWAYS)
        if trouble is not None and self._pulling != image:
            return Failed(trouble, self._settings.retry)
        watched = Watched(limit=self._limit(wish), objection=self._objection)
        return self._around.images.stage(request, on_change=self._woken.set, watched=watched)

    def _limit(self, wish: StagingRequest) -> float | None:
        limits = (wish.megabytes_per_second, self._settings.megabytes_per_second)
        given = [limit for limit in limits if limit is not None]
        return min(given) * _MEGABYTE if given else None

    def _objection(self) -> BelowFloor | None:
        try:
            space = self._around.host.space(self._around.stock.home)
        except OSError:
            return None
        if space.free_share >= self._settings.floor:
            return None
        floor = f"{self._settings.floor:.0%}"
        return BelowFloor(f"{space.free_share:.0%} of the disk is free, and {floor} must stay so")

    def _keep(self, digest: str) -> None:
        for record in self._around.stock.records():
            if record.digest == digest:
                self._around.stock.stage(record, is_staged=True)

    async def _withdraw(self, wished: tuple[str, ...]) -> None:
        """End what is not wished any more: a pull on its way, and the protection of what came before."""
        if self._pulling and self._pulling not in wished:
            await self._around.images.cancel(self._pulling)
            self._pulling = ""
        for record in self._around.stock.records():
            if record.is_staged and not set(wished) & set(record.references):
                self._around.stock.stage(record, is_staged=False)

    async def _tell(self, report: StagingReport | None) -> timedelta | None:
        """Write the answer if it is news; progress alone is told at a bounded rate. Return when the rest can be told."""
        text = report.text() if report is not None else ""
        if text == self._shown:
            return None
        now = self._around.clock.monotonic()
        left = self._shown_at + self._settings.tell.total_seconds() - now
        if left > _SHORTEST_WAIT:
            return timedelta(seconds=left)
        self._shown_at = now
        noted = {names.annotations.STAGED_IMAGES: text or None}
        patch = {"metadata": {"annotations": noted}}
        await self._kube.merge_patch(Node, self._around.node, patch)
        self._shown = text
        return None
