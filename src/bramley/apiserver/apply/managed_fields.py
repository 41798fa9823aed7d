"""Who manages which fields of an object: `metadata.managedFields`, read, bounded and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bramley.apiserver.apply import fieldpath
from bramley.apiserver.apply.fieldpath import FieldSet

Json = dict[str, Any]

APPLY, UPDATE = "Apply", "Update"
BEFORE_FIRST_APPLY = "before-first-apply"
UPDATERS_LIMIT = 10
_ANCIENT = "ancient-changes"


class Unreadable(ValueError):
    """A list of managers that makes no sense."""


class Manager(NamedTuple):
    """Who acts: appliers are the same in every version, updaters are not."""

    name: str
    operation: str
    version: str = ""
    subresource: str = ""

    def shown(self, version: str) -> str:
        """Return the manager as conflicts name it."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {version}" if self.operation == UPDATE else text


@dataclass(frozen=True, slots=True)
class Owned:
    """What one manager owns, as a version of the API names it, and since when."""

    fields: FieldSet
    version: str
    time: str | None = None


Managers = Mapping[Manager, Owned]


def applier(name: str, subresource: str) -> Manager:
    """Return who applies."""
    return Manager(name or "unknown", APPLY, "", subresource)


def updater(name: str, version: str, subresource: str) -> Manager:
    """Return who updates."""
    return Manager(name or "unknown", UPDATE, version, subresource)


def read(entries: Any) -> dict[Manager, Owned]:
    """Return the managers of an object; raise Unreadable."""
    found: dict[Manager, Owned] = {}
    for index, entry in enumerate(entries or ()):
        operation, version = entry.get("operation"), entry.get("apiVersion", "")
        if operation not in {APPLY, UPDATE}:
            raise Unreadable("operation must be `Apply` or `Update`")
        if not version:
            raise Unreadable("apiVersion must not be empty")
        if not entry.get("fieldsType"):
            raise Unreadable(f"missing fieldsType in managed fields entry {index}")
        if entry["fieldsType"] != "FieldsV1":
            kind = entry["fieldsType"]
            raise Unreadable(f'invalid fieldsType "{kind}" in managed fields entry {index}')
        who = Manager(
            entry.get("manager", ""),
            operation,
            version if operation == UPDATE else "",
            entry.get("subresource", ""),
        )
        found[who] = Owned(_fields(entry), version, entry.get("time"))
    return found


def _fields(entry: Json) -> FieldSet:
    try:
        return fieldpath.from_wire(entry.get("fieldsV1") or {})
    except fieldpath.NoFieldSet as wrong:
        raise Unreadable(str(wrong)) from None


def is_reset(entries: Any) -> bool:
    """Return whether a client wants the managers forgotten: an empty list, or one empty entry."""
    return entries in ([], [{}])


def written(managers: Managers) -> list[Json]:
    """Return the managers as an object shows them."""
    entries = [_entry(who, owned) for who, owned in managers.items()]
    return sorted(entries, key=_order)


def _entry(who: Manager, owned: Owned) -> Json:
    entry: Json = {"manager": who.name, "operation": who.operation, "apiVersion": owned.version}
    if owned.time:
        entry["time"] = owned.time
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": owned.fields.to_wire()}
    if who.subresource:
        entry["subresource"] = who.subresource
    return entry


def _order(entry: Json) -> tuple[str, ...]:
    parts = ("operation", "time", "manager", "apiVersion", "subresource")
    return tuple(str(entry.get(part) or "") for part in parts)


def capped(managers: dict[Manager, Owned]) -> dict[Manager, Owned]:
    """Return the managers with the oldest updaters of a version as one, once there are too many."""
    updaters = [who for who in managers if who.operation == UPDATE]
    if len(updaters) <= UPDATERS_LIMIT:
        return managers
    updaters.sort(key=lambda who: (managers[who].time or "", who))
    result, left = dict(managers), len(updaters)
    first: dict[str, Manager] = {}
    for who in updaters:
        if left <= UPDATERS_LIMIT:
            break
        version = managers[who].version
        bucket = updater(_ANCIENT, version, "")
        if version not in first:
            first[version] = who
            continue
        if bucket not in result:
            result[bucket] = result.pop(first[version])
        mine = result.pop(who) if who != bucket else result[bucket]
        both = mine.fields | result[bucket].fields
        result[bucket] = replace(result[bucket], fields=both, time=mine.time)
        left -= 1
    return result
