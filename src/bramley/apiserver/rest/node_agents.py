"""Subresources of Pods that the agent on a Pod's node answers: logs, and, so far refused, exec, attach, port-forward and proxy.

The server looks up Pod, container and node as a real one does, and refuses in its words. Where it has no way to nodes, under
virtual time and in tests, it says so.
"""

from __future__ import annotations

from bramley.apiserver.apimachinery import causes, status
from bramley.apiserver.apimachinery.status import ApiError, Details
from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.nodes import kubelet_client
from bramley.apiserver.registry.resources import Json
from bramley.apiserver.rest import node_logs
from bramley.apiserver.rest.server import Server, decoded, served
from bramley.apiserver.store.records import Key

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_NOT_YET = "the embedded API does not pass exec, attach and port-forward on to agents yet"
_COUNTS = ("tailLines", "sinceSeconds", "limitBytes")


async def log(server: Server, request: Request, target: Target) -> Response:
    """Show a container's log as its agent sends it; of a Pod that runs nowhere there is none."""
    _check_log_options(request, target.name)
    pod = _pod(server, target)
    container = _container(pod, request.query.get("container", ""))
    if not pod["spec"].get("nodeName"):
        return Response(b"", 204)
    path = f"/containerLogs/{_path(pod)}/{container}"
    url = _agent(server, pod)
    if server.nodes is None:
        raise _unreachable(url + path, "the embedded API does not reach out to nodes")
    return await node_logs.opened(server.nodes.client, url, path, request, name=target.name)


async def stream(server: Server, request: Request, target: Target) -> Response:
    """Refuse to run a command in a container, or to attach to one."""
    pod = _pod(server, target)
    container = _container(pod, request.query.get("container", ""))
    _check_placed(pod)
    url = _agent(server, pod)
    raise _unreachable(f"{url}/{target.subresource}/{_path(pod)}/{container}", _NOT_YET)


async def forward(server: Server, _request: Request, target: Target) -> Response:
    """Refuse to forward a port."""
    pod = _pod(server, target)
    _check_placed(pod)
    raise _unreachable(f"{_agent(server, pod)}/portForward/{_path(pod)}", _NOT_YET)


async def proxy(server: Server, _request: Request, target: Target) -> Response:
    """Refuse to pass a request on to a Pod, Service or Node."""
    if server.store.get(target.key) is None:
        raise status.not_found(target.resource.details(target.name))
    message = f"the embedded API does not pass requests on to {target.resource.plural}"
    raise status.unavailable(message)


def _pod(server: Server, target: Target) -> Json:
    record = server.store.get(target.key)
    if record is None:
        raise status.not_found(target.resource.details(target.name))
    return served(record, target.resource)


def _path(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _check_log_options(request: Request, name: str) -> None:
    found = []
    for field in _COUNTS:
        text = request.query.get(field, "")
        least = 0 if field == "tailLines" else 1
        if text.removeprefix("-").isdigit() and int(text) < least:
            detail = f"must be greater than {'or equal to ' if least == 0 else ''}0"
            found.append(causes.invalid(field, int(text), detail))
    if found:
        raise status.invalid(Details(kind="PodLogOptions", name=name), found)


def _container(pod: Json, asked: str) -> str:
    """Return the container that is meant; raise a 400 when that cannot be told."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    known = [each["name"] for part in _CONTAINERS for each in spec.get(part, [])]
    if asked:
        if asked not in known:
            raise status.bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    own = [each["name"] for each in spec["containers"]]
    chosen = pod["metadata"].get("annotations", {}).get(_DEFAULT_CONTAINER)
    if chosen in own:
        return str(chosen)
    if len(own) == 1:
        return str(own[0])
    first = [each["name"] for each in spec.get("initContainers", [])]
    message = f"a container name must be specified for pod {name}, choose one of: [{' '.join(own)}]"
    if first:
        message += f" or one of the init containers: [{' '.join(first)}]"
    raise status.bad_request(message)


def _check_placed(pod: Json) -> None:
    if not pod["spec"].get("nodeName"):
        message = f"pod {pod['metadata']['name']} does not have a host assigned"
        raise status.bad_request(message)


def _agent(server: Server, pod: Json) -> str:
    """Return where the agent of a Pod's node listens."""
    name = pod["spec"]["nodeName"]
    record = server.store.get(Key("nodes", "", name))
    if record is None:
        # A real server says so of a Node, too.
        raise status.not_found(Details(kind="pods", name=name))
    return kubelet_client.kubelet_url(decoded(record))


def _unreachable(where: str, why: str) -> ApiError:
    return ApiError(500, "InternalError", f'Internal error occurred: Get "{where}": {why}')
