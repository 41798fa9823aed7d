"""Binding a Pod to a node: the `binding` subresource, and Bindings, which are the same under an older path."""

from __future__ import annotations

from bramley.apiserver.apimachinery import metadata, status
from bramley.apiserver.apimachinery.status import ApiError, Details
from bramley.apiserver.http.exchange import Request, Response, json_response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.registry.resources import Json, Rules, ServedResource
from bramley.apiserver.rest import bodies, objects, options
from bramley.apiserver.rest.conditions import with_condition
from bramley.apiserver.rest.server import Server, served
from bramley.apiserver.rest.writing import Decision, Put, write
from bramley.apiserver.store.records import Key, Record

BINDING = ServedResource(
    group="",
    version="v1",
    kind="Binding",
    plural="bindings",
    namespaced=True,
    is_custom=False,
    rules=Rules(shape="v1.Binding"),
)
_PODS = "pods"


async def create(server: Server, request: Request, target: Target) -> Response:
    """Bind the Pod that the path, or else the body, names to the node that the body names."""
    how = options.writing(request, "CreateOptions")
    body = await bodies.read_object(request, BINDING, how)
    objects.settle_namespace(body, target.namespace)
    name = body["metadata"].get("name", "")
    if target.name and target.name != name:
        raise status.bad_request("name in URL does not match name in Binding object")
    _check(body)
    pods = target.resource if target.resource.plural == _PODS else _pods(server)
    key = Key(_PODS, target.namespace, name)
    now = metadata.timestamp(server.clock.now())

    def decide(current: Record | None) -> Decision:
        if current is None:
            raise status.not_found(pods.details(name))
        pod = served(current, pods)
        _check_free(pod, body)
        return Put(_bound(pod, body, now))

    await write(server, pods, key, decide, dry_run=how.dry_run)
    return json_response(status.carried_out(), 201)


def _pods(server: Server) -> ServedResource:
    pods = server.catalog.find("", "v1", _PODS)
    if pods is None:
        raise status.no_such_path()
    return pods


def _check(body: Json) -> None:
    """Raise what a real server raises for a binding to nothing: a plain failure, not a list of causes."""
    goal = body.get("target", {})
    if goal.get("kind", "Node") not in {"", "Node"}:
        message = (
            f'target.kind: Unsupported value: "{goal["kind"]}": supported values: "Node", "<empty>"'
        )
        raise ApiError(500, "", message)
    if not goal.get("name"):
        raise ApiError(500, "", "target.name: Required value")


def _check_free(pod: Json, body: Json) -> None:
    meta, name = pod["metadata"], pod["metadata"]["name"]
    for field, said in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        asked = body["metadata"].get(field)
        if asked and asked != meta[field]:
            why = f"Precondition failed: {said} in precondition: {asked}, {said} in object meta: {meta[field]}"
            raise status.conflict(Details(kind=_PODS, name=name), why)
    if "deletionTimestamp" in meta:
        raise _taken(name, f"pod {name} is being deleted, cannot be assigned to a host")
    node = pod["spec"].get("nodeName")
    if node:
        raise _taken(name, f'pod {name} is already assigned to node "{node}"')
    if pod["spec"].get("schedulingGates"):
        raise _taken(name, f"pod {name} has non-empty .spec.schedulingGates")


def _taken(name: str, why: str) -> ApiError:
    return status.conflict(Details(kind="pods/binding", name=name), why)


def _bound(pod: Json, body: Json, now: str) -> Json:
    bound = with_condition(pod, "PodScheduled", now)
    meta = dict(bound["metadata"])
    for field in ("annotations", "labels"):
        if body["metadata"].get(field):
            meta[field] = {**meta.get(field, {}), **body["metadata"][field]}
    said = {key: value for key, value in bound["status"].items() if key != "nominatedNodeName"}
    spec = {**bound["spec"], "nodeName": body["target"]["name"]}
    return {**bound, "metadata": meta, "spec": spec, "status": said}
