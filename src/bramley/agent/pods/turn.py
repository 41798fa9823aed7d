"""One turn at one Pod: what its steps share, and how they tell people about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from bramley.agent.images.image_requests import Answer
from bramley.agent.ledger.records import VmRecord
from bramley.agent.pods import status, subject
from bramley.agent.pods.means import Means
from bramley.agent.pods.memory import Notes
from bramley.agent.pods.subject import Subject
from bramley.api.names import events
from bramley.api.pod import Pod, PodStatus
from bramley.base import errors, log
from bramley.runtime.keys import Key
from bramley.runtime.outcome import CheckAgain, Outcome

logger = log.get(__name__)


@dataclass(slots=True)
class Turn:
    """A subject at hand; `pod` follows what the server answers to our writes."""

    means: Means
    subject: Subject
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
            self.subject = Subject(self.key, self.uid, self.vm)
        else:
            self.subject = subject.of_pod(pod, self.means.ledger)

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
