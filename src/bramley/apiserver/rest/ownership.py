"""Who manages an object's fields, as writes go on: for objects that somebody applied to, every later writer is noted.

Objects that nobody applied to carry no `managedFields`, and writes of them cost nothing more; this differs from a real server,
which notes the creator too.
"""

from __future__ import annotations

from typing import Any

from bramley.apiserver.apply import managers, merging, schemas
from bramley.apiserver.apply.managers import Manager, Owned
from bramley.apiserver.apply.merging import Kind
from bramley.apiserver.fields import structs
from bramley.apiserver.registry.resources import Json, ServedResource

FIELD = "managedFields"
_NAME_LIMIT = 128


def kind_of(resource: ServedResource, subresource: str) -> Kind:
    """Return what apply must know about a resource."""
    return Kind(
        schema=_schema(resource),
        version=resource.api_version,
        subresource=subresource,
        is_custom=resource.is_custom,
        has_status=resource.has_status,
    )


def _schema(resource: ServedResource) -> schemas.Schema:
    if resource.is_custom:
        known: Any = getattr(resource.structural, "schema", None)
        return schemas.of_crd(known or {})
    struct = structs.of_kind(resource.api_version, resource.kind)
    return schemas.of_crd({}) if struct is None else schemas.of_struct(struct)


def manager_name(given: str, user_agent: str) -> str:
    """Return the name of a writer: what it calls itself, or the first part of its user agent."""
    if given:
        return given
    name = "".join(char for char in user_agent.partition("/")[0] if char.isprintable())
    return name.encode()[:_NAME_LIMIT].decode(errors="ignore")


def tracked(new: Json, old: Json, *, given: Any, name: str, kind: Kind, now: str) -> Json:
    """Return an update with its writer noted; `given` is what the client sent as managers."""
    known = _known(given, old, kind)
    live, bare = bared(old), bared(new)
    if not known:
        return bare
    who = managers.updater(name, kind.version, kind.subresource)
    left = merging.update(live, bare, known, who=who, kind=kind, now=now)
    return with_managers(bare, left)


def _known(given: Any, old: Json, kind: Kind) -> dict[Manager, Owned]:
    """Return the managers that count: those that the client wrote if they make sense, else those that there were."""
    if not kind.subresource:
        if managers.is_reset(given):
            return {}
        if found := _readable(given):
            return found
    return _readable(old["metadata"].get(FIELD))


def _readable(entries: Any) -> dict[Manager, Owned]:
    try:
        return managers.read(entries)
    except managers.Unreadable:
        return {}


def bared(body: Json) -> Json:
    """Return an object without its managers."""
    if FIELD not in body["metadata"]:
        return body
    metadata = {key: each for key, each in body["metadata"].items() if key != FIELD}
    return {**body, "metadata": metadata}


def with_managers(body: Json, left: dict[Manager, Owned]) -> Json:
    """Return an object with its managers."""
    if not left:
        return bared(body)
    return {**body, "metadata": {**body["metadata"], FIELD: managers.written(left)}}
