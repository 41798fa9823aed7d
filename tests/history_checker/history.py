"""What clients observed, as plain values; the checks are in the other modules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Outcome = Literal["acknowledged", "refused", "unknown"]

ABSENT = 0
"""The revision of an object that does not exist."""

NEVER = math.inf
"""When a call returned that did not."""


class Fact(NamedTuple):
    """One object at one revision; a value of None says that this revision removed it."""

    rv: int
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One attempt to create (expected ABSENT), replace, or delete (value None) an object."""

    key: str
    value: str | None
    expected: int
    called: float
    returned: float = NEVER
    outcome: Outcome = "unknown"
    rv: int | None = None
    """The revision, if the response contains it; responses to deletes may not."""

    @property
    def fact(self) -> Fact | None:
        """Return the fact that the response states, if it contains a revision."""
        if self.outcome != "acknowledged" or self.rv is None:
            return None
        return Fact(self.rv, self.key, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One read of one object."""

    key: str
    called: float
    returned: float
    rv: int
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One list of all objects, which the server claims to be as of a revision."""

    called: float
    returned: float
    rv: int
    states: Mapping[str, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Event:
    """One watch event."""

    at: float
    verb: str
    fact: Fact


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A promise that everything up to a revision has been delivered."""

    at: float
    rv: int


@dataclass(slots=True)
class Stream:
    """One watch connection of one watcher; `base` is the list it began with, or None if it resumed its previous one."""

    watcher: str
    since: int
    base: Listing | None = None
    items: list[Event | Bookmark] = field(default_factory=list)

    @property
    def events(self) -> Iterator[Event]:
        """Return the events without the bookmarks."""
        return (item for item in self.items if isinstance(item, Event))

    @property
    def position(self) -> int:
        """Return the newest revision that the stream has reached."""
        if not self.items:
            return self.since
        last = self.items[-1]
        return last.fact.rv if isinstance(last, Event) else last.rv


@dataclass(slots=True)
class History:
    """Everything that was seen in one run; the last listing must be made after all writers stopped."""

    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)

    def facts(self) -> Iterator[Fact]:
        """Return every revision's content that any client observed, with repetitions."""
        yield from (write.fact for write in self.writes if write.fact)
        yield from (Fact(read.rv, read.key, read.value) for read in self.reads if read.rv != ABSENT)
        for listing in self.listings:
            yield from (Fact(rv, key, value) for key, (rv, value) in listing.states.items())
        for stream in self.streams:
            yield from (event.fact for event in stream.events)

    def keys(self) -> set[str]:
        """Return every object that was written or seen."""
        return {fact.key for fact in self.facts()} | {write.key for write in self.writes}
