"""PUT and PATCH of an object or of its status."""

from __future__ import annotations

from collections.abc import Callable

from bramley.apiserver.apimachinery import causes, shapes, status
from bramley.apiserver.apimachinery.metadata import timestamp
from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest import bodies, creating, objects, options, patching, terminating
from bramley.apiserver.rest.options import WriteOptions
from bramley.apiserver.rest.server import Server, served
from bramley.apiserver.rest.writing import Decision, Keep, Put, Remove, Written, write
from bramley.apiserver.store.records import Record

# Has the last word about who manages the fields of an object that is about to be stored.
Settle = Callable[[Json], Json]

read_patch = patching.read


async def replace(server: Server, request: Request, target: Target) -> Response:
    """Replace an object, or its status, by the one in the body."""
    resource = target.resource
    how = options.writing(request, "UpdateOptions")
    body = await bodies.read_object(request, resource, how)
    objects.check_address(body, name=target.name, namespace=target.namespace)

    def decide(current: Record | None) -> Decision:
        if current is None and resource.rules.create_on_update and not target.subresource:
            creating.check_open(server, resource, target.namespace, target.name)
            return creating.creation(server, resource, body)(None)
        current = _existing(current, target)
        old = served(current, resource)
        _check_uid(body, old, resource)
        settle = settling(server, request, target, new=body, old=old, how=how)
        return changed(server, body, old, current=current, target=target, settle=settle)

    written = await write(server, resource, target.key, decide, dry_run=how.dry_run)
    return await answered(server, target, written, how)


async def patch(server: Server, request: Request, target: Target) -> Response:
    """Patch an object, or its status, or apply a configuration to it."""
    media = bodies.media_type(request)
    if media == patching.APPLY:
        from bramley.apiserver.rest import applying

        return await applying.apply(server, request, target)
    how = options.patching(request)
    change = await patching.read(request, target.resource, media=media, validation=how.validation)

    def decide(current: Record | None) -> Decision:
        current = _existing(current, target)
        old = served(current, target.resource)
        new = change(old, current)
        try:
            _shape(new, old, target.resource, how=how, request=request, repeated=change.repeated)
        except shapes.WrongShape as wrong:
            raise change.refusal(old, current, str(wrong)) from None
        objects.check_address(new, name=target.name, namespace=target.namespace)
        settle = settling(server, request, target, new=new, old=old, how=how)
        return changed(server, new, old, current=current, target=target, settle=settle)

    written = await write(server, target.resource, target.key, decide, dry_run=how.dry_run)
    return await answered(server, target, written, how)


def _existing(current: Record | None, target: Target) -> Record:
    if current is None:
        raise status.not_found(target.resource.details(target.name))
    return current


def changed(
    server: Server,
    new: Json,
    old: Json,
    *,
    current: Record,
    target: Target,
    settle: Settle | None = None,
) -> Decision:
    """Return what a changed object leads to: nothing, a new state, or the object's end."""
    resource = target.resource
    objects.check_version(new, old, resource)
    if target.subresource == "status":
        new = objects.with_status(new, old, resource)
    else:
        new = objects.updated(new, old, resource, server.admission(resource))
    if objects.is_finished(new, old, resource):
        return Remove(new)
    if settle is not None:
        new = settle(new)
    return Keep(current) if objects.is_unchanged(new, old) else Put(new)


def settling(
    server: Server, request: Request, target: Target, *, new: Json, old: Json, how: WriteOptions
) -> Settle | None:
    """Return what notes the writer of an object that has managers, if it has any."""
    given = new["metadata"].get("managedFields")
    if given is None and "managedFields" not in old["metadata"]:
        return None
    from bramley.apiserver.rest import ownership

    def settle(final: Json) -> Json:
        return ownership.tracked(
            final,
            old,
            given=given,
            name=ownership.manager_name(how.manager, request.header(b"user-agent")),
            kind=ownership.kind_of(target.resource, target.subresource),
            now=timestamp(server.clock.now()),
        )

    return settle


def _shape(
    new: Json,
    old: Json,
    resource: ServedResource,
    *,
    how: WriteOptions,
    request: Request,
    repeated: tuple[str, ...],
) -> None:
    if new.get("metadata") is None:
        return  # check_address says what is missing
    if resource.is_custom and type(new["metadata"]) is dict:
        bodies.check_kind(new, resource)
    _check_identity(new, resource)
    bodies.shape(new, resource, options=how, request=request, old=old, repeated=repeated)


def _check_identity(new: Json, resource: ServedResource) -> None:
    kind, version = new.get("kind"), new.get("apiVersion")
    if (kind, version) != (resource.kind, resource.api_version):
        detail = f"no kind {causes.shown(kind)} is registered for version {causes.shown(version)}"
        raise shapes.WrongShape(detail)


def _check_uid(body: Json, old: Json, resource: ServedResource) -> None:
    asked, found = body["metadata"].get("uid"), old["metadata"]["uid"]
    if asked and asked != found:
        why = f"Precondition failed: UID in precondition: {asked}, UID in object meta: {found}"
        raise status.conflict(resource.details(body["metadata"]["name"]), why)


async def answered(server: Server, target: Target, written: Written, how: WriteOptions) -> Response:
    """Return the answer to a write, once what has to follow it is done."""
    if not how.dry_run:
        await terminating.after(server, target.resource, target.key, written.decision)
    created = isinstance(written.decision, Put) and written.decision.created
    return Response(written.body, 201 if created else 200)
