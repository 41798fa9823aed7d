"""Subresources that write: bindings, finalizers of namespaces, scales, ephemeral containers and resizes of Pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace as replaced

from bramley.apiserver.apimachinery import causes, metadata, status
from bramley.apiserver.apimachinery.status import ApiError, Details
from bramley.apiserver.http.exchange import Request, Response, json_response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.kinds import core, pods, shapes
from bramley.apiserver.kinds.definitions import kind
from bramley.apiserver.kinds.virtual import SCALE
from bramley.apiserver.registry.resources import Json, ScalePaths, ServedResource, ValidateUpdate
from bramley.apiserver.rest import bodies, delete, objects, patch, request_options, scales, update
from bramley.apiserver.rest.objects import with_condition
from bramley.apiserver.rest.request_options import WriteOptions
from bramley.apiserver.rest.server import Server, existing, served
from bramley.apiserver.rest.writes import Decision, Keep, Put, Remove, write
from bramley.apiserver.store.records import Key, Record

BINDING = kind("Binding")
_PODS = "pods"
PrepareForUpdate = Callable[[Json, Json], None]
_RESIZED = ("resources", "resizePolicy")


async def create_binding(server: Server, request: Request, target: Target) -> Response:
    """Bind the Pod in the path, or else in the body, to the node in the body."""
    options = request_options.write_options(request, "CreateOptions")
    body = await bodies.read_object(request, BINDING, options)
    objects.set_namespace(body, target.namespace)
    name = body["metadata"].get("name", "")
    if target.name and target.name != name:
        raise status.bad_request("name in URL does not match name in Binding object")
    _check_binding(body)
    resource = target.resource if target.resource.plural == _PODS else _pod_resource(server)
    key = Key(_PODS, target.namespace, name)
    now = metadata.timestamp(server.clock.now())

    def decide(current: Record | None) -> Decision:
        pod = served(existing(current, resource, name), resource)
        # Inside the write: of two schedulers only one binds the Pod.
        _check_unbound(pod, body)
        return Put(_bound(pod, body, now))

    await write(server, resource, key, decide, dry_run=options.dry_run)
    return json_response(status.created(), 201)


def _pod_resource(server: Server) -> ServedResource:
    resource = server.catalog.find("", "v1", _PODS)
    if resource is None:
        raise status.no_such_path()
    return resource


def _check_binding(body: Json) -> None:
    """Raise a 500 for a binding without a node, as kube-apiserver does."""
    node = body.get("target", {})
    if node.get("kind", "Node") not in {"", "Node"}:
        message = (
            f'target.kind: Unsupported value: "{node["kind"]}": supported values: "Node", "<empty>"'
        )
        raise ApiError(500, "", message)
    if not node.get("name"):
        raise ApiError(500, "", "target.name: Required value")


def _check_unbound(pod: Json, body: Json) -> None:
    meta, name = pod["metadata"], pod["metadata"]["name"]
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        expected = body["metadata"].get(field)
        if expected and expected != meta[field]:
            reason = f"Precondition failed: {label} in precondition: {expected}, {label} in object meta: {meta[field]}"
            raise status.conflict(Details(kind=_PODS, name=name), reason)
    if "deletionTimestamp" in meta:
        raise _binding_conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    node = pod["spec"].get("nodeName")
    if node:
        raise _binding_conflict(name, f'pod {name} is already assigned to node "{node}"')
    if pod["spec"].get("schedulingGates"):
        raise _binding_conflict(name, f"pod {name} has non-empty .spec.schedulingGates")


def _binding_conflict(name: str, reason: str) -> ApiError:
    return status.conflict(Details(kind="pods/binding", name=name), reason)


def _bound(pod: Json, body: Json, now: str) -> Json:
    bound = with_condition(pod, "PodScheduled", now)
    meta = dict(bound["metadata"])
    for field in ("annotations", "labels"):
        if body["metadata"].get(field):
            meta[field] = {**meta.get(field, {}), **body["metadata"][field]}
    pod_status = {
        key: value for key, value in bound["status"].items() if key != "nominatedNodeName"
    }
    spec = {**bound["spec"], "nodeName": body["target"]["name"]}
    return {**bound, "metadata": meta, "spec": spec, "status": pod_status}


async def finalize_namespace(server: Server, request: Request, target: Target) -> Response:
    """Replace the finalizers in a namespace's spec; a terminating namespace without finalizers is removed."""
    resource = target.resource
    options = request_options.write_options(request, "UpdateOptions")
    body = await bodies.read_object(request, resource, options)
    objects.check_name_and_namespace(body, name=target.name, namespace="")

    def decide(current: Record | None) -> Decision:
        current = existing(current, resource, target.name)
        old = served(current, resource)
        objects.check_version(body, old, resource)
        new = _finalized(body, old)
        _check_finalizers(new, resource)
        if objects.is_deletion_complete(new, old, resource):
            return Remove(new)
        return Keep(current) if objects.is_unchanged(new, old) else Put(new)

    written = await write(server, resource, target.key, decide, dry_run=options.dry_run)
    if not options.dry_run:
        await delete.after_write(server, resource, target.key, written.decision)
    return Response(written.body)


def _finalized(body: Json, old: Json) -> Json:
    spec = {
        key: value for key, value in objects.dict_field(old, "spec").items() if key != "finalizers"
    }
    finalizers = body.get("spec", {}).get("finalizers", [])
    if finalizers:
        spec["finalizers"] = finalizers
    meta = metadata.with_immutable_fields(body["metadata"], old["metadata"])
    new = {**old, "metadata": meta, "spec": spec}
    core.default_namespace(new)
    return new


