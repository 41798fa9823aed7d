"""Subresources of Pods that the agent on a Pod's node would answer: logs, exec, attach, port-forward and proxy.

The server looks up Pod, container and node as a real one does, and refuses in its words. It does not reach out to nodes yet.
"""

from __future__ import annotations

from bramley.apiserver import causes, status
from bramley.apiserver.paths import Target
from bramley.apiserver.resources import Json
from bramley.apiserver.rest.exchange import Answer, Request
from bramley.apiserver.rest.server import Server, decoded, served
from bramley.apiserver.status import ApiError, Details
from bramley.apiserver.store.records import Key

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_COUNTS = ("tailLines", "sinceSeconds", "limitBytes")
_PORT = 10250


async def log(server: Server, request: Request, target: Target) -> Answer:
    """Refuse to show a container's log; of a Pod that runs nowhere there is none."""
    _check_log_options(request, target.name)
    pod = _pod(server, target)
    container = _container(pod, request.query.get("container", ""))
    if not pod["spec"].get("nodeName"):
        return Answer(b"", 204)
    raise _unreachable(server, pod, f"containerLogs/{_path(pod)}/{container}")


async def stream(server: Server, request: Request, target: Target) -> Answer:
    """Refuse to run a command in a container, or to attach to one."""
    pod = _pod(server, target)
    container = _container(pod, request.query.get("container", ""))
    _check_placed(pod)
    raise _unreachable(server, pod, f"{target.subresource}/{_path(pod)}/{container}")


async def forward(server: Server, _request: Request, target: Target) -> Answer:
    """Refuse to forward a port."""
    pod = _pod(server, target)
    _check_placed(pod)
    raise _unreachable(server, pod, f"portForward/{_path(pod)}")


async def proxy(server: Server, _request: Request, target: Target) -> Answer:
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


def _unreachable(server: Server, pod: Json, path: str) -> ApiError:
    name = pod["spec"]["nodeName"]
    record = server.store.get(Key("nodes", "", name))
    if record is None:
        # A real server says so of a Node, too.
        return status.not_found(Details(kind="pods", name=name))
    addresses = decoded(record).get("status", {}).get("addresses", [])
    if not addresses:
        message = "no preferred addresses found; known addresses: []"
        return ApiError(500, "", message)
    where = f"https://{addresses[0].get('address', '')}:{_PORT}/{path}"
    message = f'Get "{where}": the embedded API does not reach out to nodes'
    return ApiError(500, "InternalError", f"Internal error occurred: {message}")
