"""Subresources of Pods that the agent on the Pod's node serves: logs, and exec, attach, port-forward and proxy, which are refused.

Pod, container and node are checked as kube-apiserver does, with its messages. Without a connection to nodes, as under
virtual time and in tests, requests fail with a message that says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta

import msgspec

from bramley.apiserver.apimachinery import causes, status
from bramley.apiserver.apimachinery.status import ApiError, Details
from bramley.apiserver.http.exchange import TEXT, Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.nodes import kubelet_client
from bramley.apiserver.nodes.kubelet_client import KubeletClient
from bramley.apiserver.registry.resources import Json
from bramley.apiserver.rest.server import Server, decoded, existing, served
from bramley.apiserver.store.records import Key
from bramley.base import errors, log
from bramley.kube.transport import Stream

logger = log.get(__name__)
# How long an agent may send nothing in the middle of a log that is not followed.
SILENCE = timedelta(seconds=30)
_MAX_REFUSAL_BYTES = 16 * 1024
_FLAGS = ("follow", "previous", "timestamps")
_FORWARDED = ("tailLines", "sinceSeconds", "sinceTime", "limitBytes")
_FALSE = frozenset({"", "0", "f", "false"})
_RESOURCE = "pods/log"
# kube-apiserver's messages for an agent's status codes; only some codes show the agent's own text.
_ERROR_MESSAGES = {
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    404: ("NotFound", "the server could not find the requested resource"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: (
        "TooManyRequests",
        "the server has received too many requests and has asked us to try again later",
    ),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: (
        "Timeout",
        "the server was unable to return a response in the time allotted, but may still be processing the request",
    ),
}
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_UNSUPPORTED = "the embedded API does not pass exec, attach and port-forward on to agents yet"
_COUNTS = ("tailLines", "sinceSeconds", "limitBytes")


async def pod_log(server: Server, request: Request, target: Target) -> Response:
    """Return a container's log as its agent sends it; nothing if the Pod has no node."""
    _check_log_options(request, target.name)
    pod = _pod(server, target)
    container = _container(pod, request.query.get("container", ""))
    if not pod["spec"].get("nodeName"):
        return Response(b"", 204)
    path = f"/containerLogs/{_path(pod)}/{container}"
    url = _agent(server, pod)
    if server.nodes is None:
        raise _unreachable(url + path, "this server is not connected to nodes")
    return await _open_log(server.nodes.client, url, path, request, name=target.name)


async def exec_or_attach(server: Server, request: Request, target: Target) -> Response:
    """Refuse to run a command in a container, or to attach to one."""
    pod = _pod(server, target)
    container = _container(pod, request.query.get("container", ""))
    _check_scheduled(pod)
    url = _agent(server, pod)
    raise _unreachable(f"{url}/{target.subresource}/{_path(pod)}/{container}", _UNSUPPORTED)


async def port_forward(server: Server, _request: Request, target: Target) -> Response:
    """Refuse to forward a port."""
    pod = _pod(server, target)
    _check_scheduled(pod)
    raise _unreachable(f"{_agent(server, pod)}/portForward/{_path(pod)}", _UNSUPPORTED)


async def proxy(server: Server, _request: Request, target: Target) -> Response:
    """Refuse to proxy a request to a Pod, Service or Node."""
    existing(server.store.get(target.key), target.resource, target.name)
    message = f"the embedded API does not pass requests on to {target.resource.plural}"
    raise status.unavailable(message)


class _LogChunks(msgspec.Struct):
    """The rest of an agent's response; `stack` holds the connection until it is closed."""

    stack: AsyncExitStack
    chunks: AsyncIterator[bytes]
    silence: float | None

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return itself."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next chunk; end the log when the agent disconnects, as kube-apiserver does."""
        try:
            async with asyncio.timeout(self.silence):
                return await anext(self.chunks)
        except (errors.BramleyError, TimeoutError) as error:
            logger.info("Pod log stream failed", reason=str(error) or "the agent sent nothing")
            raise StopAsyncIteration from error

    async def aclose(self) -> None:
        """Close the connection."""
        await self.stack.aclose()


