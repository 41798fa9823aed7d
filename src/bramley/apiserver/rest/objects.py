"""Preparation of objects for the store: metadata, fields that are kept, defaults and validation.

Pure functions of JSON values and a resource's strategy, without the store. `bodies` has checked the shape before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from uuid import UUID

import msgspec

from bramley.apiserver.apimachinery import metadata, status
from bramley.apiserver.apimachinery.patches import same
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest import scales
from bramley.apiserver.rest.request_options import parse_version
from bramley.apiserver.schema.values import NO_FIELD
from bramley.apiserver.store.records import NO_VALUES, Draft, Removal
from bramley.base.errors import Cause

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
_IDENTITY = frozenset({"kind", "apiVersion", "metadata"})
# Changes or refuses an object in addition to its kind's strategy, in place; takes the new object and the old one, if any.
Admit = Callable[[Json, Json | None], None]


def prepare_create(
    body: Json, resource: ServedResource, *, uid: UUID, now: datetime, admit: Admit | None = None
) -> Json:
    """Return a new object with the fields that the server sets, and without those it may not set; raise a 422 if it is invalid."""
    strategy = resource.strategy
    new = {**body, "metadata": metadata.with_system_fields(body["metadata"], uid=uid, now=now)}
    if resource.has_status and not strategy.status_on_create:
        new.pop("status", None)
    if strategy.counts_generation:
        new["metadata"]["generation"] = 1
    if strategy.prepare_for_create is not None:
        strategy.prepare_for_create(new)
    # Defaults before validation, which expects them to be set.
    _apply_defaults(new, resource)
    _refuse(new, resource, _validate_new(new, resource))
    if admit is not None:
        admit(new, None)
    return new


def prepare_update(
    new: Json, old: Json, resource: ServedResource, admit: Admit | None = None
) -> Json:
    """Return an updated object as it is stored; raise a 422 if it is invalid."""
    new = {**new, "metadata": metadata.with_immutable_fields(new["metadata"], old["metadata"])}
    if resource.has_status:
        _copy_field(new, old, "status")
    if resource.strategy.prepare_for_update is not None:
        resource.strategy.prepare_for_update(new, old)
    _apply_defaults(new, resource)
    # After the defaults: omitting a field that has its default value is no change.
    _count_generation(new, old, resource)
    _refuse(new, resource, _validate_change(new, old, resource))
    if admit is not None:
        admit(new, old)
    return new


def prepare_status_update(new: Json, old: Json, resource: ServedResource) -> Json:
    """Return an object with only the status, and for built-in kinds the metadata, of the update."""
    changed = dict(old)
    _copy_field(changed, new, "status")
    if resource.strategy.status_writes_metadata:
        meta = metadata.with_immutable_fields(new["metadata"], old["metadata"])
        _copy_field(meta, old["metadata"], "ownerReferences")
        changed["metadata"] = meta
    _apply_defaults(changed, resource)
    _refuse(changed, resource, _validate_status(changed, old, resource))
    return changed


def with_condition(pod: Json, kind: str, since: str, **fields: str) -> Json:
    """Return a Pod with a condition set to True; its transition time is kept if it was True before."""
    status = pod.get("status", {})
    conditions = list(status.get("conditions", []))
    new = {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": since}
    for index, each in enumerate(conditions):
        if each["type"] == kind:
            if each["status"] == "True":
                new["lastTransitionTime"] = each.get("lastTransitionTime")
            conditions[index] = {**new, **fields}
            break
    else:
        conditions.append({**new, **fields})
    return {**pod, "status": {**status, "conditions": conditions}}


def dict_field(body: Json, field: str) -> Json:
    """Return a field that is an object; an empty one if it is absent or, stored by an older release, of another type."""
    value = body.get(field)
    return value if isinstance(value, dict) else {}


def check_name_and_namespace(new: Json, *, name: str, namespace: str) -> None:
    """Raise a 400 when an update's name or namespace is not that of the path; set the namespace if it is empty."""
    meta = new.get("metadata")
    if not isinstance(meta, dict) or not meta.get("name"):
        message = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        raise status.bad_request(message)
    if meta["name"] != name:
        message = (
            f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        )
        raise status.bad_request(message)
    set_namespace(new, namespace)


