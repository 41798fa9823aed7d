"""The dependencies of the Pod controller, the in-memory state of Pods between two syncs, and the context of one sync.

The in-memory state may be lost: nothing in it decides whether a disk may boot. After a restart of the agent a guest is shut down
once more, a failed attempt is repeated at once, and an event may be recorded twice; everything else is in the ledger.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.agent import vm_names
from bramley.agent.dhcp_leases import DhcpLeases
from bramley.agent.guest.folders import UserData
from bramley.agent.guest.guests import Guests
from bramley.agent.gui_session import GuiSession
from bramley.agent.host import Host
from bramley.agent.host_clock import HostClock
from bramley.agent.images.image_manager import ImageManager
from bramley.agent.images.image_requests import ImageState
from bramley.agent.ledger import Ledger, VmRecord
from bramley.agent.metrics import AgentMetrics
from bramley.agent.metrics_proxy import MetricsProxy
from bramley.agent.pods import status
from bramley.agent.pods.guest_liveness import GuestLiveness
from bramley.agent.pods.watchers import PodDeletionWatcher, VmExitWatcher
from bramley.agent.runs import Runs
from bramley.agent.settings import VM_BOOT_TIMEOUT
from bramley.agent.slots import Slots
from bramley.agent.tart.driver import Tart
from bramley.api.names import events
from bramley.api.pod import Pod, PodStatus
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.runtime.cache import Cache
from bramley.runtime.events import Recorder
from bramley.runtime.keys import Key
from bramley.runtime.outcome import CheckAgain, Outcome
from bramley.runtime.queue import Trigger
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)

RETRY_BACKOFF = Backoff(timedelta(seconds=1), timedelta(minutes=1))


@dataclass(slots=True)
class PodState:
    """The state of one Pod; times are monotonic seconds."""

    failures: int = 0
    # The last attempt to create a VM failed, for whatever reason.
    is_failing: bool = False
    not_before: float = 0.0
    shutdown_requested_at: float | None = None
    claimed_at: float | None = None
    started_at: float | None = None
    # The start of a VM that an earlier agent started.
    booting_since: float | None = None
    address: str = ""
    # The last look-up has shown that the VM has no address; one that failed shows nothing.
    lacks_address: bool = False
    address_error: str = ""
    recorded: set[str] = field(default_factory=set)
    gone_since: float | None = None
    active_since: float | None = None

    def record_once(self, message: str) -> bool:
        """Store the message and return whether it is new."""
        is_new = message not in self.recorded
        self.recorded.add(message)
        return is_new


@dataclass(frozen=True, slots=True)
class PodStates:
    """The states of all Pods, by uid."""

    clock: Clock
    rng: random.Random
    _states: dict[str, PodState] = field(default_factory=dict)

    def of(self, uid: str) -> PodState:
        """Return the state of a Pod."""
        return self._states.setdefault(uid, PodState())

    def forget(self, uid: str) -> None:
        """Drop the state of a Pod that is gone."""
        self._states.pop(uid, None)

    def uids(self) -> set[str]:
        """Return the Pods that have a state."""
        return set(self._states)

    def failing_uids(self) -> set[str]:
        """Return the Pods whose last attempt to create a VM failed."""
        return {uid for uid, state in self._states.items() if state.is_failing}

    def record_failure(self, uid: str) -> timedelta:
        """Count a failed attempt and return the backoff before the next one."""
        state = self.of(uid)
        state.failures += 1
        delay = RETRY_BACKOFF.delay(state.failures, self.rng)
        state.not_before = self.clock.monotonic() + delay.total_seconds()
        return delay

    def reset_failures(self, uid: str) -> None:
        """Reset the backoff after a success."""
        state = self.of(uid)
        state.failures, state.not_before, state.is_failing = 0, 0.0, False

    def backoff_left(self, uid: str) -> timedelta:
        """Return how long the next attempt still has to wait."""
        seconds = self.of(uid).not_before - self.clock.monotonic()
        return timedelta(seconds=max(seconds, 0.0))


@dataclass(slots=True, kw_only=True)
class PodDeps:
    """The dependencies of the Pod controller. `gui_session` is None where no GUI session is managed."""

    node: str
    host_address: str
    kube: FencedKube
    pods: Cache[Pod]
    recorder: Recorder
    ledger: Ledger
    tart: Tart
    runs: Runs
    host: Host
    images: ImageManager
    data: UserData
    guests: Guests
    gui_session: GuiSession | None
    slots: Slots
    metrics: AgentMetrics
    clock: HostClock
    rng: random.Random
    metrics_proxy: MetricsProxy | None = None
    dhcp_leases: DhcpLeases | None = None
    # A VM without an address after this time is discarded.
    boot_timeout: timedelta = VM_BOOT_TIMEOUT
    trigger: Trigger = field(default_factory=Trigger)
    states: PodStates = field(init=False)
    exit_watcher: VmExitWatcher = field(init=False)
    deletion_watcher: PodDeletionWatcher = field(init=False)
    liveness: GuestLiveness = field(init=False)

    def __post_init__(self) -> None:
        self.states = PodStates(clock=self.clock, rng=self.rng)
        self.exit_watcher = VmExitWatcher(self.runs, self.trigger)
        self.deletion_watcher = PodDeletionWatcher(self.pods)
        self.liveness = GuestLiveness(self.ledger, self.trigger)


@dataclass(frozen=True, slots=True)
class PodRef:
    """A Pod by uid, and the name of its VM; `pod` is None when the Pod is gone and only its record is left."""

    key: Key
    uid: str
    vm: str
    pod: Pod | None = None


def pod_ref(pod: Pod, ledger: Ledger) -> PodRef:
    """Return the reference of a Pod; the VM's name is taken from the record, because older agents named VMs differently."""
    key = Key(pod.namespace or "", pod.name)
    record = ledger.find_by_uid(pod.uid)
    vm = record.vm if record else vm_names.of_pod(key.namespace, key.name, pod.uid)
    return PodRef(key, pod.uid, vm, pod)


