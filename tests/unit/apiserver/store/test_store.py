"""Guarantees of the store to readers and writers, under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from bramley.apiserver.store.errors import Closed, Compacted, FutureRevision, StorageUnavailable
from bramley.apiserver.store.records import Draft, Key, Record
from bramley.apiserver.store.store import Store
from tests.unit.apiserver.store.doubles import (
    OTHER_POD,
    POD,
    Refusal,
    keep,
    put,
    refuse,
    remove,
    started,
    stepped_store,
)


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


async def test_list_at_an_old_revision_is_rebuilt_from_the_history() -> None:
    store = Store.in_memory()
    first = await store.write(POD, put)
    await store.write(POD, put)
    await store.write(OTHER_POD, put)
    await store.write(POD, remove)

    assert store.list_at("pods", 1) == [first]
    assert store.list_at("pods", 0) == []
    assert [record.rv for record in store.list_at("pods", 3)] == [2, 3]
    assert [record.rv for record in store.list("pods")] == [3]
    with pytest.raises(FutureRevision):
        store.list_at("pods", 5)


async def test_list_at_a_compacted_revision_is_refused() -> None:
    store = Store.in_memory()
    await store.write(POD, put)
    await store.write(POD, put)
    store.compact()

    with pytest.raises(Compacted) as refused:
        store.list_at("pods", 1)

    assert (refused.value.requested, refused.value.oldest) == (1, 2)
    assert len(store.list_at("pods", 2)) == 1


async def test_readers_see_nothing_before_it_is_durable() -> None:
    store, journal = stepped_store()

    writing = await started(store.write(POD, put))

    assert store.get(POD) is None
    assert store.list("pods") == []
    assert store.revision == 0
    assert not writing.done()
    journal.commit()
    assert store.get(POD) == await writing


async def test_write_builds_on_pending_writes() -> None:
    store, journal = stepped_store()
    seen: list[int | None] = []

    def build(head: Record | None, rv: int) -> Draft:
        seen.append(head.rv if head else None)
        return put(head, rv)

    writes = [await started(store.write(POD, build)) for _ in range(3)]
    journal.commit()

    assert seen == [None, 1, 2]
    assert [(await write).rv for write in writes] == [1, 2, 3]


async def test_a_commit_of_an_older_write_leaves_the_newer_head_in_place() -> None:
    store, journal = stepped_store()
    await started(store.write(POD, put))
    await started(store.write(POD, put))
    journal.commit(1)
    seen: list[int | None] = []

    def build(head: Record | None, rv: int) -> Draft:
        seen.append(head.rv if head else None)
        return put(head, rv)

    await started(store.write(POD, build))

    assert seen == [2]


async def test_a_failed_commit_fails_every_write_that_was_built_on_it() -> None:
    store, journal = stepped_store()
    safe = await started(store.write(POD, put))
    journal.commit()
    writes = [await started(store.write(key, put)) for key in (POD, POD, OTHER_POD)]

    journal.fail()

    for write in writes:
        with pytest.raises(StorageUnavailable):
            await write
    assert store.list("pods") == [await safe]
    assert store.revision == 1


async def test_after_a_failed_commit_writes_build_on_what_is_committed() -> None:
    store, journal = stepped_store()
    first = await started(store.write(POD, put))
    journal.commit()
    lost = await started(store.write(POD, remove))
    journal.fail()
    seen: list[Record | None] = []

    def build(head: Record | None, rv: int) -> Draft:
        seen.append(head)
        return put(head, rv)

    again = await started(store.write(POD, build))
    journal.commit()

    assert seen == [await first]
    assert store.get(POD) == await again
    with pytest.raises(StorageUnavailable):
        await lost


async def test_revision_of_a_failed_write_is_not_reused() -> None:
    store, journal = stepped_store()
    lost = await started(store.write(POD, put))
    journal.fail()

    again = await started(store.write(POD, put))
    journal.commit()

    assert (await again).rv == 2
    with pytest.raises(StorageUnavailable):
        await lost


async def test_a_refused_build_leaves_no_trace() -> None:
    store = Store.in_memory()

    with pytest.raises(Refusal):
        await store.write(POD, refuse)

    assert store.revision == 0
    assert (await store.write(POD, put)).rv == 1


async def test_refusal_based_on_a_pending_write_waits_for_it() -> None:
    """Otherwise a client gets "already exists" for an object that the next crash loses."""
    store, journal = stepped_store()
    await started(store.write(POD, put))

    refused = await started(store.write(POD, refuse))

    assert not refused.done()
    journal.commit()
    with pytest.raises(Refusal):
        await refused


async def test_refusal_based_on_a_failed_write_is_a_storage_failure() -> None:
    store, journal = stepped_store()
    lost = await started(store.write(POD, put))
    refused = await started(store.write(POD, refuse))

    journal.fail()

    for write in (lost, refused):
        with pytest.raises(StorageUnavailable):
            await write


async def test_an_unchanged_object_is_returned_once_it_is_durable() -> None:
    store, journal = stepped_store()
    await started(store.write(POD, put))

    unchanged = await started(store.write(POD, keep))

    assert not unchanged.done()
    journal.commit()
    assert (await unchanged).rv == 1
    assert store.revision == 1


async def test_an_unchanged_durable_object_costs_no_revision() -> None:
    store = Store.in_memory()
    first = await store.write(POD, put)

    assert await store.write(POD, keep) is first
    assert (await store.write(POD, put)).rv == 2


async def test_removing_or_keeping_a_missing_object_is_an_error() -> None:
    store = Store.in_memory()

    for build in (remove, keep):
        with pytest.raises(ValueError, match="does not exist"):
            await store.write(POD, build)


async def test_a_cancelled_writer_does_not_cancel_others() -> None:
    store, journal = stepped_store()
    gone = await started(store.write(POD, put))
    waits_for_the_same = await started(store.write(POD, keep))
    other = await started(store.write(OTHER_POD, put))

    gone.cancel()
    await asyncio.sleep(0)
    journal.commit()

    assert (await waits_for_the_same).rv == 1
    assert (await other).rv == 2
    assert [record.rv for record in store.list("pods")] == [1, 2]


async def test_equal_labels_are_kept_once() -> None:
    store = Store.in_memory()
    first = await store.write(POD, lambda _, _rv: Draft(b"{}", {"app": "a"}, {"x": "y"}))

    second = await store.write(POD, lambda _, _rv: Draft(b"{}", {"app": "a"}, {"x": "z"}))

    assert second.labels is first.labels
    assert second.key is first.key
    assert second.fields == {"x": "z"}


async def test_closing_finishes_writes_and_refuses_new_ones() -> None:
    store, _ = stepped_store()
    under_way = await started(store.write(POD, put))

    await store.close()
    await store.close()

    assert (await under_way).rv == 1
    with pytest.raises(Closed):
        await store.write(POD, put)
    with pytest.raises(Closed):
        store.watch("pods", since=0)


async def test_the_list_with_pending_writes() -> None:
    store, journal = stepped_store()
    await started(store.write(POD, put))
    journal.commit()
    await started(store.write(POD, remove))
    await started(store.write(OTHER_POD, put))
    await started(store.write(Key("nodes", "", "n"), put))

    assert [each.key for each in store.list_with_pending("pods")] == [OTHER_POD]
    assert [each.key for each in store.list("pods")] == [POD]
    journal.fail()
    assert [each.key for each in store.list_with_pending("pods")] == [POD]
    await store.close()
