"""Hypothesis against the store: any story of writes, failures, watches and restarts ends as the model says.

The journal is steered by the rules and writes to a real SQLite file, so that a restart reads what a crash would leave.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bramley.apiserver.store.errors import Compacted, FutureRevision, Overflowed, StorageUnavailable
from bramley.apiserver.store.journal import Listener
from bramley.apiserver.store.records import Draft, Key, Record, Removal
from bramley.apiserver.store.settings import HistoryLimits, Settings
from bramley.apiserver.store.sqlite_file import SqliteFile
from bramley.apiserver.store.store import Store
from bramley.apiserver.store.subscriptions import Subscription
from tests.unit.apiserver.store.doubles import Refusal, SteppedJournal
from tests.unit.apiserver.store.model import Model, State, Step
from tests.virtual_time import VirtualClock, VirtualTimeLoop

T = TypeVar("T")

MEMORY = Path("/dev/shm")  # thousands of commits: nothing here is about the disk
LIMITS = HistoryLimits(6, 10**9, timedelta(seconds=100))
SETTINGS = Settings(history=LIMITS, watch_buffer_bytes=150)
RESOURCES = ("pods", "nodes")
KEYS = [Key("pods", "x", "a"), Key("pods", "x", "b"), Key("pods", "y", "a"), Key("nodes", "x", "a")]

keys = st.sampled_from(KEYS)
resources = st.sampled_from(RESOURCES)
namespaces = st.sampled_from([None, "x", "y"])
back = st.integers(-1, 8)

Order = tuple[Key, int, bool, int]
batches = st.lists(
    st.tuples(keys, st.integers(1, 60), st.booleans(), st.integers(0, 9)), min_size=1, max_size=5
)


@dataclass
class Sent:
    """A write under way: what it rests on, and what it must come to then."""

    task: asyncio.Task[Record]
    rests_on: int | None
    becomes: int | None


@dataclass
class Watch:
    """A watch, and the objects as its client knows them."""

    subscription: Subscription
    resource: str
    namespace: str | None
    position: int
    known: dict[Key, State]


def seen(records: list[Record]) -> dict[Key, State]:
    return {record.key: State(record.rv, record.body) for record in records}


def inside(objects: dict[Key, State], namespace: str | None) -> dict[Key, State]:
    return {key: state for key, state in objects.items() if namespace in {None, key.namespace}}


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.model = Model(LIMITS)
        self.sent: list[Sent] = []
        self.watches: list[Watch] = []
        self.open()

    def open(self) -> None:
        disk = SqliteFile.open(Path(self.folder.name) / "store.db", SETTINGS)

        def open_journal(listener: Listener) -> SteppedJournal:
            self.journal = SteppedJournal(disk, listener)
            return self.journal

        self.store = Store(
            open_journal, loaded=disk.load(), settings=SETTINGS, clock=VirtualClock(self.loop)
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def settle(self) -> None:
        """Run every task until it waits, then compare each with its expected state."""
        for _ in range(4):
            self.run(asyncio.sleep(0))
        self.sent = [write for write in self.sent if not self.check(write)]

    def check(self, write: Sent) -> bool:
        fate = "durable" if write.rests_on is None else self.model.fate(write.rests_on)
        assert write.task.done() == (fate != "pending")
        if fate == "lost":
            with pytest.raises(StorageUnavailable):
                write.task.result()
        elif fate == "durable" and write.becomes is None:
            with pytest.raises(Refusal):
                write.task.result()
        elif fate == "durable":
            assert write.task.result().rv == write.becomes
        return fate != "pending"

    def send(self, key: Key, build: Any, *, rests_on: int | None, becomes: int | None) -> None:
        task = self.loop.create_task(self.store.write(key, build))
        self.sent.append(Sent(task, rests_on, becomes))
        self.settle()

    @rule(batch=batches)
    def write(self, batch: list[Order]) -> None:
        for order in batch:
            self.compare_and_set(order)

    @rule(batch=batches, count=st.integers(1, 6))
    def write_and_commit(self, batch: list[Order], count: int) -> None:
        """Leave some of the batch pending: writes that build on it are the hard case."""
        self.write(batch)
        self.commit(count)

    def compare_and_set(self, order: Order) -> None:
        """Send one write; one in ten was made on an old version and must be refused."""
        key, size, removes, stale = order
        head, issued = self.model.head(key), self.model.issued
        refused = stale == 0
        body = None if removes and head else b"x" * size

        def build(current: Record | None, rv: int) -> Draft | Removal:
            assert (current and State(current.rv, current.body)) == head
            assert rv == issued + 1
            if refused:
                raise Refusal
            return Removal(b"") if body is None else Draft(body, {"size": str(size)})

        if not refused:
            self.model.issue(key, body, rv=issued + 1)
        rests_on = self.model.rests_on(key)
        self.send(key, build, rests_on=rests_on, becomes=None if refused else issued + 1)

    @rule(key=keys)
    def keep(self, key: Key) -> None:
        head = self.model.head(key)
        if head is not None:
            rests_on = self.model.rests_on(key)
            self.send(key, lambda _, _rv: None, rests_on=rests_on, becomes=head.rv)

    @rule(count=st.integers(1, 6))
    def commit(self, count: int) -> None:
        count = min(count, len(self.model.pending))
        self.model.commit(count, now=self.loop.time())
        self.journal.commit(count)
        self.settle()

    @rule(what=st.sampled_from(["fail", "cancel", "leave", "compact", "crash", "hour"]))
    def disturb(self, what: str) -> None:
        """Do one of the rare things; together they are as frequent as each of the usual ones."""
        getattr(self, what)()
        self.settle()

    def fail(self) -> None:
        self.model.fail()
        self.journal.fail()

    def cancel(self) -> None:
        for write in self.sent[::2]:
            self.sent.remove(write)
            write.task.cancel()
            self.run(asyncio.sleep(0))
            assert write.task.cancelled()

    def leave(self) -> None:
        for watch in self.watches[::2]:
            watch.subscription.close()
            self.watches.remove(watch)

    def compact(self) -> None:
        self.model.compact()
        self.store.compact()

    def hour(self) -> None:
        self.run(asyncio.sleep(3600))

    def crash(self) -> None:
        """End the process with writes under way, and start the next one."""
        for write in self.sent:
            write.task.cancel()
        self.run(asyncio.sleep(0))
        self.sent.clear()
        self.watches.clear()
        self.journal.disk.close()
        self.model.restart()
        self.open()

    @rule(resource=resources, namespace=namespaces, behind=back)
    def watch(self, resource: str, namespace: str | None, behind: int) -> None:
        since = max(0, self.model.revision - behind)
        if self.refused(resource, since, lambda: self.store.watch(resource, since=since)):
            return
        known = inside(seen(self.store.list_at(resource, since)), namespace)
        subscription = self.store.watch(resource, namespace=namespace, since=since)
        self.watches.append(Watch(subscription, resource, namespace, since, known))

    @precondition(lambda self: self.watches)
    @rule(index=st.integers(0, 99))
    def take(self, index: int) -> None:
        watch = self.watches[index % len(self.watches)]
        steps = self.undelivered(watch)
        try:
            changes = self.run(watch.subscription.next(0.001))
        except Overflowed:
            assert sum(len(step.body) for step in steps) > SETTINGS.watch_buffer_bytes
            self.watches.remove(watch)
            return
        assert [Step.of(change) for change in changes] == steps
        assert watch.subscription.revision == self.model.revision
        watch.position = self.model.revision
        for change in changes:
            watch.known.pop(change.record.key, None)
            if change.after:
                watch.known[change.record.key] = State(change.rv, change.record.body)
        now = inside(self.model.objects(watch.resource), watch.namespace)
        assert watch.known == now

    def undelivered(self, watch: Watch) -> list[Step]:
        return [
            step._replace(at=0)
            for step in self.model.steps(watch.resource, after=watch.position)
            if watch.namespace in {None, step.key.namespace}
        ]

    @rule(resource=resources, namespace=namespaces, behind=back)
    def list_at(self, resource: str, namespace: str | None, behind: int) -> None:
        rv = max(0, self.model.revision - behind)
        if not self.refused(resource, rv, lambda: self.store.list_at(resource, rv, namespace)):
            past = seen(self.store.list_at(resource, rv, namespace))
            assert past == inside(self.model.objects(resource, rv), namespace)

    def refused(self, resource: str, rv: int, read: Any) -> bool:
        if rv > self.model.revision:
            with pytest.raises(FutureRevision):
                read()
        elif rv < self.model.floor(resource, now=self.loop.time()):
            with pytest.raises(Compacted):
                read()
        else:
            return False
        return True

    @rule(seconds=st.integers(1, 60))
    def pass_time(self, seconds: int) -> None:
        self.run(asyncio.sleep(seconds))

    @invariant()
    def watches_promise_only_what_was_handed_out(self) -> None:
        for watch in self.watches:
            promised = watch.subscription.revision
            assert promised <= self.store.revision
            assert all(step.rv > promised for step in self.undelivered(watch))

    @invariant()
    def readers_see_what_is_committed(self) -> None:
        assert self.store.revision == self.model.revision
        for resource in RESOURCES:
            assert seen(self.store.list(resource)) == self.model.objects(resource)
        for key in KEYS:
            record = self.store.get(key)
            assert record == next((r for r in self.store.list(*key[:2]) if r.key == key), None)

    def teardown(self) -> None:
        for write in self.sent:
            write.task.cancel()
        self.run(asyncio.sleep(0))
        self.journal.disk.close()
        self.loop.close()
        self.folder.cleanup()


TestStoreMachine = StoreMachine.TestCase
