"""The verdict over one history: all breaches by the name of their check, or that the run proves nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.history_checker import moments, revisions, streams
from tests.history_checker.chains import chains
from tests.history_checker.history import History

MOST_SHOWN = 5


class ProvesNothing(AssertionError):
    """The run held too little traffic to catch a bug, so its success would mean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Least:
    """What a run must contain to count."""

    acknowledged: int = 100
    # Answered calls of any kind.
    per_second: float = 100.0
    refused: int = 1
    unknown: int = 0
    events: int = 100
    resumed: int = 0
    bookmarks: int = 0


def linearizable(history: History) -> Iterator[str]:
    """Each object's writes, reads and refusals have an order that real time allows."""
    reads = moments.reads_of(history)
    for chain in chains(history):
        yield from chain.breaches
        writes = [write for write in history.writes if write.key == chain.key]
        yield from moments.breaches(chain, reads[chain.key], writes)


CHECKS: dict[str, Callable[[History], Iterator[str]]] = {
    "one content each": revisions.one_content_each,
    "growing revisions": revisions.growing,
    "acknowledged survive": revisions.acknowledged_survive,
    "lists are true": revisions.lists_are_true,
    "linearizable": linearizable,
    "ordered": streams.ordered,
    "unique": streams.unique,
    "newer than requested": streams.newer_than_requested,
    "complete": streams.complete,
    "resumed in place": streams.resumed_in_place,
    "truthful bookmarks": streams.truthful_bookmarks,
    "truthful verbs": streams.truthful_verbs,
    "caused": streams.caused,
    "replayed": streams.replayed,
}


def judge(history: History) -> dict[str, list[str]]:
    """Return the breaches of each check that found some."""
    found = {name: list(check(history)) for name, check in CHECKS.items()}
    return {name: breaches[:MOST_SHOWN] for name, breaches in found.items() if breaches}


def require_traffic(history: History, least: Least, *, seconds: float) -> None:
    """Raise ProvesNothing unless the run was busy enough to mean something."""
    outcomes = Counter(write.outcome for write in history.writes)
    items = [item for stream in history.streams for item in stream.items]
    events = sum(1 for stream in history.streams for _ in stream.events)
    resumed = sum(1 for stream in history.streams if stream.base is None)
    found = {
        "acknowledged": outcomes["acknowledged"],
        "per_second": (outcomes["acknowledged"] + outcomes["refused"] + len(history.reads))
        / seconds,
        "refused": outcomes["refused"],
        "unknown": outcomes["unknown"],
        "events": events,
        "resumed": resumed,
        "bookmarks": len(items) - events,
    }
    short = {name: value for name, value in found.items() if value < getattr(least, name)}
    if short:
        raise ProvesNothing(f"too little of {short}, {least} is required")
