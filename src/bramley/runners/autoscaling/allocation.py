"""The division of a fleet's slots over its pools, for all pools in one pass. Pure.

Slots are given out in four rounds: load, which every pool gets in full even beyond the capacity, since Pods that wait show
that hosts are missing; the floor; the runners that a pool holds already; and the rest of the target. A round that does not fit
is divided in proportion by largest remainder, so that no slot stays unused while a pool has use for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """What one pool needs: `floor` is beyond `load`, `held` and `target` are totals."""

    pool: str
    load: int
    floor: int
    target: int
    # Runners that stay because the demand has not been low for long enough.
    held: int = 0

    @property
    def rounds(self) -> tuple[int, int, int, int]:
        """Return the number of runners after each round if every round fits."""
        load = min(self.load, self.target)
        floor = min(load + self.floor, self.target)
        held = max(floor, self.held)
        return load, floor, held, max(held, self.target)


def allocate(demands: Iterable[PoolDemand], capacity: int) -> dict[str, int]:
    """Return the runners of each pool: between its load and its target, or what it holds if that is more."""
    rounds = {demand.pool: demand.rounds for demand in demands}
    granted = {pool: load for pool, (load, *_) in rounds.items()}
    for number in range(1, 4):
        free = max(0, capacity - sum(granted.values()))
        missing = {pool: levels[number] - granted[pool] for pool, levels in rounds.items()}
        for pool, share in divide(free, missing).items():
            granted[pool] += share
    return granted


def divide(slots: int, requested: Mapping[str, int]) -> dict[str, int]:
    """Divide slots in proportion to what is requested, never more than that, by largest remainder."""
    total = sum(requested.values())
    if total <= slots:
        return dict(requested)
    exact = {pool: divmod(slots * count, total) for pool, count in requested.items()}
    shares = {pool: whole for pool, (whole, _) in exact.items()}
    # By name among equal remainders, so that the result does not depend on the order of pools.
    by_remainder = sorted(exact, key=lambda pool: (-exact[pool][1], pool))
    for pool in by_remainder[: slots - sum(shares.values())]:
        shares[pool] += 1
    return shares
