"""What revisions promise: one content each, growing with real time, and lists that are true at theirs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history_checker.history import ABSENT, Bookmark, Fact, History


def one_content_each(history: History) -> Iterator[str]:
    """A revision is never given to two contents."""
    first: dict[int, Fact] = {}
    for fact in sorted(set(history.facts()), key=lambda fact: (fact.rv, fact.key, str(fact.value))):
        known = first.setdefault(fact.rv, fact)
        if known != fact:
            yield f"revision {fact.rv} is {known.key}={known.value} and {fact.key}={fact.value}"


def growing(history: History) -> Iterator[str]:
    """A write that was called after a revision had been observed gets a larger one."""
    observed = sorted(_observations(history))
    newest, index = 0, 0
    for write in sorted(history.writes, key=lambda write: write.called):
        while index < len(observed) and observed[index][0] < write.called:
            newest = max(newest, observed[index][1])
            index += 1
        if write.outcome == "acknowledged" and write.rv is not None and write.rv <= newest:
            yield f"{write.key}: got revision {write.rv} after {newest} had been observed"


def acknowledged_survive(history: History) -> Iterator[str]:
    """What any client observed is in the last listing, unless something newer replaced it."""
    last = history.listings[-1]
    newest: dict[str, Fact] = {}
    for fact in history.facts():
        if fact.key not in newest or fact.rv > newest[fact.key].rv:
            newest[fact.key] = fact
    for key, fact in sorted(newest.items()):
        rv, value = last.states.get(key, (ABSENT, None))
        if rv < fact.rv and fact.value is not None and not _may_be_removed(history, fact):
            yield f"{key}: revision {fact.rv} was observed, but the last listing has {rv}"
        if fact.value is None and value is not None:
            yield f"{key}: was removed by revision {fact.rv}, but is back as {rv}"
    if newest and max(fact.rv for fact in newest.values()) > last.rv:
        yield f"the last listing is at {last.rv}, behind revisions that were observed"


def lists_are_true(history: History) -> Iterator[str]:
    """A list holds each object as of the list's own revision."""
    facts = sorted(set(history.facts()), key=lambda fact: fact.rv, reverse=True)
    newest: dict[str, Fact] = {}
    for listing in sorted(history.listings, key=lambda listing: listing.rv):
        while facts and facts[-1].rv <= listing.rv:
            fact = facts.pop()
            newest[fact.key] = fact
        for key, (rv, _) in listing.states.items():
            if rv > listing.rv:
                yield f"the list at {listing.rv} holds {key} at {rv}"
            elif key in newest and newest[key].rv != rv:
                yield f"the list at {listing.rv} holds {key} at {rv}, not at {newest[key].rv}"


def _may_be_removed(history: History, fact: Fact) -> bool:
    return any(
        write.key == fact.key
        and write.value is None
        and write.outcome != "refused"
        and write.expected == fact.rv
        for write in history.writes
    )


def _observations(history: History) -> Iterator[tuple[float, int]]:
    """Return the times at which clients observed revisions."""
    for write in history.writes:
        if write.outcome == "acknowledged" and write.rv is not None:
            yield write.returned, write.rv
    for listing in history.listings:
        yield listing.returned, listing.rv
    for stream in history.streams:
        for item in stream.items:
            yield item.at, item.rv if isinstance(item, Bookmark) else item.fact.rv
