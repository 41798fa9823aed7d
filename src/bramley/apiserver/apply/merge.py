"""Server-side apply on JSON values: merges a configuration, prunes what is no longer applied, and updates field ownership.

For kubectl, the fields of the last client-side apply are its own, so that the first server-side apply has no conflicts; their
annotation is kept up to date. Pure; the callers default, validate and store the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from bramley.apiserver.apimachinery.patches import same
from bramley.apiserver.apply import fieldpath, typed
from bramley.apiserver.apply.fieldpath import FieldSet
from bramley.apiserver.apply.managed_fields import (
    BEFORE_FIRST_APPLY,
    Manager,
    Managers,
    VersionedSet,
    cap_updaters,
    updater,
)
from bramley.apiserver.apply.schema import Schema

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"


def unchanged_since_client_apply(live: Json, manager: str, kind: Kind) -> FieldSet:
    """Return the fields that kubectl applied on the client side and that are unchanged since."""
    config = _last_applied_config(live) if manager == _KUBECTL else None
    if config is None or config.get("apiVersion") != kind.version:
        return fieldpath.EMPTY
    if typed.validation_error(config, kind.schema) is not None:
        return fieldpath.EMPTY
    compared = typed.compare(config, live, kind.schema)
    applied = typed.to_field_set(config, kind.schema)
    return applied - compared.modified - compared.added - compared.removed


def with_last_applied(new: Json, config: Json, manager: str) -> Json:
    """Return the object with its last-applied annotation updated, if it has one and kubectl applies."""
    if manager != _KUBECTL or not _annotation(new):
        return new
    metadata = dict(config.get("metadata") or {})
    annotations = {
        key: each
        for key, each in (metadata.get("annotations") or {}).items()
        if key != LAST_APPLIED
    }
    if "annotations" in metadata:
        metadata["annotations"] = annotations
    written = msgspec.json.encode({**config, "metadata": metadata}, order="sorted").decode()
    meta = new["metadata"]
    updated = {**meta["annotations"], LAST_APPLIED: f"{written}\n"}
    return {**new, "metadata": {**meta, "annotations": updated}}


def _annotation(body: Json) -> str:
    annotations = body["metadata"].get("annotations") or {}
    return str(annotations.get(LAST_APPLIED) or "")


def _last_applied_config(live: Json) -> Json | None:
    try:
        config = msgspec.json.decode(_annotation(live) or "null")
    except msgspec.DecodeError:
        return None
    return config if isinstance(config, dict) else None


Json = dict[str, Any]

# Fields that identify an object or that only the server writes have no owner.
_UNOWNED = fieldpath.from_paths(
    [
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "clusterName",
                "generation",
                "managedFields",
                "resourceVersion",
            )
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind as one request path serves it: its schema, version and subresource."""

    schema: Schema
    version: str
    subresource: str = ""
    is_custom: bool = False
    has_status: bool = False

    def owned(self, fields: FieldSet) -> FieldSet:
        """Return the fields that a write through this path can own."""
        if self.subresource == "status":
            owned_roots = ("f:status",) if self.is_custom else ("f:status", "f:metadata")
            return fields.only(*owned_roots)
        return fields.without("f:status") if self.has_status and not self.subresource else fields


class Conflicts(Exception):
    """Other managers own fields that the configuration changes."""

    def __init__(self, fields: Mapping[Manager, FieldSet], managers: Managers) -> None:
        super().__init__()
        self.fields = dict(fields)
        self.managers = managers

    def without(self, allowed: FieldSet) -> Conflicts | None:
        """Return the conflicts about other fields than these, or None."""
        remaining = {
            manager: rest for manager, fields in self.fields.items() if (rest := fields - allowed)
        }
        return Conflicts(remaining, self.managers) if remaining else None


@dataclass(frozen=True, slots=True)
class Applied:
    """An object after an apply, and its managers."""

    new: Json
    managers: dict[Manager, VersionedSet]


