"""What the store promises to those who read, write and watch, under virtual time and in memory."""

from __future__ import annotations

import asyncio

import pytest

from bramley.apiserver.store.errors import Closed, Compacted, FutureRevision
from bramley.apiserver.store.records import Draft, Key, Record, Removal
from bramley.apiserver.store.store import Store

POD = Key("pods", "default", "a")


def put(_: Record | None, rv: int) -> Draft:
    return Draft(b'{"rv":%d}' % rv)


def remove(_: Record | None, rv: int) -> Removal:
    return Removal(b'{"rv":%d}' % rv)


async def test_a_written_object_is_read_back_under_its_revision() -> None:
    store = Store.in_memory()

    written = await store.write(POD, put)

    assert store.get(POD) == written
    assert written.rv == store.revision == 1
    assert written.body == b'{"rv":1}'


async def test_lists_are_in_order_of_namespace_and_name() -> None:
    store = Store.in_memory()
    for namespace, name in (("b", "a"), ("a", "z"), ("a", "b"), ("a-b", "c")):
        await store.write(Key("pods", namespace, name), put)

    assert [record.key[1:] for record in store.list("pods")] == [
        ("a", "b"),
        ("a", "z"),
        ("a-b", "c"),
        ("b", "a"),
    ]
    assert [record.key.name for record in store.list("pods", "a")] == ["b", "z"]
    assert store.list("nodes") == []


async def test_a_list_of_the_past_is_rebuilt_from_the_history() -> None:
    store = Store.in_memory()
    first = await store.write(POD, put)
    await store.write(POD, put)
    await store.write(Key("pods", "default", "b"), put)
    await store.write(POD, remove)

    assert store.list_at("pods", 1) == [first]
    assert store.list_at("pods", 0) == []
    assert [record.rv for record in store.list_at("pods", 3)] == [2, 3]
    with pytest.raises(FutureRevision):
        store.list_at("pods", 5)


async def test_a_watch_gets_what_it_missed_and_then_what_comes() -> None:
    store = Store.in_memory()
    await store.write(POD, put)
    await store.write(POD, put)

    with store.watch("pods", since=1) as subscription:
        missed = await subscription.next(1)
        await store.write(POD, remove)
        live = await subscription.next(1)
        quiet = await subscription.next(1)

    assert [(change.verb, change.rv) for change in missed] == [("MODIFIED", 2)]
    assert [(change.verb, change.rv) for change in live] == [("DELETED", 3)]
    assert live[0].line() == b'{"type":"DELETED","object":{"rv":3}}\n'
    assert quiet == []
    assert subscription.revision == 3


async def test_compaction_refuses_those_who_are_behind() -> None:
    store = Store.in_memory()
    await store.write(POD, put)
    await store.write(POD, put)
    store.compact()

    with pytest.raises(Compacted):
        store.watch("pods", since=1)
    with pytest.raises(Compacted):
        store.list_at("pods", 1)
    store.watch("pods", since=2)


async def test_closing_ends_watches_and_refuses_writes() -> None:
    store = Store.in_memory()
    subscription = store.watch("pods", since=0)
    waiting = asyncio.ensure_future(subscription.next(None))
    await asyncio.sleep(0)
    await store.close()

    with pytest.raises(Closed):
        await waiting
    with pytest.raises(Closed):
        await store.write(POD, put)
    with pytest.raises(Closed):
        store.watch("pods", since=0)