async def _open_log(
    kubelet: KubeletClient, url: str, path: str, request: Request, *, name: str
) -> Response:
    """Return the requested log from the agent at this address."""
    query = _forwarded_options(request.query)
    async with AsyncExitStack() as stack:
        try:
            stream = await stack.enter_async_context(kubelet.stream(url, path, query))
            if stream.status != 200:
                raise _agent_error(stream.status, await _text(stream), name)
        except errors.BramleyError as error:
            raise _log_unreachable(url, path, query, error) from error
        silence = None if "follow" in query else SILENCE.total_seconds()
        # From here on the response owns the connection; leaving the context closes nothing.
        chunks = _LogChunks(stack.pop_all(), stream.chunks, silence)
    return Response(b"", content_type=TEXT, chunks=chunks)


def _forwarded_options(query: Mapping[str, str]) -> dict[str, str]:
    """Return the query parameters that are forwarded to the agent."""
    flags = {each: "true" for each in _FLAGS if query.get(each, "").lower() not in _FALSE}
    return {**flags, **{each: query[each] for each in _FORWARDED if query.get(each)}}


def _agent_error(code: int, text: str, name: str) -> ApiError:
    """Return the error that kube-apiserver returns for an agent's error."""
    if code == 500:
        return status.internal(text)
    if code == 400:
        return status.bad_request(text)
    reason, message = _ERROR_MESSAGES.get(code, ("", ""))
    if code == 403:
        reason, message = "Forbidden", text
    elif not message:
        reason = "InternalError" if code > 500 else ""
        message = f'an error on the server ("{text}") has prevented the request from succeeding'
    message = f"{message} ( {_RESOURCE} {name})"
    return ApiError(code, reason, message, details=Details(kind=_RESOURCE, name=name))


def _log_unreachable(
    url: str, path: str, query: Mapping[str, str], error: errors.BramleyError
) -> ApiError:
    requested = "&".join(f"{key}={value}" for key, value in sorted(query.items()))
    request_url = f"{url}{path}?{requested}" if requested else f"{url}{path}"
    reason = str(error).removeprefix(f"GET {path}: ")
    return ApiError(500, "", f'Get "{request_url}": {reason}')


async def _text(stream: Stream) -> str:
    content = b""
    async for chunk in stream.chunks:
        content += chunk
        if len(content) >= _MAX_REFUSAL_BYTES:
            break
    return content[:_MAX_REFUSAL_BYTES].decode("utf-8", "replace").strip()


def _pod(server: Server, target: Target) -> Json:
    record = existing(server.store.get(target.key), target.resource, target.name)
    return served(record, target.resource)


def _path(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _check_log_options(request: Request, name: str) -> None:
    errors = []
    for field in _COUNTS:
        text = request.query.get(field, "")
        least = 0 if field == "tailLines" else 1
        if text.removeprefix("-").isdigit() and int(text) < least:
            detail = f"must be greater than {'or equal to ' if least == 0 else ''}0"
            errors.append(causes.invalid(field, int(text), detail))
    if errors:
        raise status.invalid(Details(kind="PodLogOptions", name=name), errors)


def _container(pod: Json, requested: str) -> str:
    """Return the requested or default container; raise a 400 if there is none."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    all_names = [each["name"] for part in _CONTAINERS for each in spec.get(part, [])]
    if requested:
        if requested not in all_names:
            raise status.bad_request(f"container {requested} is not valid for pod {name}")
        return requested
    names = [each["name"] for each in spec["containers"]]
    chosen = pod["metadata"].get("annotations", {}).get(_DEFAULT_CONTAINER)
    if chosen in names:
        return str(chosen)
    if len(names) == 1:
        return str(names[0])
    first = [each["name"] for each in spec.get("initContainers", [])]
    message = (
        f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
    )
    if first:
        message += f" or one of the init containers: [{' '.join(first)}]"
    raise status.bad_request(message)


def _check_scheduled(pod: Json) -> None:
    if not pod["spec"].get("nodeName"):
        message = f"pod {pod['metadata']['name']} does not have a host assigned"
        raise status.bad_request(message)


def _agent(server: Server, pod: Json) -> str:
    """Return the URL of the agent on a Pod's node."""
    name = pod["spec"]["nodeName"]
    record = server.store.get(Key("nodes", "", name))
    if record is None:
        # kube-apiserver names Pods here, although the Node is missing.
        raise status.not_found(Details(kind="pods", name=name))
    return kubelet_client.kubelet_url(decoded(record))


def _unreachable(url: str, reason: str) -> ApiError:
    return ApiError(500, "InternalError", f'Internal error occurred: Get "{url}": {reason}')
