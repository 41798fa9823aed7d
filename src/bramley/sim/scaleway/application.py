"""The simulated Scaleway over HTTP, as an ASGI application: Scaleway's calls, and those of people and tests under `/sim`.

`respond` answers a call at once, without an event loop; the application adds what waits: bodies and latency.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import format_datetime
from typing import Annotated, Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from bramley.sim.scaleway import calls, catalog, refusals
from bramley.sim.scaleway.arguments import Name, decode
from bramley.sim.scaleway.calls import Call
from bramley.sim.scaleway.faults import Fault
from bramley.sim.scaleway.records import Seal, Server
from bramley.sim.scaleway.refusals import Refusal
from bramley.sim.scaleway.scaleway import POOL_NAME, SimulatedScaleway

_MAX_BODY_BYTES = 1024 * 1024
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_GATEWAY_PAGE = b"<html><body><h1>Bad Gateway</h1></body></html>"


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to Scaleway's API; `secret_key` is the header X-Auth-Token."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    secret_key: str | None = field(default=None, repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response of Scaleway's API."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str]


class NewServers(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Servers that are ready at once: `POST /sim/servers`. Without a name, they are in the pool."""

    name: Name | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    type: Name = catalog.DEFAULT_TYPE
    zone: Name = catalog.ZONES[0]
    is_builder: bool = False


def application(scaleway: SimulatedScaleway) -> Starlette:
    """Return the application; the calls under `/sim` need no credential."""
    own = [
        Route("/state", _own(scaleway, _show_state), methods=["GET"]),
        Route("/servers", _own(scaleway, _add_servers), methods=["POST"]),
        Route("/servers/{server}/seal", _own(scaleway, _seal_server), methods=["POST"]),
        Route("/faults", _own(scaleway, _add_fault), methods=["POST"]),
        Route("/faults", _own(scaleway, _clear_faults), methods=["DELETE"]),
    ]

    async def endpoint(request: Request) -> Response:
        try:
            body = await _body(request)
        except Refusal as refusal:
            return _http(_refused(scaleway, refusal))
        received = ApiRequest(
            request.method,
            request.scope["path"],
            dict(request.query_params),
            request.headers.get("x-auth-token"),
            body,
        )
        fault = scaleway.faults.take(received.method, received.path)
        if fault is not None and fault.kind == "latency":
            await asyncio.sleep(fault.seconds)
        return _http(respond(scaleway, received, fault))

    return Starlette(
        routes=[Mount("/sim", routes=own), Route("/{path:path}", endpoint, methods=_METHODS)]
    )


def respond(
    scaleway: SimulatedScaleway, request: ApiRequest, fault: Fault | None = None
) -> ApiResponse:
    """Return the response to a request; of a fault, its latency is left to the caller."""
    failure = None if fault is None else _failure(scaleway, fault)
    if failure is None:
        return _answered(scaleway, request)
    if fault is not None and fault.is_processed:
        _answered(scaleway, request)
    return failure


def _answered(scaleway: SimulatedScaleway, request: ApiRequest) -> ApiResponse:
    try:
        name, handler, path = calls.find(request.method, request.path)
        scaleway.calls[name] += 1
        key = scaleway.access.authenticate(request.secret_key)
        answer = handler(scaleway, Call(key, path, request.query, request.body))
    except Refusal as refusal:
        return _refused(scaleway, refusal)
    body = b"" if answer.body is None else msgspec.json.encode(answer.body)
    return ApiResponse(answer.status, body, _headers(scaleway))


def _failure(scaleway: SimulatedScaleway, fault: Fault) -> ApiResponse | None:
    """Return the response of a fault; None if there is only latency."""
    match fault.kind:
        case "latency":
            return None
        case "gateway":
            headers = {**_headers(scaleway), "content-type": "text/html"}
            return ApiResponse(fault.status, _GATEWAY_PAGE, headers)
        case "rate_limit":
            limit = scaleway.settings.requests_per_minute
            refusal = refusals.too_many_requests(limit, round(fault.seconds))
        case "status":
            refusal = Refusal(fault.status, fault.type, "internal error")
    return _refused(scaleway, refusal)


def _refused(scaleway: SimulatedScaleway, refusal: Refusal) -> ApiResponse:
    headers = {**_headers(scaleway), **refusal.headers}
    return ApiResponse(refusal.status, msgspec.json.encode(refusal.body), headers)


def _headers(scaleway: SimulatedScaleway) -> dict[str, str]:
    date = format_datetime(scaleway.clock.now(), usegmt=True)
    return {"content-type": "application/json", "date": date}


def _http(response: ApiResponse) -> Response:
    return Response(response.body, response.status, dict(response.headers))


def _own(
    scaleway: SimulatedScaleway, handler: Callable[[SimulatedScaleway, Request], Awaitable[Any]]
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a call that Scaleway does not have; it needs no credential."""

    async def endpoint(request: Request) -> Response:
        try:
            shown = await handler(scaleway, request)
        except Refusal as refusal:
            return _http(_refused(scaleway, refusal))
        return _http(ApiResponse(200, msgspec.json.encode(shown), _headers(scaleway)))

    return endpoint


async def _show_state(scaleway: SimulatedScaleway, request: Request) -> Any:
    del request
    return {
        "servers": [_server_json(scaleway, each) for each in scaleway.servers.values()],
        "ssh_keys": [each.json() for each in scaleway.ssh_keys.values()],
        "calls": dict(scaleway.calls),
        "faults": scaleway.faults.pending,
    }


async def _add_servers(scaleway: SimulatedScaleway, request: Request) -> Any:
    requested = decode(await _body(request), NewServers)
    for argument, value, known in (
        ("type", requested.type, catalog.TYPES),
        ("zone", requested.zone, catalog.ZONES),
    ):
        if value not in known:
            raise refusals.invalid(argument, "constraint", f"must be one of {', '.join(known)}")
    first, limit = len(scaleway.servers) + 1, scaleway.settings.max_servers
    if len(scaleway.servers) + requested.count > limit:
        raise refusals.quota_exceeded("apple_silicon_servers", limit)
    names = [
        requested.name or POOL_NAME.format(number)
        for number in range(first, first + requested.count)
    ]
    added = await scaleway.add_servers(
        names, type=requested.type, zone=requested.zone, is_builder=requested.is_builder
    )
    return {"servers": [_server_json(scaleway, each) for each in added]}


async def _seal_server(scaleway: SimulatedScaleway, request: Request) -> Any:
    id = request.path_params["server"]
    server = scaleway.servers.get(id)
    if server is None:
        raise refusals.not_found("server", id)
    scaleway.seal(server, decode(await _body(request), Seal))
    return _server_json(scaleway, server)


async def _add_fault(scaleway: SimulatedScaleway, request: Request) -> Any:
    scaleway.faults.add(decode(await _body(request), Fault))
    return {}


async def _clear_faults(scaleway: SimulatedScaleway, request: Request) -> Any:
    del request
    scaleway.faults.clear()
    return {}


def _server_json(scaleway: SimulatedScaleway, server: Server) -> dict[str, Any]:
    """Return a server without its password, which only Scaleway's calls show."""
    shown = scaleway.shown(server)
    return {key: shown[key] for key in shown if key not in {"sudo_password", "vnc_url"}}


async def _body(request: Request) -> bytes:
    """Return the body of a request; a Refusal if it is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise Refusal(413, "request_entity_too_large", "request entity too large")
    return bytes(body)
