"""A store whose disk fails or hangs reports that in its health, until it works again."""

from __future__ import annotations

import asyncio

import pytest

from bramley.apiserver.auth import authorizer
from bramley.apiserver.server import non_resource
from bramley.apiserver.store.errors import StorageUnavailable
from bramley.apiserver.store.store import Store
from tests import virtual_time
from tests.unit.apiserver.store.doubles import (
    OTHER_POD,
    POD,
    SteppedJournal,
    put,
    started,
    stepped_store,
)


def failing(store: Store) -> dict[str, dict[str, str]]:
    return {probe: non_resource.failing_checks(store, probe) for probe in authorizer.PROBES}


async def fail(store: Store, journal: SteppedJournal) -> None:
    write = await started(store.write(POD, put))
    journal.fail()
    with pytest.raises(StorageUnavailable):
        await write


async def test_a_full_disk_makes_the_server_unready_but_not_dead() -> None:
    store, journal = stepped_store()

    await fail(store, journal)

    message = {"store": "the disk is full"}
    assert failing(store) == {"healthz": message, "readyz": message, "livez": {}}


async def test_a_store_that_writes_again_is_healthy_again() -> None:
    store, journal = stepped_store()
    await fail(store, journal)

    await started(store.write(POD, put))
    journal.commit()

    assert store.write_error is None


async def test_error_reports_when_a_restart_is_needed() -> None:
    store, journal = stepped_store()
    await fail(store, journal)
    await started(store.write(POD, put))

    store.on_failed(StorageUnavailable("the writer has stopped", cured_by_restart=True))

    assert non_resource.failing_checks(store, "livez") == {"store": "the writer has stopped"}


async def test_hanging_disk_is_reported_until_it_answers() -> None:
    store, journal = stepped_store(clock=virtual_time.clock())
    await started(store.write(POD, put))
    await asyncio.sleep(9)
    early = store.write_error
    await asyncio.sleep(3)
    late = store.write_error
    await started(store.write(OTHER_POD, put))
    journal.commit(1)

    assert early is None
    assert str(late) == "the disk has not answered for 12 s"
    assert store.write_error is None, "one write still waits, but not for long"


async def test_idle_store_is_healthy() -> None:
    store, _ = stepped_store(clock=virtual_time.clock())
    await asyncio.sleep(3600)

    await started(store.write(POD, put))

    assert store.write_error is None
