"""The store as a few plain lists: what the real one must be indistinguishable from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from bramley.apiserver.store.records import Change, Key, Verb
from bramley.apiserver.store.settings import HistoryLimits

Fate = Literal["pending", "durable", "lost"]


class State(NamedTuple):
    """One object at one revision."""

    rv: int
    body: bytes


class Step(NamedTuple):
    """One change, as the model remembers it for ever."""

    rv: int
    verb: Verb
    key: Key
    body: bytes
    at: float = 0.0

    @classmethod
    def of(cls, change: Change) -> Step:
        return cls(change.rv, change.verb, change.record.key, change.record.body)


@dataclass
class Model:
    """What is committed, what is pending, and how far the history reaches."""

    limits: HistoryLimits
    committed: list[Step] = field(default_factory=list)
    pending: list[Step] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    floors: dict[str, int] = field(default_factory=dict)
    issued: int = 0
    current: dict[Key, State] = field(default_factory=dict)

    @property
    def revision(self) -> int:
        return self.committed[-1].rv if self.committed else 0

    def objects(self, resource: str, rv: int | None = None) -> dict[Key, State]:
        """Return a resource as it is, or replay it up to a revision."""
        found: dict[Key, State] = {}
        if rv is None:
            found = {key: state for key, state in self.current.items() if key.resource == resource}
        else:
            for step in self.steps(resource, after=0, until=rv):
                _replay(found, step)
        return dict(sorted(found.items()))

    def steps(self, resource: str, *, after: int, until: int | None = None) -> Iterator[Step]:
        for step in self.committed:
            if (
                step.key.resource == resource
                and after < step.rv
                and (until is None or step.rv <= until)
            ):
                yield step

    def head(self, key: Key) -> State | None:
        found = {key: self.current[key]} if key in self.current else {}
        for step in self.pending:
            if step.key == key:
                _replay(found, step)
        return found.get(key)

    def rests_on(self, key: Key) -> int | None:
        """Return the pending revision that the head of an object stands on."""
        return next((step.rv for step in reversed(self.pending) if step.key == key), None)

    def fate(self, rv: int) -> Fate:
        if rv in self.lost:
            return "lost"
        return "durable" if rv <= self.revision else "pending"

    def issue(self, key: Key, body: bytes | None, *, rv: int) -> None:
        """Record a write that was passed to the journal; a body of None removes."""
        verb: Verb = "DELETED"
        if body is not None:
            verb = "MODIFIED" if self.head(key) else "ADDED"
        self.pending.append(Step(rv, verb, key, body or b""))
        self.issued = rv

    def commit(self, count: int, *, now: float) -> None:
        for step in self.pending[:count]:
            self.committed.append(step._replace(at=now))
            _replay(self.current, step)
            self._bound_count(step.key.resource)
        del self.pending[:count]

    def fail(self) -> None:
        self.lost |= {step.rv for step in self.pending}
        self.pending.clear()

    def compact(self) -> None:
        for resource in {step.key.resource for step in self.committed}:
            self.floors[resource] = max(step.rv for step in self.steps(resource, after=0))

    def restart(self) -> None:
        """Lose what was pending and all history."""
        self.fail()
        self.compact()
        self.issued = self.revision
        self.lost.clear()

    def floor(self, resource: str, *, now: float) -> int:
        old = [
            step.rv
            for step in self.steps(resource, after=0)
            if step.at < now - self.limits.age.total_seconds()
        ]
        return max(self.floors.get(resource, 0), *old, 0)

    def _bound_count(self, resource: str) -> None:
        kept = list(self.steps(resource, after=self.floors.get(resource, 0)))
        if len(kept) > self.limits.count:
            self.floors[resource] = kept[-self.limits.count - 1].rv


def _replay(objects: dict[Key, State], step: Step) -> None:
    if step.verb == "DELETED":
        objects.pop(step.key, None)
    else:
        objects[step.key] = State(step.rv, step.body)
