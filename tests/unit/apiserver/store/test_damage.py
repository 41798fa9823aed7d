"""A file with a damaged object in it: the object is quarantined, and everything else is served as before."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.store import backup, damage
from bramley.apiserver.store.data_folder import DATABASE
from bramley.apiserver.store.settings import Settings as StoreSettings
from bramley.apiserver.store.store import Store
from tests.unit.apiserver.world import CONFIG_MAPS, World, a_config_map

INLINE = StoreSettings(writer_thread=False)
DEFAULT = "/api/v1/namespaces/default"
WRONG = f"{CONFIG_MAPS}/wrong"


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[World]:
    async with Store.open(folder, INLINE, check_record=damage.check_envelope) as store:
        yield World(store, Settings())


async def fill(folder: Path) -> None:
    """Store two ConfigMaps in a new folder."""
    async with opened(folder) as world:
        await world.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        for name in ("wrong", "whole"):
            await world.create(CONFIG_MAPS, a_config_map(name))


def overwrite(folder: Path, change: str, *values: Any, name: str = "wrong") -> None:
    """Damage the row of one object."""
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.execute(f"UPDATE objects SET {change} WHERE name = ?", (*values, name))  # noqa: S608
        connection.commit()


def with_metadata(**wrong: Any) -> bytes:
    sound = {"name": "wrong", "namespace": "t", "uid": "u", "resourceVersion": "1"}
    whole = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {**sound, **wrong}}
    return msgspec.json.encode(whole)


DAMAGES = {
    "no JSON": ("body = ?", b'{"kind":"Conf\x00'),
    "no object": ("body = ?", b"[]"),
    "no metadata": ("body = ?", b'{"kind":"ConfigMap","apiVersion":"v1"}'),
    "another's name": ("body = ?", with_metadata(name="other")),
    "labels of no text": ("body = ?", with_metadata(labels=7)),
    "owners of no form": ("body = ?", with_metadata(ownerReferences=[7])),
    "no time": ("body = ?", with_metadata(deletionTimestamp="soon")),
    "unreadable labels beside it": ("labels = ?", "{"),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_object_is_quarantined_and_can_only_be_deleted(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(tmp_path)
    overwrite(tmp_path, *DAMAGES[damage])

    async with opened(tmp_path) as world:
        assert (await world.get(CONFIG_MAPS)).names == ["whole"]
        read = await world.get(WRONG)
        assert read.code == 500
        assert "damaged in the store" in read.message
        assert (await world.merge(WRONG, {"data": {"a": "b"}})).code == 500
        assert (await world.request("POST", CONFIG_MAPS, a_config_map("wrong"))).code == 500
        certain = {"preconditions": {"uid": "u"}}
        assert (await world.delete(WRONG, certain)).code == 500
        assert (await world.delete(f"{WRONG}?dryRun=All")).code == 200
        assert (await world.get(WRONG)).code == 500
        assert (await world.delete(WRONG)).code == 200
        assert (await world.get(WRONG)).code == 404
    logged = [each for each in caplog.records if each.message == "Quarantined damaged object"]
    assert len(logged) == 1
    async with opened(tmp_path) as world:
        assert world.store.damage.quarantined == {}, "it is gone from the file too"
        await world.create(CONFIG_MAPS, a_config_map("wrong"))


async def test_damaged_built_in_objects_are_created_again(tmp_path: Path) -> None:
    await fill(tmp_path)
    for name in ("default", "kubernetes", "cluster-admin", "system-node-critical"):
        overwrite(tmp_path, "body = ?", b"", name=name)

    async with opened(tmp_path) as world:
        assert (await world.get(DEFAULT)).code == 200
        assert (await world.get(f"{DEFAULT}/services/kubernetes")).code == 200
        roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        assert (await world.get(f"{roles}/cluster-admin")).code == 200
        assert world.store.damage.quarantined == {}


async def test_backup_contains_only_readable_objects(tmp_path: Path) -> None:
    await fill(tmp_path)
    overwrite(tmp_path, "body = ?", b"")

    content = backup.read(tmp_path / DATABASE, INLINE, check_record=damage.check_envelope)

    raised = backup.with_raised_revisions(content, 1000)
    assert [each.key.name for each in raised.records["configmaps"]] == ["whole"]
