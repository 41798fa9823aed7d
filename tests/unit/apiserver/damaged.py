"""Stored objects that no release of ours would take today: put into a store past all checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from bramley.apiserver.fields import structs
from bramley.apiserver.registry.resources import Catalog, ServedResource
from bramley.apiserver.store.records import Draft, Key, Record
from bramley.apiserver.store.store import Store

Json = dict[str, Any]

WRONG: tuple[Any, ...] = (7, "text", [7], {"x": 7})
_IDENTITY = ("kind", "apiVersion", "metadata")


def stored_kinds(catalog: Catalog) -> list[ServedResource]:
    """Return all that is served out of the store."""
    return [each for each in catalog if not each.is_virtual and not each.is_computed]


def invalid_fields(resource: ServedResource) -> Iterator[Json]:
    """Yield the fields of objects of a kind of which each is wrong in another way: absent, whole, or one level down."""
    yield {}
    fields = _fields(resource)
    for wrong in WRONG:
        yield dict.fromkeys(fields, wrong)
        yield {
            name: dict.fromkeys(structs.struct(kind).by_name, wrong)
            for name, kind in fields.items()
            if structs.is_struct(kind)
        }


def _fields(resource: ServedResource) -> dict[str, str]:
    name = structs.of_kind(resource.api_version, resource.kind)
    if name is None:
        return {"spec": "", "status": ""}
    named = structs.struct(name).by_name.items()
    return {each: field.plain for each, field in named if each not in _IDENTITY}


async def put(store: Store, resource: ServedResource, name: str, fields: Json) -> Key:
    """Store an object with sound metadata and these fields, whatever they are; return its key."""
    key = Key(resource.stored_name, "t" if resource.namespaced else "", name)

    def build(_current: Record | None, rv: int) -> Draft:
        meta = {
            "name": name,
            **({"namespace": key.namespace} if key.namespace else {}),
            "uid": f"uid-of-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "resourceVersion": str(rv),
        }
        head = {"kind": resource.kind, "apiVersion": resource.stored_api_version, "metadata": meta}
        return Draft(msgspec.json.encode({**head, **fields}))

    await store.write(key, build)
    return key


async def put_all(store: Store, catalog: Catalog) -> None:
    """Store every misfit of every kind."""
    for resource in stored_kinds(catalog):
        for number, fields in enumerate(invalid_fields(resource)):
            suffix = f".{resource.plural}" if resource.kind == "CustomResourceDefinition" else ""
            await put(store, resource, f"wrong-{number}{suffix}", fields)
