"""One turn at one Pod: what its steps share, and how they tell people about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from bramley.agent import vm_names
from bramley.agent.guest.folders import UserData
from bramley.agent.guest.guests import Guests
from bramley.agent.host import Host
from bramley.agent.host_clock import SteadyClock
from bramley.agent.images.image_requests import Answer, ImageRequest
from bramley.agent.ledger import Ledger, VmRecord
from bramley.agent.metrics import AgentMetrics
from bramley.agent.pods import status
from bramley.agent.pods.guest_liveness import Hearing
from bramley.agent.pods.pod_state import Memory, Notes
from bramley.agent.pods.watchers import Departures, Exits
from bramley.agent.runs import Runs
from bramley.agent.slots import Slots
from bramley.agent.tart.driver import Tart
from bramley.api.names import events
from bramley.api.pod import Pod, PodStatus
from bramley.base import errors, log
from bramley.runtime.cache import Cache
from bramley.runtime.events import Recorder
from bramley.runtime.keys import Key
from bramley.runtime.outcome import CheckAgain, Outcome
from bramley.runtime.queue import Trigger
from bramley.runtime.writes import FencedKube


class Images(Protocol):
    """Gives golden bases."""

    def want(self, request: ImageRequest, *, on_change: Callable[[], None]) -> Answer:
        """Return at once whether the image is here; `on_change` is called when the answer may have changed."""
        ...

    async def clone(self, golden: str, vm: str) -> None:
        """Make a VM out of a golden base."""
        ...


class Preflight(Protocol):
    """Looks after the GUI session that VMs need."""

    async def look(self) -> bool:
        """Tell whether a VM could start now."""
        ...

    async def ensure(self, *, seen_within: timedelta = timedelta()) -> None:
        """Return when a VM can start; NoSession if it cannot. What was seen within this time is not looked at again."""
        ...


class Scraping(Protocol):
    """Makes the metrics of guests reachable."""

    async def shown(self, pod: Pod, vm: str, address: str) -> str:
        """Return the address to tell of a Pod: the Node's if its metrics are passed on, else the guest's own."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """All that is needed to make Pods VMs; `host_address` is what statuses tell of the host, `session` is None where no GUI session is looked after."""

    host_address: str
    kube: FencedKube
    pods: Cache[Pod]
    recorder: Recorder
    bell: Trigger
    ledger: Ledger
    tart: Tart
    runs: Runs
    host: Host
    images: Images
    data: UserData
    guests: Guests
    session: Preflight | None
    slots: Slots
    metrics: AgentMetrics
    memory: Memory
    exits: Exits
    departures: Departures
    hearing: Hearing
    clock: SteadyClock
    scraping: Scraping | None = None


@dataclass(frozen=True, slots=True)
class PodRef:
    """One Pod, by uid, and the name of its VM; without the Pod itself when that is gone."""

    key: Key
    uid: str
    vm: str
    pod: Pod | None = None


def pod_ref(pod: Pod, ledger: Ledger) -> PodRef:
    """Return the subject of a Pod; its record says which VM it has, because older agents gave other names."""
    key = Key(pod.namespace or "", pod.name)
    record = ledger.find_by_uid(pod.uid)
    vm = record.vm if record else vm_names.of_pod(key.namespace, key.name, pod.uid)
    return PodRef(key, pod.uid, vm, pod)


def record_ref(record: VmRecord) -> PodRef:
    """Return the subject of a record whose Pod is gone."""
    return PodRef(Key(record.namespace, record.pod), record.uid, record.vm)


logger = log.get(__name__)


@dataclass(slots=True)
class Turn:
    """A subject at hand; `pod` follows what the server answers to our writes."""

    means: Means
    subject: PodRef
    # Read from the server in this turn, not from a cache that may be older than our own past.
    is_confirmed: bool = False
    answer: Answer | None = None

    @property
    def vm(self) -> str:
        """Return the name of the VM."""
        return self.subject.vm

    @property
    def uid(self) -> str:
        """Return the Pod's uid."""
        return self.subject.uid

    @property
    def key(self) -> Key:
        """Return the Pod's key."""
        return self.subject.key

    @property
    def pod(self) -> Pod:
        """Return the Pod; no step that needs it is decided for one that is gone."""
        if self.subject.pod is None:
            raise RuntimeError(f"Pod {self.key} is gone and cannot be spoken of")
        return self.subject.pod

    @property
    def record(self) -> VmRecord:
        """Return the VM's record; no step that needs it is decided without one."""
        record = self.means.ledger.find_by_uid(self.uid)
        if record is None:
            raise RuntimeError(f"Pod {self.key} has no record")
        return record

    @property
    def notes(self) -> Notes:
        """Return what is remembered of the Pod."""
        return self.means.memory.of(self.uid)

    def see(self, pod: Pod | None) -> None:
        """Go on with this state of the Pod, None if it is gone."""
        if pod is None or pod.uid != self.uid:
            self.subject = PodRef(self.key, self.uid, self.vm)
        else:
            self.subject = pod_ref(pod, self.means.ledger)

    def facts(self) -> status.Facts:
        """Return what every status tells."""
        record = self.means.ledger.find_by_uid(self.uid)
        return status.Facts(
            host=self.means.host_address,
            now=self.means.clock.now(),
            vm=record.vm if record else "",
            digest=record.digest if record else "",
        )

    async def say(self, said: PodStatus) -> None:
        """Have the server acknowledge a status; the Pod may turn out to be gone."""
        self.see(await status.publish(self.means.kube, self.pod, said))

    def tell(self, reason: str, message: str) -> None:
        """Tell people what happened."""
        logger.info("Pod goes on", reason=reason, vm=self.vm, told=message)
        self.means.recorder.event(self.pod, reason, message)

    def warn(self, reason: str, message: str) -> None:
        """Tell people what went wrong."""
        self.means.recorder.warning(self.pod, reason, message)

    async def failed(self, error: Exception, retry_after: timedelta | None = None) -> Outcome:
        """Say why there is no VM yet, and when the next try comes."""
        delay = self.means.memory.failed(self.uid) if retry_after is None else retry_after
        self.notes.is_failing = True
        why = str(error) or type(error).__name__
        logger.warning("VM not made", vm=self.vm, error=why, again=delay)
        self.warn(events.CREATE_FAILED, why)
        await self.say(
            status.waiting(
                self.pod,
                self.facts(),
                reason=events.CREATE_FAILED,
                message=why,
                is_failing=True,
            )
        )
        return CheckAgain(delay, why)


Act = Callable[[Turn], Awaitable[Outcome | None]]
"""Takes one step; an outcome ends the turn, None means to look again."""

TROUBLE = (errors.BramleyError, OSError)
