"""The nine promises of a watch, each checked by itself over all streams of a watcher."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.history_checker.history import Bookmark, Event, History, Stream


def ordered(history: History) -> Iterator[str]:
    """Events come in growing revisions within a stream."""
    for stream in history.streams:
        last = stream.since
        for event in stream.events:
            if event.fact.rv < last:
                yield f"{stream.watcher}: revision {event.fact.rv} came after {last}"
            last = max(last, event.fact.rv)


def unique(history: History) -> Iterator[str]:
    """No watcher gets a revision twice, also not after it resumed."""
    for watcher, streams in _by_watcher(history).items():
        given: set[int] = set()
        for stream in streams:
            if stream.base is not None:
                given.clear()
            for event in stream.events:
                if event.fact.rv in given:
                    yield f"{watcher}: revision {event.fact.rv} came twice"
                given.add(event.fact.rv)


def newer_than_requested(history: History) -> Iterator[str]:
    """A stream holds only what is newer than where it began."""
    for stream in history.streams:
        for event in stream.events:
            if event.fact.rv <= stream.since:
                yield f"{stream.watcher}: requested since {stream.since}, got {event.fact.rv}"


def complete(history: History) -> Iterator[str]:
    """A stream omits nothing between where it began and the newest revision it has reached."""
    facts = {fact.rv: fact for fact in history.facts()}
    revisions = sorted(facts)
    for stream in history.streams:
        given = {event.fact.rv for event in stream.events}
        first = bisect_right(revisions, stream.since)
        last = bisect_right(revisions, stream.position)
        for fact in (facts[rv] for rv in revisions[first:last]):
            if fact.rv not in given:
                yield f"{stream.watcher}: revision {fact.rv} of {fact.key} is missing"


def resumed_in_place(history: History) -> Iterator[str]:
    """A watcher that resumes begins where its previous stream ended."""
    for watcher, streams in _by_watcher(history).items():
        for before, after in pairwise(streams):
            if after.base is None and after.since != before.position:
                yield f"{watcher}: ended at {before.position}, resumed at {after.since}"


def truthful_bookmarks(history: History) -> Iterator[str]:
    """What a bookmark covers does not come after it."""
    for stream in history.streams:
        promised = stream.since
        for item in stream.items:
            if isinstance(item, Bookmark):
                if item.rv < promised:
                    yield f"{stream.watcher}: the bookmark {item.rv} goes back behind {promised}"
                promised = max(promised, item.rv)
            elif item.fact.rv <= promised:
                yield f"{stream.watcher}: {item.fact.rv} came after the bookmark {promised}"


def truthful_verbs(history: History) -> Iterator[str]:
    """ADDED brings what was not there, MODIFIED and DELETED what was."""
    for watcher, streams in _by_watcher(history).items():
        known: dict[str, str] = {}
        for stream in streams:
            known = _begin(stream, known)
            for event in stream.events:
                if (event.verb == "ADDED") == (event.fact.key in known):
                    yield f"{watcher}: {event.verb} of {event.fact.key} at {event.fact.rv} is untrue"
                _apply(known, event)


def caused(history: History) -> Iterator[str]:
    """No event comes before the write that caused it was called, and none without one."""
    called = {(write.key, write.value): write.called for write in history.writes}
    for stream in history.streams:
        for event in stream.events:
            if event.verb == "DELETED":
                continue
            cause = called.get((event.fact.key, event.fact.value))
            if cause is None or cause > event.at:
                yield f"{stream.watcher}: no client had written revision {event.fact.rv} when it came"


def replayed(history: History) -> Iterator[str]:
    """List and events, played up to the revision of the last listing, give that listing."""
    last = history.listings[-1]
    expected = {key: value for key, (_, value) in last.states.items()}
    for watcher, streams in _by_watcher(history).items():
        known: dict[str, str] = {}
        for stream in streams:
            known = _begin(stream, known)
            for event in stream.events:
                if event.fact.rv <= last.rv:
                    _apply(known, event)
        if streams[-1].position < last.rv:
            yield f"{watcher}: is at {streams[-1].position}, before the last listing at {last.rv}"
        elif known != expected:
            differ = sorted(dict(known.items() ^ expected.items()))
            yield f"{watcher}: list and watch give other objects than the last listing: {differ}"


def _by_watcher(history: History) -> dict[str, list[Stream]]:
    grouped: defaultdict[str, list[Stream]] = defaultdict(list)
    for stream in history.streams:
        grouped[stream.watcher].append(stream)
    return grouped


def _begin(stream: Stream, known: dict[str, str]) -> dict[str, str]:
    if stream.base is None:
        return known
    return {key: value for key, (_, value) in stream.base.states.items()}


def _apply(known: dict[str, str], event: Event) -> None:
    if event.fact.value is None:
        known.pop(event.fact.key, None)
    else:
        known[event.fact.key] = event.fact.value
