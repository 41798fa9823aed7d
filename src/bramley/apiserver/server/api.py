"""The ASGI application of the resource API: access control, routing, and the one place where failures become responses.

Every request passes here, so this is kept short: no middleware and no routing table.
"""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.auth.access_control import AccessControl
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.http import exchange
from bramley.apiserver.http.exchange import (
    Chunks,
    Disconnected,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    error_response,
    send_response,
)
from bramley.apiserver.http.request_info import (
    MAX_CACHED_PATH_LENGTH,
    RequestInfo,
    Target,
    target_of,
)
from bramley.apiserver.rest import (
    bootstrap,
    escalation,
    get_list,
    negotiation,
    request_options,
    watch,
)
from bramley.apiserver.rest.negotiation import Form
from bramley.apiserver.rest.routes import handler_of
from bramley.apiserver.rest.server import Server
from bramley.apiserver.server import audit, discovery, limits
from bramley.apiserver.server.audit import AuditLog
from bramley.apiserver.server.limits import InFlightLimit, Limits, RequestSlot
from bramley.apiserver.server.request_metrics import RequestMetrics
from bramley.apiserver.store.errors import Closed, StorageUnavailable
from bramley.base import log

logger = log.get(__name__)

_READS = frozenset({"GET", "HEAD"})
# Subresources whose responses may last as long as a watch.
_LONG_RUNNING = frozenset({"log"})
_CACHED_TARGETS = 10_000


