"""Staging: an annotation of the Node requests images to pull before any Pod needs them, and another one reports their state.

`api.staging` has the formats of request and report. Images are pulled one at a time, within a rate limit, above the disk's floor, and with a lower priority than Pods. An
image that is staged is not pulled again until the request changes, so that garbage collection and staging do not undo each other
for ever; one that was refused because of the floor is tried again only once clearly more of the disk is free than when its pull
began. A request that is withdrawn cancels its pull and removes what it left.
"""

from __future__ import annotations

import asyncio
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta

from bramley.agent.host import Host
from bramley.agent.images.image_manager import ImageManager
from bramley.agent.images.image_requests import (
    Failed,
    ImageRequest,
    ImageState,
    PullPolicy,
    Ready,
)
from bramley.agent.images.image_store import ImageStore
from bramley.agent.images.pull_monitor import PullControl
from bramley.api import names
from bramley.api.core import Node
from bramley.api.staging import (
    NO_ROOM,
    StagedImage,
    StagingReport,
    StagingRequest,
    State,
    parse_request,
    request_id,
)
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.keys import Key

logger = log.get(__name__)

_MEGABYTE = 1e6
_OWNER = "staging:"
# A shorter wait is below the resolution of the clock.
_MIN_WAIT = 0.001
_MAX_MESSAGE_LENGTH = 300


def failed_image(image: str, error: errors.BramleyError) -> StagedImage:
    """Return the state of an image whose pull failed."""
    message = f"{error.reason}: {error}"
    return StagedImage(image, State.FAILED, message=message[:_MAX_MESSAGE_LENGTH])


class BelowFloor(errors.Refused):
    """The disk has not enough free space for images that no Pod needs yet."""


@dataclass(frozen=True, slots=True)
class StagingSettings:
    """The limits of staging, and how often its progress is published."""

    megabytes_per_second: float | None = None
    floor: float = 0.15
    publish_period: timedelta = timedelta(seconds=10)
    retry: timedelta = timedelta(seconds=30)
    # A pull that reached the floor is repeated once this share of the disk more is free than when it began. Each repetition
    # raises the bar, so VMs that come and go cause no endless sequence of pulls.
    gained_share: float = 0.05
    space_check_period: timedelta = timedelta(minutes=1)
    deadline: timedelta = timedelta(seconds=20)


