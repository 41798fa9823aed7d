"""A snapshot as a file; no watch resumes from it once its revisions were raised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bramley.apiserver.store import backup
from bramley.apiserver.store.data_folder import DATABASE
from bramley.apiserver.store.errors import Compacted, FutureRevision
from bramley.apiserver.store.records import Draft, Key, Record
from bramley.apiserver.store.settings import Settings
from bramley.apiserver.store.store import Store
from tests.unit.apiserver.store.doubles import NODE, POD, remove

INLINE = Settings(writer_thread=False)
STEP = 1_000_000


def named(_: Record | None, rv: int) -> Draft:
    body = {
        "kind": "Pod",
        "metadata": {"name": "x", "resourceVersion": str(rv)},
        "spec": {"n": 1.5},
    }
    return Draft(json.dumps(body).encode(), {"app": "vm"}, {"spec.nodeName": "mac-1"})


async def test_snapshot_is_what_was_durable_when_it_was_taken(tmp_path: Path) -> None:
    async with Store.open(tmp_path, INLINE) as store:
        await store.write(POD, named)
        await store.write(NODE, named)
        await store.write(NODE, remove)
        taken, before = store.snapshot(), store.list("pods")
        await store.write(POD, named)
        await store.write(Key("pods", "default", "later"), named)
    (tmp_path / "copy").mkdir()
    backup.write(tmp_path / "copy" / DATABASE, taken)

    async with Store.open(tmp_path / "copy", INLINE) as store:
        assert (store.revision, store.list("pods"), store.list("nodes")) == (3, before, [])
        assert store.latest("nodes") == 3


async def raised(folder: Path, *, later: int = 0) -> Store:
    """Return a store whose content was backed up, went on for some writes, and was restored."""
    async with Store.open(folder / "one", INLINE) as store:
        await store.write(POD, named)
        content = store.snapshot()
        for _ in range(later):
            await store.write(NODE, named)
    (folder / "two").mkdir()
    backup.write(folder / "two" / DATABASE, backup.with_raised_revisions(content, STEP))
    return Store.open(folder / "two", INLINE)


async def test_raised_objects_contain_their_new_revision(tmp_path: Path) -> None:
    async with await raised(tmp_path) as store:
        found = store.get(POD)
        assert found is not None
        assert found.rv == 1 + STEP
        body = json.loads(found.body)
        assert body["metadata"]["resourceVersion"] == str(1 + STEP)
        assert list(body) == ["kind", "metadata", "spec"]
        assert (found.labels, found.fields) == ({"app": "vm"}, {"spec.nodeName": "mac-1"})
        assert (await store.write(POD, named)).rv == 2 + STEP


@pytest.mark.parametrize("resource", ["pods", "nodes", "never-seen"])
async def test_no_watch_resumes_over_a_restore(resource: str, tmp_path: Path) -> None:
    """Also not in a resource of which the backup held nothing: the lost objects may have been there."""
    async with await raised(tmp_path, later=5) as store:
        for seen in (0, 1, 2, 6, STEP):
            with pytest.raises(Compacted):
                store.watch(resource, since=seen)
            with pytest.raises(Compacted):
                store.list_at(resource, seen)
        with pytest.raises(FutureRevision):
            store.watch(resource, since=2 + STEP)
        store.watch(resource, since=store.revision).close()


async def test_floor_of_a_restore_outlives_restarts_and_backups(tmp_path: Path) -> None:
    async with await raised(tmp_path) as store:
        again = store.snapshot()
    async with Store.open(tmp_path / "two", INLINE) as store, Store.in_memory() as memory:
        assert memory.snapshot().floor == 0
        assert again.floor == store.snapshot().floor == store.revision
        with pytest.raises(Compacted):
            store.watch("never-seen", since=STEP)