class Api:
    """Serves the paths below `/api` and `/apis`."""

    def __init__(
        self, server: Server, access_control: AccessControl, audit_log: AuditLog | None = None
    ) -> None:
        self._server = server
        self.limits = Limits(server.settings)
        self.requests = RequestMetrics()
        self._audit_log = audit_log
        self._access_control = access_control
        self._prepared: asyncio.Event | None = None
        self._is_ready = False
        self._targets: dict[str, Target] = {}
        self._targets_generation = server.catalog.generation
        self._documents = discovery.Documents(server.catalog)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        request = Request(scope, receive, self._server.settings)
        monotonic = self._server.clock.monotonic
        started = monotonic()
        with self.limits.slot() as slot:
            await self._exchange(request, slot, send)
        if slot.is_late and not slot.has_responded:
            response = error_response(limits.timed_out(request.method))
            self._record(request, response)
            await send_response(send, response)
        target = request.target or self._refused_target(request)
        self.requests.count(request, target, code=request.code, seconds=monotonic() - started)

    async def _exchange(self, request: Request, slot: RequestSlot, send: Send) -> None:
        try:
            response = await self._respond(request, slot, send)
        except ApiError as error:
            response = error_response(error)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001 - the HTTP boundary: nothing may get past it
            response = error_response(_api_error(error, request))
        if response is not None:
            self._record(request, response)
            # Before the send: a response that has begun must not be followed by that of a timeout.
            slot.has_responded = True
            await send_response(send, response, request.warnings)

    def _refused_target(self, request: Request) -> Target | None:
        """Return the target of a request that was refused before its target was looked up."""
        if request.code < HTTPStatus.BAD_REQUEST or not request.info.is_resource_request:
            return None
        try:
            return target_of(request.info, self._server.catalog)
        except ApiError:
            return None

    def _record(self, request: Request, response: Response) -> None:
        request.code = response.code
        if self._audit_log is not None and audit.is_audited(request):
            self._audit_log.record(request, response.code, response.body)

    async def _respond(self, request: Request, slot: RequestSlot, send: Send) -> Response | None:
        request.check_headers()
        if not self._is_ready:
            await self._prepare()
        # Before the target is looked up: a 403 must not reveal whether the resource exists.
        attributes = self._access_control.check(request)
        if not request.info.is_resource_request:
            return self._documents.respond(request)
        request.target = target = self._target(request.info)
        if target.resource.strategy.warning:
            request.warnings.append(target.resource.strategy.warning)
        is_collection = (not target.name or target.legacy_watch) and not target.subresource
        if request.method in _READS and is_collection and not target.resource.is_computed:
            return await self._list_or_watch(request, target, slot, send)
        if target.legacy_watch:
            # Only the verb `watch` was authorized for this path.
            raise status.method_not_allowed()
        return await self._call_handler(request, target, attributes, slot, send)

    async def _call_handler(
        self,
        request: Request,
        target: Target,
        attributes: Attributes | None,
        slot: RequestSlot,
        send: Send,
    ) -> Response | None:
        slot.acquire(_limited_user(request), self._limit(request, target))
        server = self._server
        if attributes is not None and request.method not in _READS:
            server = escalation.with_guard(server.with_agent_guard(attributes), attributes)
        handler, view = handler_of(request.method, target), negotiation.view_of(request)
        if view.form is Form.TABLE:
            # Before the handler runs: once something is written, it is too late to refuse.
            view = negotiation.with_include_object(view, request)
        response = await handler(server, request, target)
        if response.chunks is not None:
            await self._stream(request, response, response.chunks, slot, send)
            return None
        if view is negotiation.PLAIN:
            return response
        return negotiation.convert_response(response, target.resource, view, server.clock)

    def _limit(self, request: Request, target: Target) -> InFlightLimit:
        # A log may be followed for hours.
        if target.subresource in _LONG_RUNNING:
            return self.limits.watches
        return self.limits.limit_for(request.method, target.resource.stored_name)

    async def _stream(
        self, request: Request, response: Response, chunks: Chunks, slot: RequestSlot, send: Send
    ) -> None:
        self._record(request, response)
        slot.has_responded = True
        check = partial(self._access_control.is_still_allowed, request)
        clock = self._server.clock
        await exchange.send_streamed(
            request, response, chunks, send=send, clock=clock, is_allowed=check
        )

    def _target(self, info: RequestInfo) -> Target:
        """Return what a request names; cached by path, because clients repeat their requests."""
        catalog = self._server.catalog
        if self._targets_generation != catalog.generation or len(self._targets) > _CACHED_TARGETS:
            self._targets_generation, self._targets = catalog.generation, {}
        target = self._targets.get(info.path)
        if target is None:
            target = target_of(info, catalog)
            if len(info.path) <= MAX_CACHED_PATH_LENGTH:
                self._targets[info.path] = target
        return target

    async def _list_or_watch(
        self, request: Request, target: Target, slot: RequestSlot, send: Send
    ) -> Response | None:
        if target.resource.is_virtual:
            raise status.method_not_allowed()
        options = request_options.list_options(request, target.resource)
        if target.legacy_watch:
            target, options = watch.from_legacy_path(target, options)
        if options.watch and request.method == "GET":
            slot.acquire(_limited_user(request), self.limits.watches)
            request.code = HTTPStatus.OK
            if self._audit_log is not None and audit.is_audited(request):
                # At its beginning: a watch may last for an hour.
                self._audit_log.record(request, 200)
            check = partial(self._access_control.is_still_allowed, request)
            await watch.watch(
                self._server, request, target, options=options, send=send, is_allowed=check
            )
            return None
        slot.acquire(_limited_user(request), self.limits.common)
        return get_list.list_objects(self._server, request, target, options)

    async def _prepare(self) -> None:
        """Create the objects that every cluster has, once, before the first request is answered."""
        if self._prepared is not None:
            await self._prepared.wait()
            return
        self._prepared = asyncio.Event()
        try:
            await bootstrap.prepare(self._server)
            self._is_ready = True
        finally:
            # If it failed, the next request tries again; requests that wait continue and fail by themselves.
            self._prepared.set()
            self._prepared = None


def _limited_user(request: Request) -> User:
    """Return the user whose limits apply; impersonation raises no limits, except that of administrators."""
    return request.user if request.authenticated_user.is_master else request.authenticated_user


def _api_error(error: Exception, request: Request) -> ApiError:
    """Return a failure as a Status; an unexpected one is logged, and the client learns only its class."""
    if isinstance(error, ExceptionGroup):
        expected = error.subgroup((ApiError, StorageUnavailable, Closed))
        if expected is not None:
            return _api_error(_first(expected), request)
    if isinstance(error, ApiError):
        return error
    if isinstance(error, StorageUnavailable):
        return ApiError(507, "InternalError", f"the storage refused the write: {error}")
    if isinstance(error, Closed):
        return status.unavailable("the server is shutting down")
    if isinstance(error, RecursionError):
        return status.bad_request("the request is nested too deeply: exceeded max depth")
    logger.error("API request failed", exc=error, method=request.method, path=request.path)
    return status.internal(type(error).__name__)


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
