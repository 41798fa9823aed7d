"""The finalize subresource of namespaces: the one way to change what holds a namespace until its contents are gone."""

from __future__ import annotations

from dataclasses import replace as replaced

from bramley.apiserver.apimachinery import metadata, status
from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.kinds import core
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest import bodies, objects, options, terminating
from bramley.apiserver.rest.server import Server, served
from bramley.apiserver.rest.writing import Decision, Keep, Put, Remove, write
from bramley.apiserver.store.records import Record


async def replace(server: Server, request: Request, target: Target) -> Response:
    """Replace the finalizers in a namespace's spec; a namespace that is ending and has none left is gone with it."""
    resource = target.resource
    how = options.writing(request, "UpdateOptions")
    body = await bodies.read_object(request, resource, how)
    objects.check_address(body, name=target.name, namespace="")

    def decide(current: Record | None) -> Decision:
        if current is None:
            raise status.not_found(resource.details(target.name))
        old = served(current, resource)
        objects.check_version(body, old, resource)
        new = _finalized(body, old)
        _check(new, resource)
        if objects.is_finished(new, old, resource):
            return Remove(new)
        return Keep(current) if objects.is_unchanged(new, old) else Put(new)

    written = await write(server, resource, target.key, decide, dry_run=how.dry_run)
    if not how.dry_run:
        await terminating.after(server, resource, target.key, written.decision)
    return Response(written.body)


def _finalized(body: Json, old: Json) -> Json:
    spec = {key: value for key, value in objects.part(old, "spec").items() if key != "finalizers"}
    finalizers = body.get("spec", {}).get("finalizers", [])
    if finalizers:
        spec["finalizers"] = finalizers
    meta = metadata.carried_over(body["metadata"], old["metadata"])
    new = {**old, "metadata": meta, "spec": spec}
    core.default_namespace(new)
    return new


def _check(new: Json, resource: ServedResource) -> None:
    found = metadata.check_qualified_finalizers(new["spec"].get("finalizers", []))
    if found:
        moved = [replaced(each, field=each.field.replace("metadata.", "spec.")) for each in found]
        raise status.invalid(resource.kind_details(new["metadata"]["name"]), moved)
