"""POST: create an object in a namespace that exists and is not terminating, under a given or generated name."""

from __future__ import annotations

from bramley.apiserver.apimachinery import names, status
from bramley.apiserver.apimachinery.status import ApiError, Details
from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest import admission, bodies, delete, objects, request_options
from bramley.apiserver.rest.request_options import WriteOptions
from bramley.apiserver.rest.server import Server, namespace_key
from bramley.apiserver.rest.writes import Decide, Put, Written, write
from bramley.apiserver.store.records import Key, Record
from bramley.base.errors import Cause


async def create(server: Server, request: Request, target: Target) -> Response:
    """Create an object from the request's body."""
    resource = target.resource
    options = request_options.write_options(request, "CreateOptions")
    body = await bodies.read_object(request, resource, options)
    objects.set_namespace(body, target.namespace)
    check_can_create(server, resource, target.namespace, body["metadata"].get("name", ""))
    if resource.is_custom:
        bodies.check_kind(body, resource)
    await admission.wait_for_account(server, resource, body)
    written = await _create(server, target, body, options)
    return Response(written.body, 201)


async def _create(server: Server, target: Target, body: Json, options: WriteOptions) -> Written:
    resource = target.resource
    tries = 1 if body["metadata"].get("name") else server.settings.generate_name_tries
    while True:
        tries -= 1
        named = _with_name(body, server)
        name = named["metadata"].get("name", "")
        decide = decide_create(server, resource, named)
        try:
            key = Key(resource.stored_name, target.namespace, name)
            written = await write(server, resource, key, decide, dry_run=options.dry_run)
        except ApiError as error:
            if error.reason != "AlreadyExists" or body["metadata"].get("name"):
                raise
            if not tries:
                raise _no_free_name(resource, name) from None
        else:
            await delete.after_write(server, resource, key, written.decision)
            return written


def decide_create(server: Server, resource: ServedResource, body: Json) -> Decide:
    """Return the decision to create an object if there is none of its name."""
    now, uid = server.clock.now(), server.uid()

    def decide(current: Record | None) -> Put:
        admit = server.admission(resource)
        admitted = admission.mutate(server, resource, body)
        new = objects.prepare_create(admitted, resource, uid=uid, now=now, admit=admit)
        if server.agent_guard is not None:
            # Before the check for an existing object, so that an agent that may not create it does not learn that it exists.
            server.agent_guard(new, None)
        if current is not None:
            raise status.already_exists(resource.details(new["metadata"]["name"]))
        if body["metadata"].get("resourceVersion"):
            raise objects.version_on_create()
        return Put(admission.finish_create(server, resource, new), created=True)

    return decide


def check_can_create(server: Server, resource: ServedResource, namespace: str, name: str) -> None:
    """Raise an error when nothing may be created there: the namespace is missing, or it or the CRD is terminating."""
    if resource.is_custom:
        delete.check_crd_not_terminating(server, resource)
    if not namespace:
        return
    record = server.store.get(namespace_key(namespace))
    if record is None:
        raise status.not_found(Details(kind="namespaces", name=namespace))
    # The set has a namespace from the decision to delete it; the record shows that only once it is durable.
    if namespace in server.terminating_namespaces or delete.is_terminating(record):
        reason = (
            f"unable to create new content in namespace {namespace} because it is being terminated"
        )
        refusal = status.forbidden(resource.details(name or "Unknown"), reason)
        cause = Cause(
            "metadata.namespace",
            "NamespaceTerminating",
            f"namespace {namespace} is being terminated",
        )
        refusal.causes = (cause,)
        raise refusal


def _with_name(body: Json, server: Server) -> Json:
    meta = body["metadata"]
    if meta.get("name") or not meta.get("generateName"):
        return body
    name = names.generate(meta["generateName"], server.rng)
    return {**body, "metadata": {**meta, "name": name}}


def _no_free_name(resource: ServedResource, name: str) -> ApiError:
    error = status.already_exists(resource.details(name))
    message = f"{error.message}, the server was not able to generate a unique name for the object"
    return ApiError(409, "AlreadyExists", message, details=error.details, retry_after=1)
