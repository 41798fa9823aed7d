"""One modelled VM: what the agent of a Mac does for one Pod, from the finalizer to the exit.

The order of writes is the agent's: the finalizer first, then the states of the start, the exit before anything is released, and
the finalizer last. The deletion of a Pod interrupts every wait. The host's images decide when a pull ends, the dispatch model when
a guest exits.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Protocol

from bramley.agent import vm_names
from bramley.agent.pods import status
from bramley.api.names import agent, events
from bramley.api.pod import Pod
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.sim.fleet.images import HostImages, ImageModel, Pull
from bramley.sim.fleet.pod_writer import PodGone, PodWriter

logger = log.get(__name__)

_FAILED = status.Exit(status.FAILED, 1, agent.ERROR)
_REBOOTED = status.Exit(status.FAILED, 1, agent.HOST_REBOOTED)
_STOPPED = status.Exit(status.FAILED, status.SHUT_DOWN_CODE, agent.STOPPED)
_SUCCEEDED = status.Exit(status.SUCCEEDED, 0, agent.COMPLETED)
_ENDED = frozenset({status.SUCCEEDED, status.FAILED})
_REASONS_OF_THE_POD = frozenset({agent.STOPPED, agent.HOST_REBOOTED})
_UNKNOWN_IMAGE = ImageModel(exists=False)


@dataclass(frozen=True, slots=True)
class VmSettings:
    """How long the steps of a VM take, in seconds."""

    clone: float = 1.0
    halt: float = 5.0
    boot_timeout: float = 300.0
    retry: float = 30.0


class Guests(Protocol):
    """Gives jobs to guests, and lets them exit; see `dispatch`."""

    def guest_polls(self, vm: ModelledVm) -> None:
        """Handle the first poll of a guest."""

    def guest_changed(self, vm: ModelledVm) -> None:
        """Handle a change of the Pod of a guest."""

    def guest_gone(self, vm: ModelledVm) -> None:
        """Handle the end of a VM, whatever its reason."""


class _Deleted(Exception):
    """The Pod is being deleted."""


@dataclass(slots=True, eq=False)
class ModelledVm:
    """The VM of one Pod."""

    writer: PodWriter
    _: KW_ONLY
    images: HostImages
    clock: Clock
    rng: random.Random
    ip: str
    host_ip: str
    guests: Guests | None = None
    settings: VmSettings = field(default_factory=VmSettings)
    # Set for a Pod that ran before its host was started: the VM does not run any more.
    was_rebooted: bool = False
    _is_responsive: bool = True
    _started_at: datetime | None = None
    _exit_code: int | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pod(self) -> Pod:
        """Return the newest known state of the Pod."""
        return self.writer.pod

    @property
    def image(self) -> str:
        """Return the image of the Pod."""
        return self.pod.spec.containers[0].image

    @property
    def model(self) -> ImageModel:
        """Return how the image behaves."""
        return self.images.models.get(self.image, _UNKNOWN_IMAGE)

    def notify(self) -> None:
        """Check again what the VM waits for."""
        self._changed.set()

    def observe(self, pod: Pod) -> None:
        """Store the Pod as last read."""
        if self.writer.observe(pod):
            self._changed.set()
            if self.guests is not None:
                self.guests.guest_changed(self)

    def exit(self, code: int) -> None:
        """End the guest with this exit code."""
        self._exit_code = code
        self._changed.set()

    def set_responsive(self, *, is_responsive: bool) -> None:
        """Set whether the guest responds to the agent."""
        self._is_responsive = is_responsive
        self._changed.set()

    async def run(self) -> None:
        """Run the VM until its Pod is finished or gone."""
        image = self.image
        self.images.use(image)
        try:
            await self._run()
        except PodGone:
            logger.debug("Pod of a modelled VM is gone", pod=self.pod.name)
        finally:
            self.images.leave(image, self.pod.uid)
            self.images.release(image)
            if self.guests is not None:
                self.guests.guest_gone(self)

    async def _run(self) -> None:
        try:
            exit = await self._live()
        except _Deleted:
            exit = await self._stop()
        if exit is not None and self.pod.status.phase not in _ENDED:
            await self._publish_exit(exit)
        await self.writer.remove_finalizer()
        if self.pod.deleting:
            await self.writer.finish_deletion()

    async def _live(self) -> status.Exit | None:
        if self.pod.status.phase in _ENDED:
            return None
        if self.pod.deleting:
            raise _Deleted
        if self.pod.status.phase != status.RUNNING:
            await self.writer.add_finalizer()
            return await self._start() or await self._serve()
        self._started_at = _started_at(self.pod)
        return _REBOOTED if self.was_rebooted else await self._serve()

    async def _start(self) -> status.Exit | None:
        """Bring the VM up, again and again until it has an address; return how it ended, if it did."""
        exit: status.Exit | None = None
        while exit is None and self.pod.status.phase != status.RUNNING:
            await self._await_image()
            await self._wait(self.settings.clone)
            exit = await self._boot()
        return exit

    async def _await_image(self) -> None:
        while self.image not in self.images.on_disk:
            try:
                pull = self.images.pull(self.image, self.pod.uid)
                await self._publish_waiting(events.PULLING_IMAGE, f"Pulling image {self.image}")
                await self._await_pull(pull)
            except errors.BramleyError as error:
                await self._publish_waiting(events.CREATE_FAILED, str(error), is_failing=True)
                await self._wait(self.settings.retry)

    async def _await_pull(self, pull: Pull) -> None:
        await self._wait(None, lambda: pull.is_finished)
        if pull.error is not None:
            raise pull.error

    async def _boot(self) -> status.Exit | None:
        """Start the VM and wait for its address; return how it ended, if it did."""
        self._started_at = self.clock.now()
        facts = self._facts()
        await self.writer.publish(status.running(self.pod, facts, started_at=self._started_at))
        model, timeout = self.model, self.settings.boot_timeout
        boot = model.boot_seconds * self.rng.lognormvariate(0.0, model.boot_noise)
        boot = boot if model.is_ready else math.inf
        if model.exits_after is not None and model.exits_after <= min(boot, timeout):
            await self._wait(model.exits_after)
            return _FAILED
        await self._wait(min(boot, timeout))
        if boot <= timeout:
            await self._publish_running()
        else:
            message = f"the guest has no address after {timeout:g} s"
            await self._publish_waiting(events.BOOT_TIMED_OUT, message, is_failing=True)
        return None

    async def _serve(self) -> status.Exit:
        """Follow a guest that has an address until it exits."""
        if self.guests is not None and self.model.polls:
            await self._follow(self.model.poll_delay_seconds)
            if not self._has_exited():
                self.guests.guest_polls(self)
        await self._follow(math.inf)
        return _SUCCEEDED if self._exit_code == 0 else _FAILED

    async def _follow(self, seconds: float) -> None:
        """Publish the readiness of the guest for this long, or until it exits."""
        loop = asyncio.get_running_loop()
        until = loop.time() + min(seconds, self._seconds_left())
        published: bool | None = None
        while not self._has_exited() and (published is None or loop.time() < until):
            if published is not self._is_responsive and published is not None:
                await self._publish_running()
            published = shown = self._is_responsive
            await self._wait(
                until - loop.time(),
                lambda shown=shown: self._has_exited() or shown is not self._is_responsive,  # type: ignore[misc]
            )

    def _seconds_left(self) -> float:
        """Return when the guest exits by itself."""
        after = self.model.exits_after
        if after is None or self._started_at is None:
            return math.inf
        passed = (self.clock.now() - self._started_at).total_seconds()
        return max(0.0, after - passed)

    def _has_exited(self) -> bool:
        return self._exit_code is not None or self._seconds_left() <= 0

    async def _stop(self) -> status.Exit | None:
        """Stop the VM of a deleted Pod; one that was never started has no exit."""
        if self._started_at is None:
            return None
        await asyncio.sleep(self.settings.halt)
        if self.guests is not None:
            self.guests.guest_gone(self)
        return _SUCCEEDED if self._exit_code == 0 else _STOPPED

    async def _wait(
        self, seconds: float | None, condition: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait this long, or until the condition holds; raise when the Pod is being deleted."""
        pause = None if seconds is None or math.isinf(seconds) else max(0.0, seconds)
        try:
            async with asyncio.timeout(pause):
                while not (self.pod.deleting or condition()):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return
        if self.pod.deleting:
            raise _Deleted

    async def _publish_waiting(
        self, reason: str, message: str, *, is_failing: bool = False
    ) -> None:
        facts = self._facts()
        await self.writer.publish(
            status.waiting(self.pod, facts, reason=reason, message=message, is_failing=is_failing)
        )

    async def _publish_running(self) -> None:
        new = status.running(
            self.pod,
            self._facts(),
            started_at=self._started_at,
            ip=self.ip,
            is_unresponsive=not self._is_responsive,
        )
        await self.writer.publish(new)

    async def _publish_exit(self, exit: status.Exit) -> None:
        new = status.terminated(
            self.pod,
            self._facts(),
            exit=exit,
            started_at=self._started_at,
            finished_at=self.clock.now(),
            reason=exit.reason if exit.reason in _REASONS_OF_THE_POD else agent.RUN_EXITED,
            message=f"the VM ended with exit code {exit.code}",
        )
        await self.writer.publish(new)

    def _facts(self) -> status.Facts:
        pod = self.pod
        vm = vm_names.of_pod(pod.namespace or "", pod.name, pod.uid) if self._started_at else ""
        digest = self.image.partition("@")[2]
        return status.Facts(self.host_ip, self.clock.now(), vm=vm, digest=digest)


def _started_at(pod: Pod) -> datetime | None:
    states = [each.state.running for each in pod.status.container_statuses]
    return next((each.started_at for each in states if each is not None), None)