def set_namespace(body: Json, namespace: str) -> None:
    """Set the namespace of the path; raise a 400 when the object has another one."""
    in_body = body["metadata"].get("namespace", "")
    if namespace and in_body and in_body != namespace:
        message = (
            "the namespace of the provided object does not match the namespace sent on the request"
        )
        raise status.bad_request(message)
    if in_body != namespace:
        rest = {key: value for key, value in body["metadata"].items() if key != "namespace"}
        body["metadata"] = {**rest, "namespace": namespace} if namespace else rest


def check_version(new: Json, old: Json, resource: ServedResource) -> None:
    """Raise a 409 when an update is not based on the stored version; set the version of an unconditional update."""
    meta, current = new["metadata"], old["metadata"]["resourceVersion"]
    requested = meta.get("resourceVersion", "")
    if requested == current:
        return
    if requested not in {"", "0"} and parse_version(requested):
        raise status.conflict(resource.details(meta["name"]), MODIFIED)
    if not resource.strategy.unconditional_update:
        wrong = Cause(
            "metadata.resourceVersion",
            "FieldValueInvalid",
            "Invalid value: 0: must be specified for an update",
        )
        raise status.invalid(resource.details(meta["name"]), [wrong])
    new["metadata"] = {**meta, "resourceVersion": current}


def is_unchanged(new: Json, old: Json) -> bool:
    """Return whether an update changes nothing and so needs no new version."""
    # Python's comparison is fast but treats True and 1 as equal, so equal objects are compared again exactly.
    return new == old and same(new, old)


def is_deletion_complete(new: Json, old: Json, resource: ServedResource) -> bool:
    """Return whether an update removes the last finalizer of an object that is being deleted."""
    old_meta, blocks = old["metadata"], resource.strategy.blocks_deletion
    return (
        "deletionTimestamp" in old_meta
        and not new["metadata"].get("finalizers")
        # In its grace period a Pod is removed by the final deletion of its agent, not with its last finalizer.
        and not old_meta.get("deletionGracePeriodSeconds")
        and not (blocks is not None and blocks(new))
    )


def draft(new: Json, rv: int, resource: ServedResource, *, limit_bytes: int) -> Draft:
    """Return an object as a draft for the store, with its version."""
    stored = stored_form(new, rv, resource)
    body = msgspec.json.encode(stored)
    if len(body) > limit_bytes:
        raise status.too_large(f"limit is {limit_bytes}")
    labels = stored["metadata"].get("labels") or NO_VALUES
    return Draft(
        body, labels, resource.selected_fields(stored) if resource.selectable else NO_VALUES
    )


def removal(last: Json, rv: int, resource: ServedResource) -> Removal:
    """Return an object's last state as a removal for the store, with the version of the removal."""
    stored = stored_form(last, rv, resource)
    labels = stored["metadata"].get("labels") or NO_VALUES
    fields = resource.selected_fields(stored) if resource.selectable else NO_VALUES
    return Removal(msgspec.json.encode(stored), labels, fields)


def stored_form(new: Json, rv: int, resource: ServedResource) -> Json:
    """Return an object in its stored API version, with its kind first and its resourceVersion."""
    if resource.conversion is not None:
        new = resource.conversion.to_stored(new)
    else:
        new = {**new, "apiVersion": resource.stored_api_version}
    meta = {**new["metadata"], "resourceVersion": str(rv)}
    rest = {key: value for key, value in new.items() if key not in _IDENTITY}
    return {"kind": new["kind"], "apiVersion": new["apiVersion"], "metadata": meta, **rest}


def _apply_defaults(new: Json, resource: ServedResource) -> None:
    if resource.structural is not None:
        resource.structural.apply_defaults(new)
    if resource.strategy.default is not None:
        resource.strategy.default(new)


def _copy_field(target: Json, source: Json, field: str) -> None:
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)


