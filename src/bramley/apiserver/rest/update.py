"""PUT of an object or its status, and the decision that all updates share."""

from __future__ import annotations

from collections.abc import Callable

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.metadata import timestamp
from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest import bodies, create, delete, objects, request_options
from bramley.apiserver.rest.request_options import WriteOptions
from bramley.apiserver.rest.server import Server, existing, served
from bramley.apiserver.rest.writes import Decision, Keep, Put, Remove, Written, write
from bramley.apiserver.store.records import Record

# Sets the field managers of an object that is about to be stored.
TrackManagers = Callable[[Json], Json]


async def replace(server: Server, request: Request, target: Target) -> Response:
    """Replace an object, or its status, by the one in the body."""
    resource = target.resource
    options = request_options.write_options(request, "UpdateOptions")
    body = await bodies.read_object(request, resource, options)
    objects.check_name_and_namespace(body, name=target.name, namespace=target.namespace)

    def decide(current: Record | None) -> Decision:
        if current is None and resource.strategy.create_on_update and not target.subresource:
            # Inside the write: the namespace may have begun to terminate since the request arrived.
            create.check_can_create(server, resource, target.namespace, target.name)
            return create.decide_create(server, resource, body)(None)
        current = existing(current, resource, target.name)
        old = served(current, resource)
        _check_uid(body, old, resource)
        track_managers = managers_tracker(
            server, request, target, new=body, old=old, options=options
        )
        return decide_update(
            server, body, old, current=current, target=target, track_managers=track_managers
        )

    written = await write(server, resource, target.key, decide, dry_run=options.dry_run)
    return await write_response(server, target, written, options)


def decide_update(
    server: Server,
    new: Json,
    old: Json,
    *,
    current: Record,
    target: Target,
    track_managers: TrackManagers | None = None,
) -> Decision:
    """Return the decision for a changed object: keep the stored one, store the new one, or remove it."""
    resource = target.resource
    # Against the head: of two updates from the same version the second gets a 409, even if the first is not durable yet.
    objects.check_version(new, old, resource)
    if target.subresource == "status":
        new = objects.prepare_status_update(new, old, resource)
    else:
        new = objects.prepare_update(new, old, resource, server.admission(resource))
    if objects.is_deletion_complete(new, old, resource):
        return Remove(new)
    if track_managers is not None:
        new = track_managers(new)
    return Keep(current) if objects.is_unchanged(new, old) else Put(new)


def managers_tracker(
    server: Server, request: Request, target: Target, *, new: Json, old: Json, options: WriteOptions
) -> TrackManagers | None:
    """Return a function that adds the writer to the field managers of an object; None if it has no managers."""
    submitted = new["metadata"].get("managedFields")
    if submitted is None and "managedFields" not in old["metadata"]:
        return None
    from bramley.apiserver.rest import apply

    def track_managers(final: Json) -> Json:
        return apply.track_update(
            final,
            old,
            submitted=submitted,
            name=apply.manager_name(options.manager, request.header(b"user-agent")),
            kind=apply.kind_of(target.resource, target.subresource),
            now=timestamp(server.clock.now()),
        )

    return track_managers


def _check_uid(body: Json, old: Json, resource: ServedResource) -> None:
    requested, current = body["metadata"].get("uid"), old["metadata"]["uid"]
    if requested and requested != current:
        reason = (
            f"Precondition failed: UID in precondition: {requested}, UID in object meta: {current}"
        )
        raise status.conflict(resource.details(body["metadata"]["name"]), reason)


async def write_response(
    server: Server, target: Target, written: Written, options: WriteOptions
) -> Response:
    """Return the response to a write, after the actions that must follow it."""
    if not options.dry_run:
        await delete.after_write(server, target.resource, target.key, written.decision)
    created = isinstance(written.decision, Put) and written.decision.created
    return Response(written.body, 201 if created else 200)
