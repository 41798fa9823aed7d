"""Query parameters and delete options, parsed and validated: of lists, watches, writes and deletions.

Errors name the kinds of the options, as kube-apiserver does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from bramley.apiserver.apimachinery import causes, status
from bramley.apiserver.apimachinery.causes import quoted
from bramley.apiserver.apimachinery.selectors import Selection, parse_fields, parse_labels
from bramley.apiserver.apimachinery.status import ApiError, Details
from bramley.apiserver.http.exchange import Request
from bramley.apiserver.registry.resources import ServedResource
from bramley.base.errors import Cause

_MANAGER_LIMIT = 128


class ListOptions(msgspec.Struct, frozen=True):
    """The options of a list or watch."""

    selection: Selection
    version: str = ""
    match: str = ""
    limit: int = 0
    continue_token: str = ""
    watch: bool = False
    bookmarks: bool = False
    initial: bool | None = None
    timeout_seconds: int | None = None


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a write."""

    dry_run: bool = False
    validation: str = ""
    manager: str = ""
    force: bool = False

    @property
    def strict(self) -> bool:
        """Return whether unknown fields are refused."""
        return self.validation == "Strict"

    @property
    def silent(self) -> bool:
        """Return whether unknown fields are dropped silently."""
        return self.validation == "Ignore"


def list_options(request: Request, resource: ServedResource) -> ListOptions:
    """Return the options of a list or watch; raise a 422 if they are invalid."""
    query = request.query
    if not query:
        return _ALL
    options = ListOptions(
        selection=_selection(query, resource),
        version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        limit=_integer(query, "limit") or 0,
        continue_token=query.get("continue", ""),
        watch=_flag(query, "watch") or False,
        bookmarks=_flag(query, "allowWatchBookmarks") or False,
        initial=_flag(query, "sendInitialEvents"),
        timeout_seconds=_integer(query, "timeoutSeconds"),
    )
    _refuse("ListOptions", _validate_watch(options) if options.watch else _validate_list(options))
    return options


_ALL = ListOptions(Selection())


def write_options(request: Request, kind: str) -> WriteOptions:
    """Return the options of a write; `kind` names them in errors."""
    if not request.query:
        return _PLAIN
    errors = []
    manager = request.query.get("fieldManager", "")
    if len(manager.encode()) > _MANAGER_LIMIT:
        errors.append(causes.too_long("fieldManager", _MANAGER_LIMIT))
    errors += _validate_manager(manager)
    dry_run = request.repeated.get("dryRun", [])
    errors += _validate_dry_run(dry_run)
    validation = request.query.get("fieldValidation", "")
    if validation not in {"", "Ignore", "Strict", "Warn"}:
        allowed = ("", "Ignore", "Strict", "Warn")
        errors.append(causes.unsupported("fieldValidation", validation, allowed))
    _refuse(kind, errors)
    return WriteOptions(dry_run=bool(dry_run), validation=validation, manager=manager)


_PLAIN = WriteOptions()


def patch_options(request: Request) -> WriteOptions:
    """Return the options of a patch."""
    if "force" in request.query:
        detail = "may not be specified for non-apply patch"
        _refuse("PatchOptions", [causes.forbidden("force", detail)])
    return write_options(request, "PatchOptions")


def apply_options(request: Request) -> WriteOptions:
    """Return the options of a server-side apply, which needs a field manager."""
    options = write_options(request, "PatchOptions")
    if not options.manager:
        detail = "is required for apply patch"
        _refuse("PatchOptions", [causes.required("fieldManager", detail)])
    return replace(options, force=bool(_flag(request.query, "force")))