@dataclass(slots=True, eq=False)
class Staging:
    """Pulls the images that the Node's annotation requests, one after the other."""

    node: str
    kube: Client
    _: KW_ONLY
    images: ImageManager
    store: ImageStore
    host: Host
    clock: Clock
    settings: StagingSettings = field(default_factory=StagingSettings)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    # None until the Node was read: before that the requested images are unknown.
    _request_text: str | None = None
    _published: str = ""
    _published_at: float = float("-inf")
    _current_text: str = ""
    _finished: dict[str, StagedImage] = field(default_factory=dict)
    # The free share of the disk when the last pull of an image began.
    _free_before: dict[str, float] = field(default_factory=dict)
    _pulling: str = ""

    def __post_init__(self) -> None:
        self.kube = self.kube.within(self.settings.deadline)

    def on_change(self, _key: Key, _old: Node | None, new: Node | None) -> None:
        """Handle a change of the Node; registered with its informer."""
        if new is None:
            return
        annotations = new.metadata.annotations
        self._published = annotations.get(names.annotations.STAGED_IMAGES, "")
        text = annotations.get(names.annotations.STAGE_IMAGES, "")
        if text != self._request_text:
            self._request_text = text
            self._changed.set()

    async def run(self) -> None:
        """Stage the requested images until cancelled."""
        while True:
            # Before the step: a change that arrives during it must not be lost.
            self._changed.clear()
            pause: timedelta | None = self.settings.retry
            try:
                pause = await self._step()
            except errors.BramleyError as error:
                logger.warning("Image staging failed", reason=error.reason, error=str(error))
            await self._wait(pause)

    async def _wait(self, pause: timedelta | None) -> None:
        try:
            async with asyncio.timeout(None if pause is None else pause.total_seconds()):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _step(self) -> timedelta | None:
        """Advance the current request; return when to check again, None when all is published."""
        text = self._request_text
        if text is None:
            return None
        if text != self._current_text:
            self._finished.clear()
            self._free_before.clear()
            self._current_text = text
        try:
            request = parse_request(text)
        except errors.BadRequest as error:
            await self._cancel_unrequested(())
            return await self._publish(StagingReport(request_id(text), message=str(error)))
        # First: one image is pulled at a time, and one that is no longer requested would block the others.
        await self._cancel_unrequested(request.images)
        self._reopen_refused()
        statuses = tuple([await self._stage_image(request, image) for image in request.images])
        pause = await self._publish(StagingReport(request_id(text), statuses) if statuses else None)
        if any(image not in self._finished for image in request.images):
            return self.settings.publish_period
        if any(status.state is State.FAILED for status in statuses):
            return min(pause or self.settings.space_check_period, self.settings.space_check_period)
        return pause

    def _reopen_refused(self) -> None:
        """Try refused images again if enough of the disk has become free since their pulls began."""
        free = self._free_share()
        for image, status in list(self._finished.items()):
            is_refused = status.message.startswith(NO_ROOM)
            needed = self._free_before.get(image, 1.0) + self.settings.gained_share
            if is_refused and free >= max(needed, self.settings.floor):
                logger.info("Staging image again, because the disk has more room", image=image)
                del self._finished[image]

    async def _stage_image(self, request: StagingRequest, image: str) -> StagedImage:
        if image in self._finished:
            return self._finished[image]
        if self._pulling not in {"", image}:
            return StagedImage(image, State.WAITING)
        image_state = self._request_image(request, image)
        self._pulling = "" if isinstance(image_state, Ready | Failed) else image
        return await self._image_status(image, image_state)

    async def _image_status(self, image: str, image_state: ImageState) -> StagedImage:
        if isinstance(image_state, Ready):
            self._mark_staged(image_state.digest)
            self._finished[image] = StagedImage(image, State.STAGED, digest=image_state.digest)
            return self._finished[image]
        if isinstance(image_state, Failed):
            status = failed_image(image, image_state.error)
            if isinstance(image_state.error, errors.Refused):
                self._finished[image] = status
                await self.images.remove_partial_download(image)
            return status
        return StagedImage(image, State.PULLING, percent=image_state.percent)

    def _request_image(self, request: StagingRequest, image: str) -> ImageState:
        if self._pulling != image:
            self._free_before[image] = self._free_share()
            if (below_floor := self._below_floor()) is not None:
                return Failed(below_floor, self.settings.retry)
        owner = _OWNER + request_id(self._current_text)
        image_request = ImageRequest(
            image,
            owner,
            policy=PullPolicy.ALWAYS,
            namespace=request.namespace,
            pull_secrets=request.pull_secrets,
            is_staged=True,
        )
        control = PullControl(limit=self._limit(request), stop_reason=self._below_floor)
        return self.images.request(image_request, on_change=self._changed.set, control=control)

    def _limit(self, request: StagingRequest) -> float | None:
        limits = (request.megabytes_per_second, self.settings.megabytes_per_second)
        configured = [limit for limit in limits if limit is not None]
        return min(configured) * _MEGABYTE if configured else None

    def _below_floor(self) -> BelowFloor | None:
        free = self._free_share()
        if free >= self.settings.floor:
            return None
        floor = f"{self.settings.floor:.0%}"
        return BelowFloor(f"{free:.0%} of the disk is free, and {floor} must stay free")

    def _free_share(self) -> float:
        try:
            return self.host.space(self.store.home).free_share
        except OSError:
            return 1.0

    def _mark_staged(self, digest: str) -> None:
        for record in self.store.records():
            if record.digest == digest:
                self.store.set_staged(record, is_staged=True)

    async def _cancel_unrequested(self, requested: tuple[str, ...]) -> None:
        """Cancel the pull of an image that is no longer requested, and remove the protection of staged ones."""
        if self._pulling and self._pulling not in requested:
            await self.images.cancel(self._pulling)
            self._pulling = ""
        for record in self.store.records():
            if record.is_staged and not set(requested) & set(record.references):
                self.store.set_staged(record, is_staged=False)

    async def _publish(self, report: StagingReport | None) -> timedelta | None:
        """Write the report if it has changed, at a bounded rate. Return when a change that is held back can be written."""
        text = report.text() if report is not None else ""
        if text == self._published:
            return None
        now = self.clock.monotonic()
        remaining = self._published_at + self.settings.publish_period.total_seconds() - now
        if remaining > _MIN_WAIT:
            return timedelta(seconds=remaining)
        # Before the request: one that fails counts for the rate, too.
        self._published_at = now
        annotations = {names.annotations.STAGED_IMAGES: text or None}
        patch = {"metadata": {"annotations": annotations}}
        await self.kube.merge_patch(Node, self.node, patch)
        self._published = text
        return None
