"""Image staging of one modelled host: pulls what the Node's annotation requests, and publishes the report and the golden labels.

The rules are those of `agent.images.staging`: one pull at a time in the order of the request, an image that is staged or refused
is not tried again until the request changes, and the report is written at a bounded rate. The disk of a modelled host never gains
room, so a refused image stays refused.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from bramley.agent.images.credentials import SecretForbidden
from bramley.agent.images.staging import failed_image
from bramley.api import names
from bramley.api.core import Node
from bramley.api.names import labels
from bramley.api.staging import (
    StagedImage,
    StagingReport,
    StagingRequest,
    State,
    parse_request,
    request_id,
)
from bramley.base import errors, log
from bramley.kube.client import Client
from bramley.sim.fleet.images import HostImages, Pull

logger = log.get(__name__)

_MEGABYTE = 1e6
_OWNER = "staging"
_RETRY_SECONDS = 30.0
_API_RETRY_SECONDS = 5.0
# A shorter wait is below the resolution of the clock.
_MIN_WAIT_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class StagingSettings:
    """The least time between two reports, and how often the progress of a pull is reported."""

    publish_seconds: float = 10.0
    progress_seconds: float = 10.0


@dataclass(slots=True, eq=False)
class HostStaging:
    """Stages the images of one host."""

    node: str
    kube: Client
    _: KW_ONLY
    images: HostImages
    settings: StagingSettings = field(default_factory=StagingSettings)
    # Returns the Secrets that Pods on this host refer to: those that its agent may read.
    secrets: Callable[[], Collection[str]] = tuple
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    # None until the Node was read.
    _observed: Node | None = None
    _text: str = ""
    _finished: dict[str, StagedImage] = field(default_factory=dict)
    _pull: Pull | None = None
    _published_at: float = -math.inf

    def notify(self) -> None:
        """Check images and request again."""
        self._changed.set()

    def observe(self, node: Node) -> None:
        """Store the Node as last read."""
        known = self._observed
        # What this host has written is known before the watch shows it.
        if known is None or known.uid != node.uid or _version(node) > _version(known):
            self._observed = node
            self._changed.set()

    async def run(self) -> None:
        """Stage what is requested until cancelled."""
        while True:
            # Before the step: a change that arrives during it must not be lost.
            self._changed.clear()
            try:
                pause = await self._step()
            except errors.NotFound:
                pause = None
            except errors.BramleyError as error:
                logger.debug("Node of a modelled host was not written", error=str(error))
                pause = _API_RETRY_SECONDS
            await self._wait(pause)

    async def _wait(self, pause: float | None) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _step(self) -> float | None:
        if self._observed is None:
            return None
        text = self._observed.metadata.annotations.get(names.annotations.STAGE_IMAGES, "")
        if text != self._text:
            self._text = text
            self._finished.clear()
        return await self._publish(self._observed, self._report(text))

    def _report(self, text: str) -> StagingReport | None:
        try:
            request = parse_request(text)
        except errors.BadRequest as error:
            self._withdraw(())
            return StagingReport(request_id(text), message=str(error))
        self._withdraw(request.images)
        statuses = tuple(self._stage(request, image) for image in request.images)
        return StagingReport(request_id(text), statuses) if statuses else None

    def _withdraw(self, requested: tuple[str, ...]) -> None:
        """End the pull of an image that is no longer requested, and keep only requested images."""
        self.images.requested = requested
        if self._pull is not None and self._pull.image not in requested:
            self.images.leave(self._pull.image, _OWNER)
            self._pull = None

    def _stage(self, request: StagingRequest, image: str) -> StagedImage:
        if image in self._finished:
            return self._finished[image]
        if self._pull is not None and self._pull.image != image:
            return StagedImage(image, State.WAITING)
        if image in self.images.on_disk:
            self._pull = None
            self._finished[image] = StagedImage(image, State.STAGED, digest=image.partition("@")[2])
            return self._finished[image]
        return self._continue_pull(request, image)

    def _continue_pull(self, request: StagingRequest, image: str) -> StagedImage:
        try:
            if self._pull is not None and self._pull.error is not None:
                raise self._pull.error
            self._check_access(request, image)
            self._pull = self.images.pull(image, _OWNER, limit=_limit(request))
        except errors.BramleyError as error:
            self._pull = None
            status = failed_image(image, error)
            if isinstance(error, errors.Refused):
                self._finished[image] = status
            return status
        return StagedImage(image, State.PULLING, percent=self.images.percent(image))

    def _check_access(self, request: StagingRequest, image: str) -> None:
        model = self.images.models.get(image)
        secret = model.pull_secret if model is not None else ""
        if secret and secret not in request.pull_secrets:
            raise errors.Unavailable(f"the registry refused the pull of {image}")
        if secret and secret not in self.secrets():
            raise SecretForbidden(f"no Pod on this host refers to Secret {secret}")

    async def _publish(self, node: Node, report: StagingReport | None) -> float | None:
        """Write what has changed, and return when to check again."""
        changes, pause = self._changes(node, report.text() if report else "")
        if changes:
            self.observe(await self.kube.merge_patch(Node, self.node, {"metadata": changes}))
        if report is None:
            return pause
        states = {each.state for each in report.images if each.image not in self._finished}
        later = {State.PULLING: self.settings.progress_seconds, State.FAILED: _RETRY_SECONDS}
        pauses = [later[state] for state in states if state in later]
        return min([*pauses, *([] if pause is None else [pause])], default=None)

    def _changes(self, node: Node, text: str) -> tuple[dict[str, Any], float | None]:
        """Return the changes of labels and report that may be written now, and when the others may."""
        changes: dict[str, Any] = {}
        golden = {labels.golden(image): labels.TRUE for image in self.images.on_disk}
        current = {key for key in node.metadata.labels if key.startswith(labels.GOLDEN_PREFIX)}
        new = {key: value for key, value in golden.items() if key not in current}
        if differing := new | dict.fromkeys(sorted(current - golden.keys())):
            changes["labels"] = differing
        if text == node.metadata.annotations.get(names.annotations.STAGED_IMAGES, ""):
            return changes, None
        now = asyncio.get_running_loop().time()
        remaining = self._published_at + self.settings.publish_seconds - now
        if remaining > _MIN_WAIT_SECONDS:
            return changes, remaining
        self._published_at = now
        changes["annotations"] = {names.annotations.STAGED_IMAGES: text or None}
        return changes, None


def _limit(request: StagingRequest) -> float:
    rate = request.megabytes_per_second
    return math.inf if rate is None else rate * _MEGABYTE


def _version(node: Node) -> int:
    text = node.metadata.resource_version
    return int(text) if text.isdecimal() else 0
