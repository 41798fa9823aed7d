"""Validation of `metadata`, the same for all kinds: what a new object must have and what an update may not change.

Types are checked before this (see `kinds.shapes`). Fields that did not change are not validated again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from bramley.apiserver.apimachinery import causes, names
from bramley.base.errors import Cause

Json = dict[str, Any]

ANNOTATIONS_LIMIT_BYTES = 256 * 1024
ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"

_IMMUTABLE = "field is immutable"
_STANDARD_FINALIZERS = frozenset({"kubernetes", ORPHAN, FOREGROUND})
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_SYSTEM_FIELDS = (
    "selfLink",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
)


def timestamp(now: datetime) -> str:
    """Return a time in the format of metadata, in whole seconds."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def with_system_fields(metadata: Json, *, uid: UUID, now: datetime) -> Json:
    """Return a new object's metadata with the fields that only the server sets, and without those that a client may not set."""
    own_fields = {key: value for key, value in metadata.items() if key not in _SYSTEM_FIELDS}
    return {**own_fields, "uid": str(uid), "creationTimestamp": timestamp(now)}


def with_immutable_fields(new: Json, old: Json) -> Json:
    """Return an update's metadata with the fields that an update cannot change taken from the old object."""
    updated = dict(new)
    updated.pop("selfLink", None)
    # Field ownership is computed later, for objects that have managed fields.
    if "managedFields" in updated or "managedFields" in old:
        updated.pop("managedFields", None)
        updated |= {"managedFields": old["managedFields"]} if "managedFields" in old else {}
    for field in ("generation", "creationTimestamp", "deletionTimestamp"):
        if field in old:
            updated[field] = old[field]
        elif field == "generation":
            updated.pop(field, None)
    for field in ("uid", "deletionGracePeriodSeconds"):
        if field in old and not updated.get(field):
            updated[field] = old[field]
    return updated


def check_new(metadata: Json, *, namespaced: bool, name_check: names.Check) -> list[Cause]:
    """Return what is wrong with a new object's metadata."""
    errors = [*_names(metadata, name_check), *_namespace(metadata, namespaced=namespaced)]
    if metadata.get("generation", 0) < 0:
        detail = "must be greater than or equal to 0"
        errors.append(causes.invalid("metadata.generation", metadata["generation"], detail))
    return [*errors, *_contents(metadata, {}), *_finalizers(metadata.get("finalizers", []))]


def check_qualified_finalizers(finalizers: list[str]) -> list[Cause]:
    """Return the causes for finalizers that are neither standard ones nor qualified with a domain."""
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        causes.invalid(f"metadata.finalizers[{index}]", each, detail)
        for index, each in enumerate(finalizers)
        if "/" not in each and each not in _STANDARD_FINALIZERS
    ]


def check_change(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update's metadata."""
    errors = _contents(new, old)
    if new.get("finalizers") != old.get("finalizers"):
        errors += _finalizers(new.get("finalizers", []))
        if "deletionTimestamp" in old:
            errors += _no_new_finalizers(new.get("finalizers", []), old.get("finalizers", []))
    fixed = ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")
    errors += [
        causes.invalid(f"metadata.{field}", new.get(field), _IMMUTABLE)
        for field in fixed
        if new.get(field) != old.get(field)
    ]
    return errors


def _names(metadata: Json, name_check: names.Check) -> list[Cause]:
    errors = []
    base, name = metadata.get("generateName", ""), metadata.get("name", "")
    if base:
        wrong = name_check(base, True)
        errors += causes.invalid_each("metadata.generateName", base, wrong)
    if not name:
        return [*errors, causes.required("metadata.name", "name or generateName is required")]
    return errors + causes.invalid_each("metadata.name", name, name_check(name, False))


def _namespace(metadata: Json, *, namespaced: bool) -> list[Cause]:
    namespace = metadata.get("namespace", "")
    if not namespaced:
        detail = "not allowed on this type"
        return [causes.forbidden("metadata.namespace", detail)] if namespace else []
    if not namespace:
        return [causes.required("metadata.namespace")]
    wrong = names.label(namespace)
    return causes.invalid_each("metadata.namespace", namespace, wrong)


def _contents(new: Json, old: Json) -> list[Cause]:
    errors: list[Cause] = []
    if new.get("labels") != old.get("labels"):
        errors += check_labels(new.get("labels", {}), "metadata.labels")
    if new.get("annotations") != old.get("annotations"):
        errors += _annotations(new.get("annotations", {}))
    if new.get("ownerReferences") != old.get("ownerReferences"):
        errors += _owners(new.get("ownerReferences", []))
    return errors


def check_labels(labels: Mapping[str, str], field: str) -> list[Cause]:
    """Return what is wrong with a set of labels at a field."""
    errors = []
    for key, value in labels.items():
        errors += causes.invalid_each(field, key, names.qualified_name(key))
        errors += causes.invalid_each(field, value, names.label_value(value))
    return errors


def _annotations(annotations: Mapping[str, str]) -> list[Cause]:
    field = "metadata.annotations"
    errors = []
    for key in annotations:
        # As in kube-apiserver, the case matters for labels but not for annotations.
        errors += causes.invalid_each(field, key, names.qualified_name(key.lower()))
    size_bytes = sum(len(key.encode()) + len(text.encode()) for key, text in annotations.items())
    if size_bytes > ANNOTATIONS_LIMIT_BYTES:
        errors.append(causes.too_long(field, ANNOTATIONS_LIMIT_BYTES))
    return errors


def _owners(owners: list[Json]) -> list[Cause]:
    field = "metadata.ownerReferences"
    errors: list[Cause] = []
    for owner in owners:
        errors += _owner(owner, field)
    controllers = [owner for owner in owners if owner.get("controller")]
    for extra in controllers[1:]:
        names = " and ".join(
            f"{each.get('kind')}/{each.get('name')}" for each in (controllers[0], extra)
        )
        detail = f'Only one reference can have Controller set to true. Found "true" in references for {names}'
        shown = msgspec.json.encode([_in_order(each) for each in owners]).decode()
        errors.append(Cause(field, "FieldValueInvalid", f"Invalid value: {shown}: {detail}"))
    return errors


def _in_order(owner: Json) -> Json:
    return {key: owner[key] for key in _OWNER_FIELDS if key in owner}


def _owner(owner: Json, field: str) -> list[Cause]:
    errors = []
    if not owner.get("apiVersion", "").rpartition("/")[2]:
        value = owner.get("apiVersion", "")
        errors.append(causes.invalid(f"{field}.apiVersion", value, "version must not be empty"))
    errors += [
        causes.invalid(f"{field}.{part}", "", "must not be empty")
        for part in ("kind", "name", "uid")
        if not owner.get(part)
    ]
    if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Event"):
        detail = "/v1, Kind=Event is disallowed from being an owner"
        shown = msgspec.json.encode(_in_order(owner)).decode()
        errors.append(Cause(field, "FieldValueInvalid", f"Invalid value: {shown}: {detail}"))
    return errors


def _finalizers(finalizers: list[str]) -> list[Cause]:
    field = "metadata.finalizers"
    errors = [
        causes.invalid(field, each, wrong)
        for each in finalizers
        for wrong in names.qualified_name(each)
    ]
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        detail = f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"
        errors.append(causes.invalid(field, finalizers, detail))
    return errors


def _no_new_finalizers(new: list[str], old: list[str]) -> list[Cause]:
    extra = sorted(set(new) - set(old))
    if not extra:
        return []
    listed = ", ".join(causes.quoted(each) for each in extra)
    detail = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
    return [causes.forbidden("metadata.finalizers", detail)]
