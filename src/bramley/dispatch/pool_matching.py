"""Which pool runs a job, by its labels; pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolLabels:
    """The labels of one pool: those that select it, and those that jobs may have in addition."""

    pool: str
    dispatch_label: str
    aliases: tuple[str, ...] = ()
    runner_labels: tuple[str, ...] = ()

    @property
    def selectors(self) -> frozenset[str]:
        """Return the labels that select this pool, in lower case."""
        return _lower((self.dispatch_label, *self.aliases))

    def accepts(self, labels: frozenset[str]) -> bool:
        """Return whether a job with these labels, in lower case, runs on this pool."""
        others = labels - self.selectors
        return others != labels and others <= _lower(self.runner_labels)


@dataclass(frozen=True, slots=True)
class Route:
    """The pool of a job and its priority there; without a pool, `problem` says why."""

    pool: str
    problem: str = ""
    priority: int = 0


def route(labels: Sequence[str], pools: Sequence[PoolLabels], *, priority: int = 0) -> Route:
    """Return the only pool that accepts a job with these labels, or the reason why there is none."""
    requested = _lower(labels)
    matching = sorted(pool.pool for pool in pools if pool.accepts(requested))
    if len(matching) == 1:
        return Route(matching[0], priority=priority)
    if matching:
        return Route("", f"the pools {' and '.join(matching)} both match; change a dispatchLabel")
    return Route("", _mismatch(requested, pools))


def _mismatch(requested: frozenset[str], pools: Sequence[PoolLabels]) -> str:
    for pool in sorted(pools, key=lambda pool: pool.pool):
        if requested & pool.selectors:
            unknown = sorted(requested - pool.selectors - _lower(pool.runner_labels))
            hint = _suggestion(unknown, _lower(pool.runner_labels))
            return f"pool {pool.pool} does not have the label {', '.join(unknown)}{hint}"
    if not requested:
        return "the job has no labels"
    selectors = frozenset[str]().union(*(pool.selectors for pool in pools))
    hint = _suggestion(sorted(requested), selectors)
    return f"no pool has a dispatchLabel among {', '.join(sorted(requested))}{hint}"


def _suggestion(unknown: Iterable[str], known: Iterable[str]) -> str:
    candidates = sorted(known)
    for label in unknown:
        if nearest := difflib.get_close_matches(label, candidates, n=1, cutoff=0.5):
            return f"; the nearest label is {nearest[0]}"
    return ""


def _lower(labels: Iterable[str]) -> frozenset[str]:
    return frozenset(label.lower() for label in labels)
