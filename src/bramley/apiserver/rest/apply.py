"""Server-side apply: PATCH with a configuration that is created or merged, and the field managers of objects."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.metadata import timestamp
from bramley.apiserver.apimachinery.status import ApiError, Details
from bramley.apiserver.apply import managed_fields, merge, schema, typed
from bramley.apiserver.apply.managed_fields import Manager, VersionedSet
from bramley.apiserver.apply.merge import Applied, Conflicts, Kind
from bramley.apiserver.fields import structs
from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.kinds import shapes
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest import bodies, create, objects, request_options, update
from bramley.apiserver.rest.request_options import WriteOptions
from bramley.apiserver.rest.server import Server, served
from bramley.apiserver.rest.writes import Decision, Put, write
from bramley.apiserver.store.records import Record
from bramley.base.errors import Cause

MANAGED_FIELDS = "managedFields"
_NAME_LIMIT = 128


async def apply(server: Server, request: Request, target: Target) -> Response:
    """Apply the configuration in the body to an object, or to its status."""
    options = request_options.apply_options(request)
    config = await _read(request, options)
    kind = kind_of(target.resource, target.subresource)
    decide = _Apply(server, request, target, config, options, kind).decide
    written = await write(server, target.resource, target.key, decide, dry_run=options.dry_run)
    return await update.write_response(server, target, written, options)


def kind_of(resource: ServedResource, subresource: str) -> Kind:
    """Return the properties of a resource that apply needs."""
    return Kind(
        schema=_schema(resource),
        version=resource.api_version,
        subresource=subresource,
        is_custom=resource.is_custom,
        has_status=resource.has_status,
    )


def _schema(resource: ServedResource) -> schema.Schema:
    if resource.is_custom:
        known: Any = getattr(resource.structural, "schema", None)
        return schema.of_crd(known or {})
    struct = structs.of_kind(resource.api_version, resource.kind)
    return schema.of_crd({}) if struct is None else schema.of_struct(struct)


def manager_name(requested: str, user_agent: str) -> str:
    """Return the manager name of a writer: the given one, or the first part of its user agent."""
    if requested:
        return requested
    name = "".join(char for char in user_agent.partition("/")[0] if char.isprintable())
    return name.encode()[:_NAME_LIMIT].decode(errors="ignore")


def track_update(new: Json, old: Json, *, submitted: Any, name: str, kind: Kind, now: str) -> Json:
    """Return an update with its writer as a field manager; `submitted` are the managers that the client sent."""
    managers = _known(submitted, old, kind)
    live, bare = without_managers(old), without_managers(new)
    if not managers:
        return bare
    manager = managed_fields.updater(name, kind.version, kind.subresource)
    updated = merge.update(live, bare, managers, manager=manager, kind=kind, now=now)
    return with_managers(bare, updated)


def _known(submitted: Any, old: Json, kind: Kind) -> dict[Manager, VersionedSet]:
    """Return the current managers: those that the client sent if they are valid, else the stored ones."""
    if not kind.subresource:
        if managed_fields.is_reset(submitted):
            return {}
        if readable := _readable(submitted):
            return readable
    return _readable(old["metadata"].get(MANAGED_FIELDS))


def _readable(entries: Any) -> dict[Manager, VersionedSet]:
    try:
        return managed_fields.decode(entries)
    except managed_fields.InvalidManagedFields:
        return {}


def without_managers(body: Json) -> Json:
    """Return an object without its managers."""
    if MANAGED_FIELDS not in body["metadata"]:
        return body
    metadata = {key: each for key, each in body["metadata"].items() if key != MANAGED_FIELDS}
    return {**body, "metadata": metadata}


def with_managers(body: Json, managers: dict[Manager, VersionedSet]) -> Json:
    """Return an object with its managers."""
    if not managers:
        return without_managers(body)
    metadata = {**body["metadata"], MANAGED_FIELDS: managed_fields.encode(managers)}
    return {**body, "metadata": metadata}


async def _read(request: Request, options: WriteOptions) -> Json:
    data = await request.body()
    try:
        value = bodies.from_yaml(data)
    except bodies.Unreadable as wrong:
        reason = f"error converting YAML to JSON: {wrong}"
        raise status.bad_request(f"error decoding YAML: {reason}") from None
    if value is None:
        value = {}
    if type(value) is not dict:
        reason = "json: cannot unmarshal into Go value of type map[string]interface {}"
        raise status.bad_request(f"error decoding YAML: {reason}")
    duplicate_keys = (
        bodies.duplicate_fields(data) if options.validation in {"Strict", "Warn"} else []
    )
    if duplicate_keys and options.strict:
        duplicates = ", ".join(f'key "{each}" already set in map' for each in duplicate_keys)
        raise status.bad_request(f"error strict decoding YAML: {duplicates}")
    return value


def _check(config: Json, target: Target) -> None:
    """Raise an error unless the configuration is of the target's kind."""
    resource = target.resource
    if (config.get("kind"), config.get("apiVersion")) != (resource.kind, resource.api_version):
        raise status.bad_request(f"invalid object type: {_type(config)}")
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and metadata.get(MANAGED_FIELDS) is not None:
        raise status.bad_request("metadata.managedFields must be nil")
    schema = kind_of(resource, "").schema
    if wrong := typed.validation_error(config, schema):
        named = metadata if isinstance(metadata, dict) else {}
        about = f"{named.get('namespace', '')}/{named.get('name', '')}; {_type(config)}"
        raise ApiError(500, "", f"failed to create typed patch object ({about}): {wrong}")