def _check_finalizers(new: Json, resource: ServedResource) -> None:
    errors = metadata.check_qualified_finalizers(new["spec"].get("finalizers", []))
    if errors:
        moved = [replaced(each, field=each.field.replace("metadata.", "spec.")) for each in errors]
        raise status.invalid(resource.kind_details(new["metadata"]["name"]), moved)


async def replace_pod_subresource(server: Server, request: Request, target: Target) -> Response:
    """Replace the fields of the Pod that the subresource may change."""
    return await update.replace(server, request, _narrowed(target))


async def patch_pod_subresource(server: Server, request: Request, target: Target) -> Response:
    """Patch the fields of the Pod that the subresource may change."""
    return await patch.patch(server, request, _narrowed(target))


def _change_ephemeral_containers(new: Json, old: Json) -> None:
    """Keep everything of a Pod except its ephemeral containers."""
    spec = dict(old["spec"])
    spec.pop("ephemeralContainers", None)
    containers = new.get("spec", {}).get("ephemeralContainers")
    if containers:
        spec["ephemeralContainers"] = containers
    _set_spec(new, old, spec)


def _change_resources(new: Json, old: Json) -> None:
    """Keep everything of a Pod except the resources of its containers."""
    by_name = {each.get("name"): each for each in new.get("spec", {}).get("containers", [])}
    containers = [
        _resized(each, by_name.get(each["name"], each)) for each in old["spec"]["containers"]
    ]
    _set_spec(new, old, {**old["spec"], "containers": containers})


def _resized(container: Json, new: Json) -> Json:
    fixed = {key: value for key, value in container.items() if key not in _RESIZED}
    return {**fixed, **{key: new[key] for key in _RESIZED if key in new}}


def _set_spec(new: Json, old: Json, spec: Json) -> None:
    new["spec"] = spec
    version = new["metadata"].get("resourceVersion")
    new["metadata"] = {**old["metadata"], "resourceVersion": version}


_POD_HOOKS: Mapping[str, tuple[PrepareForUpdate, ValidateUpdate]] = {
    "ephemeralcontainers": (_change_ephemeral_containers, pods.check_ephemeral),
    "resize": (_change_resources, pods.check_resize),
}


def _narrowed(target: Target) -> Target:
    """Return the Pod as a target whose strategy lets only the fields of the subresource change."""
    prepare, validate = _POD_HOOKS[target.subresource]
    strategy = target.resource.strategy
    strategy = replaced(strategy, prepare_for_update=prepare, validate_update=validate)
    return target._replace(resource=replaced(target.resource, strategy=strategy), subresource="")


async def get_scale(server: Server, _request: Request, target: Target) -> Response:
    """Return an object's Scale."""
    record = existing(server.store.get(target.key), target.resource, target.name)
    return json_response(scales.of(served(record, target.resource), paths_of(target), reading=True))


async def replace_scale(server: Server, request: Request, target: Target) -> Response:
    """Scale an object to the replicas of the Scale in the body."""
    options = request_options.write_options(request, "UpdateOptions")
    body = await bodies.read_object(request, SCALE, options)
    objects.check_name_and_namespace(body, name=target.name, namespace=target.namespace)
    return await _scaled(server, request, target, options=options, change=lambda _scale: body)


async def patch_scale(server: Server, request: Request, target: Target) -> Response:
    """Scale an object by a patch of its Scale."""
    options = request_options.patch_options(request)
    change = await patch.read_patch(request, SCALE)

    def patched(scale: Json) -> Json:
        new = change(scale)
        try:
            bodies.check_shape(new, SCALE, options=options, request=request)
        except shapes.WrongShape as wrong:
            raise status.bad_request(str(wrong)) from None
        objects.check_name_and_namespace(new, name=target.name, namespace=target.namespace)
        return new

    return await _scaled(server, request, target, options=options, change=patched)


def paths_of(target: Target) -> ScalePaths:
    """Return the paths of the replicas in the target's kind."""
    if target.resource.scale is None:
        raise status.no_such_path()
    return target.resource.scale


async def _scaled(
    server: Server,
    request: Request,
    target: Target,
    *,
    options: WriteOptions,
    change: Callable[[Json], Json],
) -> Response:
    resource, paths = target.resource, paths_of(target)

    def decide(current: Record | None) -> Decision:
        current = existing(current, resource, target.name)
        old = served(current, resource)
        scale = change(scales.of(old, paths))
        _check_scale_version(scale, old, target)
        _check_count(scale, target)
        new = scales.with_replicas(old, scales.desired_replicas(scale), paths)
        track_managers = update.managers_tracker(
            server, request, target, new=new, old=old, options=options
        )
        new = objects.prepare_update(new, old, resource)
        new = new if track_managers is None else track_managers(new)
        return Keep(current) if objects.is_unchanged(new, old) else Put(new)

    written = await write(server, resource, target.key, decide, dry_run=options.dry_run)
    body: Json = bodies.from_json(written.body)
    return json_response(scales.of(body, paths))


def _check_scale_version(scale: Json, old: Json, target: Target) -> None:
    version = scale["metadata"].get("resourceVersion", "")
    if version and version != old["metadata"]["resourceVersion"]:
        request_options.parse_version(version)
        raise status.conflict(target.resource.details(target.name), objects.MODIFIED)


def _check_count(scale: Json, target: Target) -> None:
    replicas = scales.desired_replicas(scale)
    if replicas < 0 and not target.resource.is_custom:
        wrong = causes.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise status.invalid(SCALE.kind_details(target.name), [wrong])
