"""Guarantees of a watch: order, no gap, no duplicate, correct revisions, and an error for a watcher that is too slow."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from bramley.apiserver.store.errors import Closed, Compacted, FutureRevision, Overflowed
from bramley.apiserver.store.records import Change, Key
from bramley.apiserver.store.settings import HistoryLimits, Settings
from bramley.apiserver.store.store import Store
from tests import virtual_time
from tests.unit.apiserver.store.doubles import (
    NODE,
    OTHER_POD,
    POD,
    put,
    put_of_size,
    remove,
    started,
    stepped_store,
)

LEASE = Key("leases.coordination.k8s.io", "kube-node-lease", "mac-1")


def events(changes: list[Change]) -> list[tuple[str, int]]:
    return [(change.verb, change.rv) for change in changes]


async def test_watch_receives_missed_changes_and_then_new_ones() -> None:
    store = Store.in_memory()
    await store.write(POD, put)
    await store.write(POD, put)

    with store.watch("pods", since=1) as subscription:
        missed = await subscription.next(1)
        await store.write(POD, remove)
        live = await subscription.next(1)
        quiet = await subscription.next(1)

    assert events(missed) == [("MODIFIED", 2)]
    assert events(live) == [("DELETED", 3)]
    assert live[0].line() == b'{"type":"DELETED","object":{"rv":3}}\n'
    assert live[0].line() is live[0].line()
    assert quiet == []


async def test_each_change_has_the_previous_state() -> None:
    store = Store.in_memory()
    subscription = store.watch("pods", since=0)
    first = await store.write(POD, put)
    second = await store.write(POD, put)
    await store.write(POD, remove)

    changes = await subscription.next(1)

    assert [change.previous for change in changes] == [None, first, second]
    assert [change.after for change in changes] == [first, second, None]


async def test_waiting_watcher_receives_a_whole_commit_group() -> None:
    store, journal = stepped_store()
    subscription = store.watch("pods", since=0)
    waiting = asyncio.ensure_future(subscription.next(None))
    for key in (POD, NODE, OTHER_POD):
        await started(store.write(key, put))
    assert not waiting.done()

    journal.commit()

    assert events(await waiting) == [("ADDED", 1), ("ADDED", 3)]


async def test_a_watch_of_one_namespace_sees_no_other() -> None:
    store = Store.in_memory()
    elsewhere = Key("pods", "kube-system", "a")
    await store.write(elsewhere, put)
    subscription = store.watch("pods", namespace="default", since=0)

    await store.write(elsewhere, put)
    await store.write(POD, put)

    assert events(await subscription.next(1)) == [("ADDED", 3)]


async def test_filtered_changes_do_not_wake_a_watcher() -> None:
    store = Store.in_memory()
    subscription = store.watch(
        "pods", namespace="default", since=0, accepts=lambda change: change.record.key.name == "b"
    )
    await store.write(POD, put)

    assert await subscription.next(1) == []
    assert subscription.revision == 1
    await store.write(OTHER_POD, put)
    assert events(await subscription.next(1)) == [("ADDED", 2)]


async def test_revision_of_a_watch_covers_only_delivered_changes() -> None:
    store = Store.in_memory()
    subscription = store.watch("pods", since=0)
    await store.write(POD, put)

    before = subscription.revision
    await subscription.next(1)
    after = subscription.revision
    await store.write(NODE, put)

    assert (before, after) == (0, 1)
    assert subscription.revision == 2  # another resource's write: nothing of it is left to hand out


async def test_slow_watcher_is_closed_and_others_continue() -> None:
    store = Store.in_memory(Settings(watch_buffer_bytes=100))
    slow, quick = (store.watch("pods", since=0) for _ in range(2))
    for _ in range(3):
        await store.write(POD, put_of_size(60))
        await quick.next(1)

    with pytest.raises(Overflowed):
        await slow.next(1)
    with pytest.raises(Overflowed):
        await slow.next(1)
    assert slow.revision == 0
    assert quick.revision == 3


async def test_change_larger_than_the_buffer_reaches_a_current_watcher() -> None:
    store = Store.in_memory(Settings(watch_buffer_bytes=100))
    subscription = store.watch("pods", since=0)

    await store.write(POD, put_of_size(1000))

    assert events(await subscription.next(1)) == [("ADDED", 1)]


async def test_a_closed_watch_receives_nothing_more() -> None:
    store = Store.in_memory()
    with store.watch("pods", since=0) as subscription:
        pass

    await store.write(POD, put)

    assert await subscription.next(1) == []


async def test_closing_the_store_ends_watches() -> None:
    store = Store.in_memory()
    subscription = store.watch("pods", since=0)
    waiting = asyncio.ensure_future(subscription.next(None))
    await asyncio.sleep(0)

    await store.close()

    with pytest.raises(Closed):
        await waiting


async def test_a_watch_from_the_future_is_refused() -> None:
    store = Store.in_memory()

    with pytest.raises(FutureRevision) as refused:
        store.watch("pods", since=1)

    assert (refused.value.requested, refused.value.current) == (1, 0)


async def test_watch_from_a_compacted_revision_is_refused() -> None:
    store = Store.in_memory()
    await store.write(POD, put)
    await store.write(POD, put)
    store.compact()

    with pytest.raises(Compacted):
        store.watch("pods", since=1)
    store.watch("pods", since=2)
    store.watch("nodes", since=0)


async def test_history_is_bounded_by_count() -> None:
    store = Store.in_memory(Settings(history=HistoryLimits(3, 10**6, timedelta(hours=1))))
    for _ in range(5):
        await store.write(POD, put)

    assert events(await store.watch("pods", since=2).next(1)) == [
        ("MODIFIED", 3),
        ("MODIFIED", 4),
        ("MODIFIED", 5),
    ]
    with pytest.raises(Compacted):
        store.watch("pods", since=1)


async def test_history_is_bounded_by_size() -> None:
    store = Store.in_memory(Settings(history=HistoryLimits(100, 10_000, timedelta(hours=1))))
    for _ in range(5):
        await store.write(POD, put_of_size(1500))

    with pytest.raises(Compacted):
        store.watch("pods", since=2)
    assert len(await store.watch("pods", since=3).next(1)) == 2


async def test_history_is_bounded_by_age() -> None:
    limits = HistoryLimits(100, 10**6, timedelta(minutes=1))
    store = Store.in_memory(Settings(history=limits), clock=virtual_time.clock())
    await store.write(POD, put)
    await asyncio.sleep(59)
    store.watch("pods", since=0)

    await asyncio.sleep(2)

    with pytest.raises(Compacted):
        store.watch("pods", since=0)


async def test_leases_and_events_keep_a_short_history() -> None:
    short = HistoryLimits(1, 10**6, timedelta(hours=1))
    store = Store.in_memory(Settings(short_history=short))
    for _ in range(2):
        await store.write(LEASE, put)
        await store.write(POD, put)

    with pytest.raises(Compacted):
        store.watch(LEASE.resource, since=0)
    store.watch("pods", since=0)
