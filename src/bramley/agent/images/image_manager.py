"""The image manager: images are requested without waiting, pulled once for all requests, and turned into golden bases by digest.

Golden bases are never run; VMs are cloned from them. A failed clone does not mean that its base is damaged, so a base is never deleted
because of it. Everything that takes time happens in tasks of `run`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from bramley.agent.host import Host
from bramley.agent.images.credentials import SecretForbidden
from bramley.agent.images.disk_space import DiskSpace
from bramley.agent.images.image_requests import (
    Failed,
    ImageRequest,
    ImageState,
    OnChange,
    PullBackoff,
    Pulling,
    PullPolicy,
    Ready,
    RequestOwners,
)
from bramley.agent.images.image_store import ImageStore
from bramley.agent.images.pull_monitor import PullControl
from bramley.agent.images.puller import Puller, PullSpec
from bramley.agent.ledger import ImageRecord, Ledger, VmState
from bramley.agent.tart import references
from bramley.agent.tart.driver import Credentials, Tart
from bramley.agent.tart.failures import NoSpace, TartFailed
from bramley.agent.tart.references import Reference
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.errors import Captured

# How often listeners are notified of progress.
_PROGRESS_PERIOD = timedelta(seconds=10)
_RETRY_REFUSED = timedelta(minutes=10)


@dataclass(slots=True, eq=False)
class Pull:
    """A pull in progress. The first request determines the credentials; later requests for the same image join it."""

    request: ImageRequest
    reference: Reference
    spec: PullSpec
    since: datetime
    listeners: dict[str, OnChange] = field(default_factory=dict)
    # Whether the registry has resolved the tag in this pull.
    is_resolved: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def image(self) -> str:
        """Return the requested name."""
        return self.request.image

    @property
    def percent(self) -> int | None:
        """Return the progress, as far as it is known."""
        return self.spec.control.progress.percent

    @property
    def must_resolve(self) -> bool:
        """Return whether the registry must resolve the tag although it may be cached."""
        return self.request.policy is PullPolicy.ALWAYS and not self.reference.digest

    def join(self, owner: str, on_change: OnChange, control: PullControl | None) -> None:
        """Add a listener; the latest staging request sets the rate limit, and the first Pod removes it."""
        self.listeners[owner] = on_change
        if control is None:
            self.spec.is_staged = False
            self.spec.control.limit = None
            self.spec.control.stop_reason = lambda: None
        elif self.spec.is_staged:
            self.spec.control.limit = control.limit

    def notify(self) -> None:
        """Notify all listeners that the state may have changed."""
        for listener in list(self.listeners.values()):
            listener()


class NotPresent(errors.Refused):
    """The image is not present and its pull policy is Never."""


class CredentialSource(Protocol):
    """Finds credentials for an image."""

    async def find(
        self, reference: Reference, *, namespace: str, secrets: Sequence[str]
    ) -> Credentials | None:
        """Return the first credentials that match, or None; raise SecretForbidden if none match and not all were readable."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class ImageManager:
    """The image manager: returns the state of each requested image and pulls it; see `image_requests` for the states."""

    tart: Tart
    ledger: Ledger
    store: ImageStore
    puller: Puller
    keyring: CredentialSource
    host: Host
    clock: Clock
    backoff: PullBackoff
    space: DiskSpace
    _owners: RequestOwners = field(default_factory=RequestOwners)
    _pulls: dict[str, Pull] = field(default_factory=dict)
    _new_pulls: asyncio.Queue[Pull] = field(default_factory=asyncio.Queue)

    async def run(self) -> None:
        """Pull requested images until cancelled; the next agent continues an interrupted pull."""
        self._finish_interrupted_pulls()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.puller.partials.run())
            while True:
                pull = await self._new_pulls.get()
                # It may have been cancelled, and requested again, while it was queued.
                if pull is self._pulls.get(pull.image):
                    pull.task = group.create_task(self._run_pull(pull), name=pull.image)

    def request(
        self, request: ImageRequest, *, on_change: OnChange, control: PullControl | None = None
    ) -> ImageState:
        """Return the state of an image, and start its pull if needed; with `control` it is staged: no Pod needs it yet."""
        reference = references.parse(request.image)
        if reference is None:
            error = errors.InvalidSpec(f"{request.image!r} is not a valid image reference")
            return Failed(error, _RETRY_REFUSED)
        pull = self._pulls.get(request.image)
        if pull is None:
            state = self._state_without_pull(request, reference)
            if state is not None:
                return state
            pull = self._start(request, reference, control)
        pull.join(request.owner, on_change, control)
        self._owners.record_wait(request.image, request.owner)
        return Pulling(pull.percent, pull.since)

    def present(self) -> Sequence[ImageRecord]:
        """Return the images that a VM can be cloned from without a pull."""
        # An adopted base without references is only deleted.
        return [record for record in self.store.present() if record.references]

    async def clone(self, golden: str, vm: str) -> None:
        """Clone a VM from a golden base. A clone of ours that never ran is replaced; any other VM raises AlreadyExists."""
        # Shared: a clone that hangs must not block those of other Pods. Garbage collection skips a base whose lock is held.
        async with self.store.lock(golden).shared():
            await self._remove_failed_clone(vm)
            await self.space.ensure("clone", expected=0)
            self.space.reclaim_for_growth(golden)
            try:
                await self.tart.clone(golden, vm)
            except NoSpace:
                if not await self._reclaim_space():
                    raise
                # The attempt that ran out of space may have left a folder.
                await self._remove_failed_clone(vm)
                await self.tart.clone(golden, vm)

    async def cancel(self, image: str) -> None:
        """Cancel a staged pull that no Pod waits for, and remove what it left."""
        pull = self._pulls.get(image)
        if pull is None or not pull.spec.is_staged:
            return
        if pull.task is None:
            self._remove_pull(pull)
        else:
            pull.task.cancel()
            # Until tart was killed: only then its partial download can be removed.
            await asyncio.wait([pull.task])
        await self.remove_partial_download(image)

    async def remove_partial_download(self, image: str) -> None:
        """Make tart remove what a killed pull has left: every command except pull and clone does that first."""
        reference = references.parse(image)
        if reference is not None:
            self.puller.partials.drop(reference)
        with contextlib.suppress(errors.BramleyError):
            await self.tart.list()

    def _state_without_pull(
        self, request: ImageRequest, reference: Reference
    ) -> Ready | Failed | None:
        record = self.store.find(reference, request.image)
        owners, image, owner = self._owners, request.image, request.owner
        must_resolve = request.policy is PullPolicy.ALWAYS and not reference.digest
        is_resolved = not must_resolve or owners.is_resolved(image, owner)
        if record is not None and is_resolved and self.store.is_complete(record.golden):
            self.store.record_use(record)
            return Ready(record.golden, record.digest, is_warm=not owners.has_waited(image, owner))
        if request.policy is PullPolicy.NEVER:
            return Failed(NotPresent(f"{image} is not on this host"), _RETRY_REFUSED)
        return self.backoff.of(request)

    def _start(
        self, request: ImageRequest, reference: Reference, control: PullControl | None
    ) -> Pull:
        spec = PullSpec(reference, is_staged=control is not None, control=control or PullControl())
        pull = Pull(request, reference, spec, self.clock.now())
        self._pulls[request.image] = pull
        self.store.pulling.add(request.image)
        self._new_pulls.put_nowait(pull)
        return pull

    async def _run_pull(self, pull: Pull) -> None:
        backoff, owners = self.backoff, self._owners
        try:
            await self._pull_with_progress(pull)
        except errors.BramleyError as error:
            backoff.record_failure(pull.request, error)
        else:
            backoff.reset(pull.request)
            if pull.is_resolved:
                owners.record_resolved(pull.image, pull.listeners)
        finally:
            # Must stay before notify: the listeners request the image again at once and must not find this pull.
            self._remove_pull(pull)
            pull.notify()

    def _remove_pull(self, pull: Pull) -> None:
        self._pulls.pop(pull.image, None)
        self.store.pulling.discard(pull.image)

    async def _pull_with_progress(self, pull: Pull) -> None:
        async with asyncio.TaskGroup() as group:
            progress = group.create_task(_notify_progress(pull))
            # A bug that one image triggers must not end the agent, which all other Pods of this host need.
            with Captured() as caught:
                await self._make_available(pull)
            progress.cancel()
        if isinstance(caught.error, errors.BramleyError):
            raise caught.error
        if caught.error is not None:
            message = f"{pull.image} cannot be made available: {caught.error}"
            raise errors.Unavailable(message) from caught.error

    async def _make_available(self, pull: Pull) -> None:
        record = self._adopted_golden(pull) or await self._pulled_record(pull)
        if not self.store.is_complete(record.golden):
            # Only an incomplete base needs the lock: a complete one may be cloned by a process that hangs.
            async with self.store.lock(record.golden).exclusive():
                await self._make_golden(pull.reference.with_digest(record.digest), record.golden)
        size = self.space.allocated(self.tart.home / "vms" / record.golden)
        self.store.record_golden_complete(record, size=size)

    def _adopted_golden(self, pull: Pull) -> ImageRecord | None:
        """Record the base of this digest that an agent without a ledger made, if there is one."""
        reference = pull.reference
        if not reference.digest or not self.store.has_golden(reference):
            return None
        record = self.store.record_pulled(reference, pull.image, reference.digest)
        return self.store.record_golden(record, reference)

    async def _pulled_record(self, pull: Pull) -> ImageRecord:
        reference, image, tart = pull.reference, pull.image, self.tart
        digest = None if pull.must_resolve else tart.resolve(image)
        if digest is None or not self.store.is_cached(reference, digest):
            await self._pull_image(pull)
            digest = tart.resolve(image)
        if digest is None:
            raise errors.Unavailable(f"{image} is not in tart's cache after its pull")
        record = self.store.record_pulled(reference, image, digest)
        return self.store.record_golden(record, reference)

    async def _pull_image(self, pull: Pull) -> None:
        spec = pull.spec
        forbidden = await self._find_credentials(pull)
        spec.expected_bytes = self.store.last_size(pull.reference)
        # Before the pull: after a crash the ledger must know which cached images are ours.
        self.store.record_pull_start(pull.reference, pull.image)
        try:
            await self.puller.fetch(spec)
        except (errors.BramleyError, asyncio.CancelledError) as error:
            self.store.drop_pending(pull.image)
            # A subclass names another cause, such as a full disk.
            if forbidden is not None and type(error) is TartFailed:
                raise SecretForbidden(f"{forbidden}. Without credentials: {error}") from error
            raise
        pull.is_resolved = True

    async def _find_credentials(self, pull: Pull) -> SecretForbidden | None:
        """Set the credentials of a pull; return the likely cause if it fails without them."""
        request = pull.request
        try:
            pull.spec.credentials = await self.keyring.find(
                pull.reference, namespace=request.namespace, secrets=request.pull_secrets
            )
        except SecretForbidden as error:
            # The image may be public.
            return error
        return None

    async def _make_golden(self, source: str, golden: str) -> None:
        tart = self.tart
        # Another pull of the same digest may have made the base while this one waited for the lock.
        if self.store.is_complete(golden):
            return
        # A killed agent may have left an incomplete one, which would block the clone.
        await self._remove_partial(golden)
        await self.space.ensure("clone", expected=0)
        try:
            await tart.clone(source, golden)
        except NoSpace:
            await self._remove_partial(golden)
            if not await self._reclaim_space():
                raise
            await tart.clone(source, golden)
        except errors.BramleyError:
            await self._remove_partial(golden)
            raise

    async def _remove_partial(self, vm: str) -> None:
        """Remove an incomplete base; a complete one is kept, whatever failed."""
        if not self.store.is_complete(vm) and self.store.has_folder(vm):
            await self.tart.delete(vm)

    async def _reclaim_space(self) -> bool:
        return self.space.reclaim is not None and await self.space.reclaim()

    async def _remove_failed_clone(self, vm: str) -> None:
        if not self.store.has_folder(vm):
            return
        record = self.ledger.vm(vm)
        is_ours = record is not None and record.state is VmState.CLAIMED
        if not is_ours or self.tart.is_running(vm, self.host):
            raise errors.AlreadyExists(f"VM {vm} exists and is not a clone that may be replaced")
        await self.tart.delete(vm)

    def _finish_interrupted_pulls(self) -> None:
        """Record the result of pulls that ended after their agent; others may still be running."""
        for image in self.store.interrupted_pulls():
            reference, digest = references.parse(image), self.tart.resolve(image)
            if reference is not None and digest is not None:
                self.store.finish_interrupted(reference, image, digest)


async def _notify_progress(pull: Pull) -> None:
    notified: int | None = None
    while True:
        await asyncio.sleep(_PROGRESS_PERIOD.total_seconds())
        if pull.percent != notified:
            notified = pull.percent
            pull.notify()