def _count_generation(new: Json, old: Json, resource: ServedResource) -> None:
    if not resource.strategy.counts_generation:
        return
    changed = _changes_more_than_metadata(new, old, resource)
    if resource.strategy.counts_annotations and not changed:
        changed = new["metadata"].get("annotations") != old["metadata"].get("annotations")
    if changed:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _changes_more_than_metadata(new: Json, old: Json, resource: ServedResource) -> bool:
    """Return whether more than metadata changed; a status with its own subresource does not count."""
    ignored = _IDENTITY | {"status"} if resource.has_status else _IDENTITY
    return any(new.get(key) != old.get(key) for key in (new.keys() | old.keys()) - ignored)


def _validate_new(new: Json, resource: ServedResource) -> list[Cause]:
    errors = metadata.check_new(
        new["metadata"], namespaced=resource.namespaced, name_check=resource.strategy.name
    )
    errors += _validate_finalizers(new, {}, resource)
    return errors + _validate(new, None, resource)


def _validate_change(new: Json, old: Json, resource: ServedResource) -> list[Cause]:
    errors = metadata.check_change(new["metadata"], old["metadata"])
    errors += _validate_finalizers(new, old["metadata"], resource)
    errors += _validate(new, old, resource)
    if resource.strategy.validate_update is not None:
        errors += resource.strategy.validate_update(new, old)
    return errors


def _validate_finalizers(new: Json, old_metadata: Json, resource: ServedResource) -> list[Cause]:
    finalizers = new["metadata"].get("finalizers", [])
    if not resource.strategy.qualified_finalizers or finalizers == old_metadata.get("finalizers"):
        return []
    return metadata.check_qualified_finalizers(finalizers)


def _validate_status(new: Json, old: Json, resource: ServedResource) -> list[Cause]:
    errors = metadata.check_change(new["metadata"], old["metadata"])
    if resource.structural is not None:
        wrong = resource.structural.validate(new, old)
        errors += [_relative_to_status(each) for each in wrong if not each.field.startswith("spec")]
    if resource.scale is not None:
        errors = _insert_scale_errors(errors, scales.check_counts(new, resource.scale))
    if resource.strategy.validate_status is not None:
        errors += resource.strategy.validate_status(new, old)
    return errors


def _relative_to_status(cause: Cause) -> Cause:
    # kube-apiserver names the fields relative to the status here.
    inside = cause.field.removeprefix("status.")
    return Cause(
        cause.field,
        cause.reason,
        cause.message.replace(f"{cause.field} in body", f"{inside} in body"),
    )


def _validate(new: Json, old: Json | None, resource: ServedResource) -> list[Cause]:
    errors: list[Cause] = []
    if resource.structural is not None:
        errors += resource.structural.validate(new, old)
    if resource.scale is not None:
        errors = _insert_scale_errors(errors, scales.check(new, resource.scale))
    if resource.strategy.validate is not None:
        wrong = resource.strategy.validate(new)
        errors += wrong if old is None else _errors_of_update(wrong, new, old, resource)
    return errors


def _errors_of_update(
    errors: list[Cause], new: Json, old: Json, resource: ServedResource
) -> list[Cause]:
    """Return the errors of an update; if only metadata changed, so that old invalid objects can lose their finalizers, only those of the metadata."""
    if not errors or _changes_more_than_metadata(new, old, resource):
        return errors
    return [each for each in errors if each.field.startswith("metadata")]


def _insert_scale_errors(errors: list[Cause], unscalable: list[Cause]) -> list[Cause]:
    """Return all errors, with those of the scale before the note that rules were not evaluated."""
    skipped = [each for each in errors if each.field == NO_FIELD]
    reported = [each for each in errors if each.field != NO_FIELD]
    return [*reported, *unscalable, *skipped]


def _refuse(new: Json, resource: ServedResource, errors: Iterable[Cause]) -> None:
    causes = list(errors)
    if causes:
        raise status.invalid(resource.kind_details(new["metadata"].get("name", "")), causes)


def version_on_create() -> ApiError:
    """Return the error for a new object with a resourceVersion; kube-apiserver uses this code without a reason."""
    return ApiError(500, "", "resourceVersion should not be set on objects to be created")
