"""`metadata.managedFields`: the field managers of an object, decoded, capped and encoded."""

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


class InvalidManagedFields(ValueError):
    """The list of field managers is invalid."""


class Manager(NamedTuple):
    """A field manager; the version is part of its identity only for updates."""

    name: str
    operation: str
    version: str = ""
    subresource: str = ""

    def describe(self, version: str) -> str:
        """Return the manager as conflict messages name it."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {version}" if self.operation == UPDATE else text


@dataclass(frozen=True, slots=True)
class VersionedSet:
    """The fields that one manager owns, in a version of the API, and the time of its last change."""

    fields: FieldSet
    version: str
    time: str | None = None


Managers = Mapping[Manager, VersionedSet]


def applier(name: str, subresource: str) -> Manager:
    """Return the manager of an apply request."""
    return Manager(name or "unknown", APPLY, "", subresource)


def updater(name: str, version: str, subresource: str) -> Manager:
    """Return the manager of any other write request."""
    return Manager(name or "unknown", UPDATE, version, subresource)


def decode(entries: Any) -> dict[Manager, VersionedSet]:
    """Return the managers by their entries; raise InvalidManagedFields."""
    managers: dict[Manager, VersionedSet] = {}
    for index, entry in enumerate(entries or ()):
        operation, version = entry.get("operation"), entry.get("apiVersion", "")
        if operation not in {APPLY, UPDATE}:
            raise InvalidManagedFields("operation must be `Apply` or `Update`")
        if not version:
            raise InvalidManagedFields("apiVersion must not be empty")
        if not entry.get("fieldsType"):
            raise InvalidManagedFields(f"missing fieldsType in managed fields entry {index}")
        if entry["fieldsType"] != "FieldsV1":
            kind = entry["fieldsType"]
            raise InvalidManagedFields(
                f'invalid fieldsType "{kind}" in managed fields entry {index}'
            )
        manager = Manager(
            entry.get("manager", ""),
            operation,
            version if operation == UPDATE else "",
            entry.get("subresource", ""),
        )
        managers[manager] = VersionedSet(_fields(entry), version, entry.get("time"))
    return managers


def _fields(entry: Json) -> FieldSet:
    try:
        return fieldpath.from_wire(entry.get("fieldsV1") or {})
    except fieldpath.InvalidFieldSet as wrong:
        raise InvalidManagedFields(str(wrong)) from None


def is_reset(entries: Any) -> bool:
    """Return whether the entries ask for a reset of all managers: an empty list, or one empty entry."""
    return entries in ([], [{}])


def encode(managers: Managers) -> list[Json]:
    """Return the sorted entries of the managers."""
    entries = [_entry(manager, owned) for manager, owned in managers.items()]
    return sorted(entries, key=_order)


def _entry(manager: Manager, owned: VersionedSet) -> Json:
    entry: Json = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": owned.version,
    }
    if owned.time:
        entry["time"] = owned.time
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": owned.fields.to_wire()}
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def _order(entry: Json) -> tuple[str, ...]:
    parts = ("operation", "time", "manager", "apiVersion", "subresource")
    return tuple(str(entry.get(part) or "") for part in parts)


def cap_updaters(managers: dict[Manager, VersionedSet]) -> dict[Manager, VersionedSet]:
    """Return the managers with the oldest updaters of each version merged, if there are too many."""
    updaters = [manager for manager in managers if manager.operation == UPDATE]
    if len(updaters) <= UPDATERS_LIMIT:
        return managers
    updaters.sort(key=lambda manager: (managers[manager].time or "", manager))
    result, remaining = dict(managers), len(updaters)
    first: dict[str, Manager] = {}
    for manager in updaters:
        if remaining <= UPDATERS_LIMIT:
            break
        version = managers[manager].version
        bucket = updater(_ANCIENT, version, "")
        if version not in first:
            first[version] = manager
            continue
        if bucket not in result:
            result[bucket] = result.pop(first[version])
        owned = result.pop(manager) if manager != bucket else result[bucket]
        union = owned.fields | result[bucket].fields
        result[bucket] = replace(result[bucket], fields=union, time=owned.time)
        remaining -= 1
    return result