def apply(
    live: Json,
    config: Json,
    managers: Managers,
    *,
    manager: Manager,
    kind: Kind,
    force: bool,
    now: str,
) -> Applied:
    """Return the object with a configuration applied; raise Conflicts unless forced."""
    if not managers and live.get("metadata", {}).get("uid"):
        managers = before_first_apply(live, kind, now)
    last = managers.get(manager)
    merged = typed.merge(live, config, kind.schema)
    fields = kind.owned(typed.to_field_set(config, kind.schema))
    current = {**managers, manager: VersionedSet(fields, kind.version, last.time if last else None)}
    # Nothing can be pruned if the manager still applies all of its fields.
    if last is not None and last.fields - fields:
        merged = _prune(merged, current, last.fields, kind.schema)
    owners = _resolve_conflicts(live, merged, current, manager=manager, kind=kind, force=force)
    if manager in owners:
        changed = not same(live, merged)
        applied = owners[manager].fields - _UNOWNED
        owners[manager] = replace(
            owners[manager], fields=applied, time=now if changed else owners[manager].time
        )
        if not applied:
            del owners[manager]
    return Applied(typed.without_removed_fields(merged, live), owners)


def before_first_apply(live: Json, kind: Kind, now: str) -> dict[Manager, VersionedSet]:
    """Return the manager that owns the fields from before the first apply."""
    manager = updater(BEFORE_FIRST_APPLY, kind.version, kind.subresource)
    return update({}, live, {}, manager=manager, kind=kind, now=now)


def update(
    live: Json, new: Json, managers: Managers, *, manager: Manager, kind: Kind, now: str
) -> dict[Manager, VersionedSet]:
    """Return the managers after an update: the updater owns every field that it changed."""
    compared = typed.compare(live, new, kind.schema)
    changed = compared.added | compared.modified
    owners = {
        each: replace(owned, fields=owned.fields - changed - compared.removed)
        for each, owned in managers.items()
        if each != manager
    }
    gained = kind.owned(changed) - _UNOWNED
    if manager in managers:
        before = managers[manager]
        kept = before.fields - compared.removed
        owners[manager] = VersionedSet(kept | gained, kind.version, now if gained else before.time)
    elif gained:
        owners[manager] = VersionedSet(gained, kind.version, now)
    return cap_updaters({each: owned for each, owned in owners.items() if owned.fields})


def _resolve_conflicts(
    live: Json, merged: Json, managers: Managers, *, manager: Manager, kind: Kind, force: bool
) -> dict[Manager, VersionedSet]:
    """Return the managers after the apply took the changed fields over; raise Conflicts unless forced."""
    compared = typed.compare(live, merged, kind.schema)
    changed = compared.added | compared.modified
    conflicting = {
        each: common
        for each, owned in managers.items()
        if each != manager and (common := owned.fields & changed)
    }
    if conflicting and not force:
        raise Conflicts(conflicting, managers)
    owners = dict(managers)
    for each, owned in managers.items():
        if each != manager:
            fields = owned.fields - conflicting.get(each, fieldpath.EMPTY) - compared.removed
            owners[each] = replace(owned, fields=fields)
    return {each: owned for each, owned in owners.items() if owned.fields}


def _prune(merged: Json, managers: Managers, last: FieldSet, schema: Schema) -> Json:
    """Return the object without fields that the manager applied before but not now, and that no other manager owns."""
    before = typed.with_named_members(last, schema)
    everything = typed.with_named_members(typed.to_field_set(merged, schema), schema)
    bare = _all_fields(typed.remove(merged, before, schema), schema)
    owned = reduce(or_, (each.fields for each in managers.values()), fieldpath.EMPTY)
    retained = bare | typed.with_named_members(owned, schema)
    remaining = _all_fields(typed.remove(merged, everything - retained, schema), schema)
    pruned: Json = typed.remove(merged, (everything - remaining) & before, schema)
    return pruned


def _all_fields(value: Any, schema: Schema) -> FieldSet:
    return typed.with_named_members(typed.to_field_set(value, schema), schema)