def record_ref(record: VmRecord) -> PodRef:
    """Return the reference of a record whose Pod is gone."""
    return PodRef(Key(record.namespace, record.pod), record.uid, record.vm)


@dataclass(slots=True)
class PodContext:
    """One sync of one Pod; `ref.pod` is replaced by what the server returns for our writes."""

    deps: PodDeps
    ref: PodRef
    # Whether the Pod was read from the server in this sync. A cache may be older than what an earlier agent wrote.
    is_live_read: bool = False
    image: ImageState | None = None

    @property
    def vm(self) -> str:
        """Return the name of the VM."""
        return self.ref.vm

    @property
    def uid(self) -> str:
        """Return the Pod's uid."""
        return self.ref.uid

    @property
    def key(self) -> Key:
        """Return the Pod's key."""
        return self.ref.key

    @property
    def pod(self) -> Pod:
        """Return the Pod; no step that needs it is decided for a Pod that is gone."""
        if self.ref.pod is None:
            raise RuntimeError(f"Pod {self.key} is gone")
        return self.ref.pod

    @property
    def record(self) -> VmRecord:
        """Return the VM's record; no step that needs it is decided without one."""
        record = self.deps.ledger.find_by_uid(self.uid)
        if record is None:
            raise RuntimeError(f"Pod {self.key} has no record")
        return record

    @property
    def state(self) -> PodState:
        """Return the in-memory state of the Pod."""
        return self.deps.states.of(self.uid)

    def replace_pod(self, pod: Pod | None) -> None:
        """Continue with this version of the Pod; None, or a Pod of another uid, means that it is gone."""
        if pod is None or pod.uid != self.uid:
            self.ref = PodRef(self.key, self.uid, self.vm)
        else:
            self.ref = pod_ref(pod, self.deps.ledger)

    def status_facts(self) -> status.Facts:
        """Return what every status contains."""
        record = self.deps.ledger.find_by_uid(self.uid)
        return status.Facts(
            host=self.deps.host_address,
            now=self.deps.clock.now(),
            vm=record.vm if record else "",
            digest=record.digest if record else "",
        )

    async def publish_status(self, pod_status: PodStatus) -> None:
        """Write a status and wait for the server's acknowledgement; afterwards the Pod may be known to be gone."""
        self.replace_pod(await status.publish(self.deps.kube, self.pod, pod_status))

    async def publish_waiting(self, reason: str, message: str) -> None:
        """Publish that the VM does not run yet, and why."""
        await self.publish_status(
            status.waiting(self.pod, self.status_facts(), reason=reason, message=message)
        )

    def record_event(self, reason: str, message: str) -> None:
        """Record a Normal event and log it."""
        logger.info("Recording Pod event", reason=reason, vm=self.vm, text=message)
        self.deps.recorder.event(self.pod, reason, message)

    def record_warning(self, reason: str, message: str) -> None:
        """Record a Warning event."""
        self.deps.recorder.warning(self.pod, reason, message)

    async def report_failure(
        self, error: Exception, retry_after: timedelta | None = None
    ) -> Outcome:
        """Publish why there is no VM yet, and return when to retry."""
        delay = self.deps.states.record_failure(self.uid) if retry_after is None else retry_after
        self.state.is_failing = True
        message = str(error) or type(error).__name__
        logger.warning("VM creation failed", vm=self.vm, error=message, retry_after=delay)
        self.record_warning(events.CREATE_FAILED, message)
        failed = status.waiting(
            self.pod,
            self.status_facts(),
            reason=events.CREATE_FAILED,
            message=message,
            is_failing=True,
        )
        await self.publish_status(failed)
        return CheckAgain(delay, message)


StepFunction = Callable[[PodContext], Awaitable[Outcome | None]]
"""Executes one step; an outcome ends the sync, None means to observe and decide again."""

EXPECTED_ERRORS = (errors.BramleyError, OSError)
