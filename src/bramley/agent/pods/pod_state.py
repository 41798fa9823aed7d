"""The in-memory state of Pods between two syncs. It may be lost: nothing here decides whether a disk may boot.

A killed agent loses all of it. Then a guest is shut down once more, a failed attempt is repeated at once, and an event may be
recorded twice; everything else is in the ledger.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.base.backoff import Backoff
from bramley.base.clock import Clock

RETRIES = Backoff(timedelta(seconds=1), timedelta(minutes=1))


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
    address: str = ""
    recorded: set[str] = field(default_factory=set)
    gone_since: float | None = None
    active_since: float | None = None

    def is_first(self, message: str) -> bool:
        """Return whether this message is new, and remember it."""
        is_new = message not in self.recorded
        self.recorded.add(message)
        return is_new


class PodStates:
    """The states of all Pods, by uid."""

    def __init__(self, *, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._states: dict[str, PodState] = {}

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
        delay = RETRIES.delay(state.failures, self._rng)
        state.not_before = self._clock.monotonic() + delay.total_seconds()
        return delay

    def reset_failures(self, uid: str) -> None:
        """Reset the backoff after a success."""
        state = self.of(uid)
        state.failures, state.not_before, state.is_failing = 0, 0.0, False

    def backoff_left(self, uid: str) -> timedelta:
        """Return how long the next attempt still has to wait."""
        left = self.of(uid).not_before - self._clock.monotonic()
        return timedelta(seconds=max(left, 0.0))
