"""The checker accepts right histories and rejects each way of being wrong; a quiet run proves nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.history_checker.history import ABSENT, Bookmark, Event, History, Read, Stream, Write
from tests.history_checker.verdict import CHECKS, Least, ProvesNothing, judge, require_traffic
from tests.unit.history_checker.simulated import Simulation

Corruption = Callable[[History, random.Random], None]


def steady(history: History) -> Stream:
    return next(stream for stream in history.streams if stream.watcher == "steady")


def some_event(history: History, rng: random.Random) -> int:
    """Return the place of an event in the middle of the steady stream, with another event behind it."""
    items = steady(history).items
    places = [
        place
        for place in range(len(items) // 4, len(items) - 2)
        if isinstance(items[place], Event) and isinstance(items[place + 1], Event)
    ]
    return rng.choice(places)


def some_acknowledged(history: History, rng: random.Random) -> int:
    return rng.choice(
        [
            place
            for place, write in enumerate(history.writes)
            if write.outcome == "acknowledged" and write.rv is not None and write.value is not None
        ][5:]
    )


def event_missing(history: History, rng: random.Random) -> None:
    del steady(history).items[some_event(history, rng)]


def event_doubled(history: History, rng: random.Random) -> None:
    items = steady(history).items
    place = some_event(history, rng)
    items.insert(place, items[place])


def events_swapped(history: History, rng: random.Random) -> None:
    items = steady(history).items
    place = some_event(history, rng)
    items[place : place + 2] = reversed(items[place : place + 2])


def event_with_other_content(history: History, rng: random.Random) -> None:
    items = steady(history).items
    place = some_event(history, rng)
    event = items[place]
    assert isinstance(event, Event)
    items[place] = replace(event, fact=event.fact._replace(key="k0", value="forged"))


def event_with_a_wrong_verb(history: History, rng: random.Random) -> None:
    items = steady(history).items
    places = [i for i, e in enumerate(items) if isinstance(e, Event) and e.verb == "MODIFIED"]
    place = rng.choice(places)
    event = items[place]
    assert isinstance(event, Event)
    items[place] = replace(event, verb="ADDED")


def event_before_its_cause(history: History, rng: random.Random) -> None:
    items = steady(history).items
    place = next(i for i, e in enumerate(items) if isinstance(e, Event) and e.verb != "DELETED")
    event = items[place]
    assert isinstance(event, Event)
    items[place] = replace(event, at=0.0)


def bookmark_too_early(history: History, rng: random.Random) -> None:
    items = steady(history).items
    place = some_event(history, rng)
    event = items[place + 1]
    assert isinstance(event, Event)
    items.insert(place, Bookmark(event.at, event.fact.rv))


def bookmark_beyond_a_lost_event(history: History, rng: random.Random) -> None:
    items = steady(history).items
    place = some_event(history, rng)
    event = items[place]
    assert isinstance(event, Event)
    items[place] = Bookmark(event.at, event.fact.rv)


def resumed_too_late(history: History, rng: random.Random) -> None:
    stream = rng.choice([s for s in history.streams if s.base is None and len(s.items) > 3])
    first = next(stream.events)
    del stream.items[: stream.items.index(first) + 1]
    stream.since = first.fact.rv


def resumed_with_a_delivered_event(history: History, rng: random.Random) -> None:
    streams = [s for s in history.streams if s.watcher == "restless"]
    pairs = [
        (before, after)
        for before, after in pairwise(streams)
        if after.base is None and list(before.events)
    ]
    before, after = rng.choice(pairs)
    after.items.insert(0, list(before.events)[-1])


def revision_given_out_twice(history: History, rng: random.Random) -> None:
    place = some_acknowledged(history, rng)
    write = history.writes[place]
    assert write.rv is not None
    earlier = next(w for w in history.writes if w.rv is not None and w.key != write.key)
    history.writes[place] = replace(write, rv=earlier.rv)


def revision_going_back(history: History, rng: random.Random) -> None:
    place = some_acknowledged(history, rng)
    write = history.writes[place]
    history.writes[place] = replace(write, rv=1)


def acknowledged_write_lost(history: History, rng: random.Random) -> None:
    """The newest write of an object is acknowledged, and no list or watcher ever shows it."""
    end = history.listings[-1]
    assert end.rv
    history.writes.append(
        Write(
            key="k0",
            value="lost",
            expected=end.states.get("k0", (ABSENT, ""))[0],
            called=end.called - 0.001,
            returned=end.called - 0.0005,
            outcome="acknowledged",
            rv=end.rv + 1,
        )
    )


def deleted_object_reappears(history: History, rng: random.Random) -> None:
    end = history.listings[-1]
    gone = next(
        event.fact
        for event in reversed(list(steady(history).events))
        if event.verb == "DELETED" and event.fact.key not in end.states
    )
    history.listings[-1] = replace(
        end, states={**end.states, gone.key: (gone.rv - 1, "back from the dead")}
    )


def two_winners(history: History, rng: random.Random) -> None:
    """Two writes are acknowledged that were made for the same state."""
    links = [w for w in history.writes if w.outcome == "acknowledged" and w.rv and w.value]
    by_revision = {write.rv: write for write in links}
    second = rng.choice([w for w in links if w.expected in by_revision])
    place = history.writes.index(second)
    history.writes[place] = replace(second, expected=by_revision[second.expected].expected)


def stale_read(history: History, rng: random.Random) -> None:
    """A state is read after its successor was acknowledged."""
    place = some_acknowledged(history, rng)
    write = history.writes[place]
    while write.expected == ABSENT:
        write = history.writes[some_acknowledged(history, rng)]
    old = next(fact for fact in history.facts() if fact.rv == write.expected)
    history.reads.append(
        Read(
            key=write.key,
            called=write.returned + 0.001,
            returned=write.returned + 0.002,
            rv=old.rv,
            value=old.value,
        )
    )


def missing_read(history: History, rng: random.Random) -> None:
    """An object that was there all the time is not found."""
    end = history.listings[-1]
    key, (_, value) = rng.choice(sorted(end.states.items()))
    write = next(w for w in history.writes if w.value == value)
    after = max(w.returned for w in history.writes if w.returned < end.called)
    assert write.key == key
    history.reads.append(Read(key=key, called=after + 1, returned=after + 2, rv=ABSENT))


def read_of_an_unknown_write(history: History, rng: random.Random) -> None:
    history.reads.append(Read(key="k0", called=1.0, returned=99.0, rv=10**6, value="unwritten"))


def refusal_without_cause(history: History, rng: random.Random) -> None:
    end = history.listings[-1]
    key, (rv, _) = rng.choice(sorted(end.states.items()))
    doubtful = {w.expected for w in history.writes if w.outcome == "unknown"}
    if rv in doubtful:
        history.writes[:] = [w for w in history.writes if w.expected != rv or w.key != key]
    history.writes.append(
        Write(
            key=key,
            value="refused",
            expected=rv,
            called=end.returned,
            returned=end.returned + 1,
            outcome="refused",
        )
    )


def list_with_an_old_state(history: History, rng: random.Random) -> None:
    """A list that claims a revision holds an object as it was before."""
    write = history.writes[some_acknowledged(history, rng)]
    while write.expected == ABSENT or write.rv is None:
        write = history.writes[some_acknowledged(history, rng)]
    old = next(fact for fact in history.facts() if fact.rv == write.expected)
    listing = replace(history.listings[0], rv=write.rv, states={old.key: (old.rv, old.value or "")})
    history.listings.insert(1, listing)


def watcher_left_behind(history: History, rng: random.Random) -> None:
    items = steady(history).items
    del items[len(items) // 2 :]


CORRUPTIONS: list[tuple[Corruption, str]] = [
    (event_missing, "complete"),
    (event_doubled, "unique"),
    (events_swapped, "ordered"),
    (event_with_other_content, "one content each"),
    (event_with_a_wrong_verb, "truthful verbs"),
    (event_before_its_cause, "caused"),
    (bookmark_too_early, "truthful bookmarks"),
    (bookmark_beyond_a_lost_event, "complete"),
    (resumed_too_late, "resumed in place"),
    (resumed_with_a_delivered_event, "newer than requested"),
    (revision_given_out_twice, "one content each"),
    (revision_going_back, "growing revisions"),
    (acknowledged_write_lost, "acknowledged survive"),
    (deleted_object_reappears, "acknowledged survive"),
    (two_winners, "linearizable"),
    (stale_read, "linearizable"),
    (missing_read, "linearizable"),
    (read_of_an_unknown_write, "linearizable"),
    (refusal_without_cause, "linearizable"),
    (list_with_an_old_state, "lists are true"),
    (watcher_left_behind, "replayed"),
]


@pytest.mark.parametrize("seed", range(20))
def test_correct_history_is_accepted(seed: int) -> None:
    assert judge(Simulation(seed).run()) == {}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("corrupt", "check"), CORRUPTIONS)
def test_a_corrupted_history_is_rejected_by_its_check(
    corrupt: Corruption, check: str, seed: int
) -> None:
    history = Simulation(seed).run()

    corrupt(history, random.Random(seed))

    assert check in judge(history)


def test_every_check_rejects_something() -> None:
    assert {check for _, check in CORRUPTIONS} == set(CHECKS)


def test_run_with_enough_traffic_is_accepted() -> None:
    history = Simulation(0).run()

    require_traffic(history, Least(unknown=5, resumed=3, bookmarks=5), seconds=1.0)


@pytest.mark.parametrize(
    "least",
    [
        Least(acknowledged=10_000),
        Least(per_second=1000),
        Least(refused=10_000),
        Least(unknown=10_000),
        Least(events=10_000),
        Least(resumed=10_000),
        Least(bookmarks=10_000),
    ],
)
def test_run_with_too_little_traffic_is_refused(least: Least) -> None:
    with pytest.raises(ProvesNothing):
        require_traffic(Simulation(0).run(), least, seconds=1.0)
