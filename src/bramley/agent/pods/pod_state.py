"""What the agent remembers of a Pod between two looks, and may forget: nothing here decides whether a disk boots.

A killed agent loses all of it. Then a guest is asked to shut down once more, a failed try is repeated at once, and an event may
be told twice; all else stands in the ledger.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.base.backoff import Backoff
from bramley.base.clock import Clock

RETRIES = Backoff(timedelta(seconds=1), timedelta(minutes=1))


@dataclass(slots=True)
class Notes:
    """What is remembered of one Pod; times are monotonic seconds."""

    failures: int = 0
    # The last try to make a VM came to nothing, for whatever reason.
    is_failing: bool = False
    not_before: float = 0.0
    asked_at: float | None = None
    claimed_at: float | None = None
    started_at: float | None = None
    address: str = ""
    percent: int = -1
    told: set[str] = field(default_factory=set)
    gone_since: float | None = None
    active_since: float | None = None

    def first_time(self, what: str) -> bool:
        """Tell whether this is new, and remember it."""
        is_new = what not in self.told
        self.told.add(what)
        return is_new


class Memory:
    """The notes of all Pods, by uid."""

    def __init__(self, *, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._notes: dict[str, Notes] = {}

    def of(self, uid: str) -> Notes:
        """Return what is remembered of a Pod."""
        return self._notes.setdefault(uid, Notes())

    def forget(self, uid: str) -> None:
        """Forget a Pod that is gone."""
        self._notes.pop(uid, None)

    def uids(self) -> set[str]:
        """Return the Pods of which anything is remembered."""
        return set(self._notes)

    def failing(self) -> set[str]:
        """Return the Pods whose VM could not be made when that was tried last."""
        return {uid for uid, notes in self._notes.items() if notes.is_failing}

    def failed(self, uid: str) -> timedelta:
        """Note a failed try and return how long the next one has to wait."""
        notes = self.of(uid)
        notes.failures += 1
        delay = RETRIES.delay(notes.failures, self._rng)
        notes.not_before = self._clock.monotonic() + delay.total_seconds()
        return delay

    def succeeded(self, uid: str) -> None:
        """Note that what was tried has worked."""
        notes = self.of(uid)
        notes.failures, notes.not_before, notes.is_failing = 0, 0.0, False

    def hold_off(self, uid: str) -> timedelta:
        """Return how long the next try still has to wait."""
        left = self.of(uid).not_before - self._clock.monotonic()
        return timedelta(seconds=max(left, 0.0))
