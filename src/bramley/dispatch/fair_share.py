"""Which account gets the next free Pod of a pool; pure.

An account's share is the number of its Pods, with one more, divided by its weight; the smallest share is served first: one job of a second
account gets the next Pod, however many jobs another account has queued. Time alone does not change that order. An account that
waits while others are served gains one Pod for each `TURNS_PER_POD` claims, so a stream of new accounts starves no account.

Within an account, jobs are ordered by `rank`: the time they were queued, earlier by `PRIORITY_STEP` for each level of priority.
A job of low priority is therefore delayed by a bounded time only, and the order can be read from an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bramley.base.errors import BadConfiguration

TURNS_PER_POD = 32
PRIORITY_STEP = timedelta(minutes=10)
MAX_PRIORITY = 100


@dataclass(frozen=True, slots=True)
class Policy:
    """The weights and limits of accounts, and the priorities of labels; names are in lower case."""

    weights: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for account, weight in self.weights.items():
            if not 0 < weight <= 1_000_000:
                raise BadConfiguration(f"the weight of account {account} is not above 0")
        for account, limit in self.limits.items():
            if limit < 0:
                raise BadConfiguration(f"the limit of account {account} is negative")
        for label, priority in self.priorities.items():
            if abs(priority) > MAX_PRIORITY:
                raise BadConfiguration(f"the priority of label {label} exceeds {MAX_PRIORITY}")

    def priority(self, labels: Iterable[str]) -> int:
        """Return the highest priority among the labels, 0 if none has one."""
        known = [
            self.priorities[label.lower()] for label in labels if label.lower() in self.priorities
        ]
        return max(known, default=0)

    def headroom(self, account: str, active: int) -> int | None:
        """Return how many more Pods the account may have, or None without a limit."""
        limit = self.limits.get(account)
        return None if limit is None else max(limit - active, 0)


NO_POLICY = Policy()


@dataclass(frozen=True, slots=True)
class Candidate:
    """An account with a queued job in a pool."""

    account: str
    active: int  # its Pods with a claimed or running job in this pool
    active_everywhere: int
    rank: int  # of its first job
    turns_waited: int  # claims in the pool since it was last served and its first job was queued
    served_turn: int  # of the pool, -1 if never


def order(candidates: Sequence[Candidate], policy: Policy) -> list[str]:
    """Return the accounts that may get a Pod, the next one first."""
    allowed = [
        candidate
        for candidate in candidates
        if policy.headroom(candidate.account, candidate.active_everywhere) != 0
    ]
    allowed.sort(key=lambda candidate: _sort_key(candidate, policy))
    return [candidate.account for candidate in allowed]


def _sort_key(candidate: Candidate, policy: Policy) -> tuple[float, int, int, str]:
    # The share that the account would have with one more Pod, so that weights also count between accounts without any.
    share = (candidate.active + 1) / policy.weights.get(candidate.account, 1.0)
    share -= candidate.turns_waited / TURNS_PER_POD
    # Equal shares take turns; the rank decides only between accounts that were never served.
    return share, candidate.served_turn, candidate.rank, candidate.account


def rank(queued_at: datetime, priority: int) -> int:
    """Return the position of a job among those of its account, in milliseconds; the smallest is the first."""
    return round((queued_at - priority * PRIORITY_STEP).timestamp() * 1000)
