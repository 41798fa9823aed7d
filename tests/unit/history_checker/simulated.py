"""A small store that is right by construction, and the history its clients see: what the checker must accept."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.history_checker.history import (
    ABSENT,
    Bookmark,
    Event,
    Fact,
    History,
    Listing,
    Read,
    Stream,
    Write,
)

VERBS = {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}


@dataclass
class Simulation:
    """Random compare-and-set traffic with overlapping calls, lost responses, restarts and watchers that resume."""

    seed: int
    writes: int = 250
    history: History = field(default_factory=History)
    states: dict[str, tuple[int, str]] = field(default_factory=dict)
    log: list[Event] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    now: float = 1.0
    rv: int = 0

    def run(self) -> History:
        self.random = random.Random(self.seed)
        self.watch("steady", self.listing())
        self.watch("restless", self.listing())
        for _ in range(self.writes):
            self.write(f"k{self.random.randrange(8)}")
            if self.random.random() < 0.1:
                self.read(f"k{self.random.randrange(8)}")
            if self.random.random() < 0.05:
                self.bookmark(self.latest("steady"))
            if self.random.random() < 0.03:
                self.resume("restless")
            if self.random.random() < 0.01:
                self.watch("restless", self.listing())
        if "k0" in self.states:
            self.remove("k0")
        for watcher in ("steady", "restless"):
            self.bookmark(self.latest(watcher))
        self.listing()
        return self.history

    def tick(self) -> float:
        self.now += self.random.uniform(0.001, 0.01)
        return self.now

    def write(self, key: str) -> None:
        """Write at one moment between call and return; others may be called and return around it."""
        current = self.states.get(key, (ABSENT, ""))[0]
        stale = self.random.random() < 0.1 and current != ABSENT
        removes = self.random.random() < 0.2 and current != ABSENT
        called = self.tick() - self.random.uniform(0, 0.02)
        value = None if removes else f"v{next(self.numbers)}"
        draft = Write(key=key, value=value, expected=current, called=called)
        answered = self.random.random() > 0.1
        if stale:
            self.refuse(draft)
            return
        if answered or self.random.random() < 0.5:
            self.commit(draft)
        returned = self.tick() + self.random.uniform(0, 0.02)
        self.history.writes.append(self.answer(draft, returned) if answered else draft)

    def remove(self, key: str) -> None:
        draft = Write(key=key, value=None, expected=self.states[key][0], called=self.tick())
        self.commit(draft)
        self.history.writes.append(self.answer(draft, self.tick()))

    def answer(self, draft: Write, returned: float) -> Write:
        revision = self.rv if draft.value is not None or self.random.random() < 0.5 else None
        return Write(
            key=draft.key,
            value=draft.value,
            expected=draft.expected,
            called=draft.called,
            returned=returned,
            outcome="acknowledged",
            rv=revision,
        )

    def refuse(self, draft: Write) -> None:
        """Commit another write first, then refuse this one."""
        self.write(draft.key)
        if self.states.get(draft.key, (ABSENT, ""))[0] != draft.expected:
            self.history.writes.append(
                Write(
                    key=draft.key,
                    value=draft.value,
                    expected=draft.expected,
                    called=draft.called,
                    returned=self.tick(),
                    outcome="refused",
                )
            )

    def commit(self, draft: Write) -> None:
        self.rv += 1
        before = draft.key in self.states
        if draft.value is None:
            del self.states[draft.key]
        else:
            self.states[draft.key] = (self.rv, draft.value)
        verb = VERBS[before, draft.value is not None]
        event = Event(self.tick(), verb, Fact(self.rv, draft.key, draft.value))
        self.log.append(event)
        for watcher in ("steady", "restless"):
            self.latest(watcher).items.append(event)

    def read(self, key: str) -> None:
        called = self.tick()
        rv, value = self.states.get(key, (ABSENT, ""))
        self.history.reads.append(
            Read(key=key, called=called, returned=self.tick(), rv=rv, value=value)
        )

    def listing(self) -> Listing:
        called = self.tick()
        listing = Listing(called=called, returned=self.tick(), rv=self.rv, states=dict(self.states))
        self.history.listings.append(listing)
        return listing

    def watch(self, watcher: str, base: Listing) -> None:
        self.history.streams.append(Stream(watcher, base.rv, base))

    def resume(self, watcher: str) -> None:
        self.history.streams.append(Stream(watcher, self.latest(watcher).position))

    def bookmark(self, stream: Stream) -> None:
        stream.items.append(Bookmark(self.tick(), self.rv))

    def latest(self, watcher: str) -> Stream:
        return next(s for s in reversed(self.history.streams) if s.watcher == watcher)