def parse_version(text: str) -> int:
    """Return a version as a number; raise a 500, as kube-apiserver does, if it is not one."""
    if text.isascii() and text.isdigit():
        return int(text)
    raise ApiError(500, "", f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax")


def _selection(query: Mapping[str, str], resource: ServedResource) -> Selection:
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if not labels and not fields:
        return Selection()
    return Selection(
        parse_labels(labels) if labels else (),
        parse_fields(fields, resource.stored_field) if fields else (),
    )


def _flag(query: Mapping[str, str], name: str) -> bool | None:
    text = query.get(name)
    return None if text is None else text not in {"false", "0"}


def _integer(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        message = f"strconv.ParseInt: parsing {quoted(text)}: invalid syntax"
        raise status.bad_request(message) from None


def _validate_list(options: ListOptions) -> list[Cause]:
    errors = []
    if options.match:
        errors += _validate_match(options)
    if options.initial is not None:
        detail = "sendInitialEvents is forbidden for list"
        errors.append(causes.forbidden("sendInitialEvents", detail))
    return errors


def _validate_match(options: ListOptions) -> list[Cause]:
    field = "resourceVersionMatch"
    errors = []
    if not options.version:
        detail = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        errors.append(causes.forbidden(field, detail))
    if options.continue_token:
        detail = "resourceVersionMatch is forbidden when continue is provided"
        errors.append(causes.forbidden(field, detail))
    if options.match not in {"Exact", "NotOlderThan"}:
        errors.append(causes.unsupported(field, options.match, ("Exact", "NotOlderThan", "")))
    if options.match == "Exact" and options.version == "0":
        detail = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        errors.append(causes.forbidden(field, detail))
    return errors


def _validate_watch(options: ListOptions) -> list[Cause]:
    field, match = "resourceVersionMatch", options.match
    errors = []
    if options.initial is not None and match != "NotOlderThan":
        detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        errors.append(causes.forbidden(field, detail))
    if match and options.initial is None:
        detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors.append(causes.forbidden(field, detail))
    if match and match != "NotOlderThan":
        errors.append(causes.unsupported(field, match, ("NotOlderThan",)))
    # A watch from the start has initial events, and these need a match.
    from_start = not match and options.initial is None and options.version in {"", "0"}
    if options.continue_token and (match or from_start):
        detail = "resourceVersionMatch is forbidden when continue is provided"
        errors.append(causes.forbidden(field, detail))
    return errors


def _validate_manager(manager: str) -> list[Cause]:
    return [
        causes.invalid(
            "fieldManager", manager, f"invalid character U+{ord(char):04X} (at position {index})"
        )
        for index, char in enumerate(manager)
        if not char.isprintable()
    ]


def _validate_dry_run(values: list[str]) -> list[Cause]:
    wrong = any(each != "All" for each in values)
    return [causes.unsupported("dryRun", values, ("All",))] if wrong else []


def _refuse(kind: str, errors: list[Cause]) -> None:
    if errors:
        raise status.invalid(Details("meta.k8s.io", kind), errors)


class DeleteOptions(msgspec.Struct, frozen=True):
    """The options of a deletion."""

    dry_run: bool = False
    grace_seconds: int | None = None
    uid: str | None = None
    version: str | None = None
    propagation: str = ""
    orphan: bool | None = None


def delete_options(body: Mapping[str, Any] | None, request: Request) -> DeleteOptions:
    """Return the options of a deletion, from its body or, without one, from the parameters."""
    fields: Mapping[str, Any] = body if body is not None else _delete_parameters(request)
    errors = []
    orphan, propagation = fields.get("orphanDependents"), fields.get("propagationPolicy")
    if orphan is not None and propagation is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(causes.invalid("propagationPolicy", propagation, detail))
    if propagation not in {None, "Foreground", "Background", "Orphan"}:
        allowed = ("Foreground", "Background", "Orphan", "nil")
        errors.append(causes.unsupported("propagationPolicy", propagation, allowed))
    dry_run = fields.get("dryRun") or []
    errors += _validate_dry_run(dry_run)
    _refuse("DeleteOptions", errors)
    preconditions = fields.get("preconditions") or {}
    return DeleteOptions(
        dry_run=bool(dry_run),
        grace_seconds=fields.get("gracePeriodSeconds"),
        uid=preconditions.get("uid"),
        version=preconditions.get("resourceVersion"),
        propagation=propagation or "",
        orphan=orphan,
    )


_DELETE_KIND = "DeleteOptions"
_DELETE_FIELDS: dict[str, type] = {
    "gracePeriodSeconds": int,
    "orphanDependents": bool,
    "propagationPolicy": str,
    "dryRun": list,
    "preconditions": dict,
}


def check_delete_body(body: Any) -> dict[str, Any]:
    """Return a body as delete options; raise a 400 for fields of another type, and ignore unknown ones."""
    if type(body) is not dict:
        raise status.bad_request("couldn't get version/kind; json parse error: not an object")
    fields = {key: value for key, value in body.items() if value is not None}
    if fields.get("kind", _DELETE_KIND) != _DELETE_KIND:
        # A body of another kind must not delete anything; kube-apiserver answers with a 500.
        version = quoted(str(fields.get("apiVersion", "")))
        message = f"no kind {quoted(str(fields['kind']))} is registered for version {version}"
        raise ApiError(500, "", message)
    for field, expected in _DELETE_FIELDS.items():
        if field in fields and type(fields[field]) is not expected:
            message = f"json: cannot unmarshal value into Go struct field DeleteOptions.{field}"
            raise status.bad_request(message)
    return fields


def _delete_parameters(request: Request) -> dict[str, Any]:
    query = request.query
    return {
        "gracePeriodSeconds": _integer(query, "gracePeriodSeconds"),
        "orphanDependents": _flag(query, "orphanDependents"),
        "propagationPolicy": query.get("propagationPolicy") or None,
        "dryRun": request.repeated.get("dryRun", []),
    }