def _type(config: Json) -> str:
    group, _, version = str(config.get("apiVersion") or "").rpartition("/")
    return f"{group}/{version}, Kind={config.get('kind') or ''}"


class _Apply(msgspec.Struct, frozen=True):
    """One apply request."""

    server: Server
    request: Request
    target: Target
    config: Json
    options: WriteOptions
    kind: Kind

    def decide(self, current: Record | None) -> Decision:
        """Return the decision to create or to change the object."""
        _check(self.config, self.target)
        return self._create() if current is None else self._change(current)

    def _create(self) -> Decision:
        server, target, resource = self.server, self.target, self.target.resource
        if target.subresource:
            raise status.not_found(resource.details(target.name))
        empty = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {}}
        applied = self._applied(empty, {})
        new = self._shaped(applied.new, None)
        if uid := new["metadata"].get("uid"):
            reason = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise status.conflict(resource.details(target.name), reason)
        create.check_can_create(server, resource, target.namespace, target.name)
        made = create.decide_create(server, resource, new)(None)
        if not isinstance(made, Put):
            return made
        return Put(with_managers(made.new, applied.managers), created=True)

    def _change(self, current: Record) -> Decision:
        old = served(current, self.target.resource)
        try:
            managers = managed_fields.decode(old["metadata"].get(MANAGED_FIELDS))
        except managed_fields.InvalidManagedFields as wrong:
            raise ApiError(500, "", f"failed to decode managed fields: {wrong}") from None
        applied = self._applied(without_managers(old), managers)
        renewed = merge.with_last_applied(applied.new, self.config, self.options.manager)
        return update.decide_update(
            self.server,
            self._shaped(renewed, old),
            old,
            current=current,
            target=self.target,
            track_managers=lambda final: with_managers(final, applied.managers),
        )

    def _applied(self, live: Json, managers: dict[Manager, VersionedSet]) -> Applied:
        options, kind = self.options, self.kind
        manager = managed_fields.applier(options.manager, kind.subresource)
        now = timestamp(self.server.clock.now())
        merged = partial(
            merge.apply, live, self.config, managers, manager=manager, kind=kind, now=now
        )
        try:
            return merged(force=options.force)
        except Conflicts as conflicts:
            # Fields that a client-side apply set, and that are unchanged since, move to the new manager without a conflict.
            unchanged = merge.unchanged_since_client_apply(live, options.manager, kind)
            remaining = conflicts.without(unchanged)
            if remaining is not None:
                raise _conflict(remaining) from None
        return merged(force=True)

    def _shaped(self, new: Json, old: Json | None) -> Json:
        """Return the merged object with its kind first, checked against its kind's shape."""
        target, resource = self.target, self.target.resource
        new = {"kind": resource.kind, "apiVersion": resource.api_version, **new}
        new["metadata"] = dict(new.get("metadata") or {})
        try:
            bodies.check_shape(new, resource, options=self.options, request=self.request, old=old)
        except shapes.WrongShape as wrong:
            raise ApiError(500, "", str(wrong)) from None
        objects.check_name_and_namespace(new, name=target.name, namespace=target.namespace)
        return new


def _conflict(conflicts: Conflicts) -> ApiError:
    from bramley.apiserver.apply import fieldpath

    pairs: list[tuple[str, str]] = []
    for manager, fields in sorted(conflicts.fields.items()):
        described = manager.describe(conflicts.managers[manager].version)
        pairs += [(described, fieldpath.format_path(path)) for path in fields.paths()]
    causes = [
        Cause(path, "FieldManagerConflict", f"conflict with {manager}") for manager, path in pairs
    ]
    return ApiError(409, "Conflict", _sentence(pairs), causes=causes, details=Details())


def _sentence(pairs: list[tuple[str, str]]) -> str:
    if len(pairs) == 1:
        manager, path = pairs[0]
        return f"Apply failed with 1 conflict: conflict with {manager}: {path}"
    lines: dict[str, list[Any]] = {}
    for manager, path in pairs:
        lines.setdefault(manager, []).append(path)
    text = "\n".join(
        "\n".join([f"conflicts with {manager}:", *(f"- {path}" for path in paths)])
        for manager, paths in lines.items()
    )
    return f"Apply failed with {len(pairs)} conflicts: {text}"
