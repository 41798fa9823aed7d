"""The ASGI application of the resource API: who asks, for what, and the one place where failures become answers.

Every request passes here, so this is kept short: no middleware, no routing tables, no objects that only carry others.
"""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.auth import attributes, impersonation
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.authenticator import Authenticate, Authenticator
from bramley.apiserver.auth.authorizer import Authorizer, refusal
from bramley.apiserver.http import paths
from bramley.apiserver.http.exchange import (
    Answer,
    Chunks,
    Disconnected,
    Receive,
    Request,
    Scope,
    Send,
    error_answer,
    send_answer,
)
from bramley.apiserver.http.paths import Target
from bramley.apiserver.rest import (
    bootstrap,
    escalation,
    listing,
    negotiation,
    options,
    showing,
    streaming,
    watching,
)
from bramley.apiserver.rest.negotiation import Form
from bramley.apiserver.rest.routes import handler_of
from bramley.apiserver.rest.server import Server
from bramley.apiserver.server import audit, discovery, limits
from bramley.apiserver.server.audit import Log
from bramley.apiserver.server.limits import Lane, Limits, Seat
from bramley.apiserver.server.request_metrics import Requests
from bramley.apiserver.store.errors import Closed, StorageUnavailable
from bramley.base import log

logger = log.get(__name__)

__all__ = ["Api", "Authenticate", "Callers", "translated"]

_READS = frozenset({"GET", "HEAD"})
# What may take as long as a watch.
_LASTING = frozenset({"log"})
_TARGETS_KEPT = 10_000
# No address of an object is longer; what is would only fill the memory.
_LONGEST_KEPT = 1024


class Callers:
    """Finds out who sends a request, for whom it is to be answered, and whether they may."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer

    def check(self, request: Request) -> Attributes | None:
        """Let a request pass or raise a 401 or 403; return what it asks for, None if its caller may do everything."""
        request.sender = user = self._authenticator.identify(request)
        request.caller = user = impersonation.acting(
            user, request.scope["headers"], self._authorizer
        )
        if user.is_master:
            return None
        asked = attributes.of_request(user, request.method, request.path, request.query)
        self._authorizer.check(asked)
        return asked

    def check_master(self, request: Request) -> None:
        """Let pass only who may do everything: for what no role can give the right to."""
        asked = self.check(request)
        if asked is not None:
            raise refusal(asked)

    def still_lets(self, request: Request) -> bool:
        """Tell whether a request that was let pass would be again: its credential lives and its rights are there."""
        try:
            self.check(request)
        except ApiError:
            return False
        return True


class Api:
    """Serves the paths below `/api` and `/apis`."""

    def __init__(self, server: Server, callers: Callers, audit: Log | None = None) -> None:
        self._server = server
        self.limits = Limits(server.settings)
        self.requests = Requests()
        self._audit = audit
        self._callers = callers
        self._prepared: asyncio.Event | None = None
        self._is_ready = False
        self._targets: dict[str, Target] = {}
        self._targets_of = server.catalog.changes
        self._documents = discovery.Documents(server.catalog)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        request = Request(scope, receive, self._server.settings)
        monotonic = self._server.clock.monotonic
        began = monotonic()
        with self.limits.seat() as seat:
            await self._exchange(request, seat, send)
        if seat.is_late and not seat.has_begun:
            answer = error_answer(limits.timed_out(request.method))
            self._note(request, answer)
            await send_answer(send, answer)
        target = request.target or self._refused_target(request)
        self.requests.count(request, target, code=request.code, seconds=monotonic() - began)

    async def _exchange(self, request: Request, seat: Seat, send: Send) -> None:
        try:
            answer = await self._answer(request, seat, send)
        except ApiError as error:
            answer = error_answer(error)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001 - the HTTP boundary: nothing may get past it
            answer = error_answer(translated(error, request))
        if answer is not None:
            self._note(request, answer)
            seat.has_begun = True
            await send_answer(send, answer, request.warnings)

    def _refused_target(self, request: Request) -> Target | None:
        """Return what was asked for by somebody who was refused before that was looked up."""
        if request.code < HTTPStatus.BAD_REQUEST or discovery.is_document(request.path):
            return None
        try:
            return paths.find(request.path, self._server.catalog)
        except ApiError:
            return None

    def _note(self, request: Request, answer: Answer) -> None:
        request.code = answer.code
        if self._audit is not None and audit.wants(request):
            self._audit.note(request, answer.code, answer.body)

    async def _answer(self, request: Request, seat: Seat, send: Send) -> Answer | None:
        request.check_headers()
        if not self._is_ready:
            await self._prepare()
        asked = self._callers.check(request)
        request.target = target = self._target(request.path)
        if target is None:
            return self._documents.answer(request)
        if target.resource.rules.warning:
            request.warnings.append(target.resource.rules.warning)
        is_many = (not target.name or target.legacy_watch) and not target.subresource
        if request.method in _READS and is_many and not target.resource.is_computed:
            return await self._many(request, target, seat, send)
        if target.legacy_watch:
            # Its rights were asked for a watch; nothing else may be done there.
            raise status.method_not_allowed()
        return await self._one(request, target, asked, seat, send)

    async def _one(
        self, request: Request, target: Target, asked: Attributes | None, seat: Seat, send: Send
    ) -> Answer | None:
        seat.take(_counted(request), self._lane(request, target))
        server = self._server
        if asked is not None and request.method not in _READS:
            server = escalation.guarded(server.overseen(asked), asked)
        handler, view = handler_of(request.method, target), negotiation.view_of(request)
        if view.form is Form.TABLE:
            # Now: once something is written, it is too late to refuse.
            view = negotiation.with_included(view, request)
        answer = await handler(server, request, target)
        if answer.chunks is not None:
            await self._stream(request, answer, answer.chunks, seat, send)
            return None
        if view is negotiation.PLAIN:
            return answer
        return showing.reshaped(answer, target.resource, view, server.clock)

    def _lane(self, request: Request, target: Target) -> Lane:
        # A log may be followed for hours.
        if target.subresource in _LASTING:
            return self.limits.watches
        return self.limits.lane_of(request.method, target.resource.stored_name)

    async def _stream(
        self, request: Request, answer: Answer, chunks: Chunks, seat: Seat, send: Send
    ) -> None:
        self._note(request, answer)
        seat.has_begun = True
        may = partial(self._callers.still_lets, request)
        clock = self._server.clock
        await streaming.send_streamed(request, answer, chunks, send=send, clock=clock, may=may)

    def _target(self, path: str) -> Target | None:
        """Return what a path names, None for a discovery document; kept, because clients ask for the same again."""
        catalog = self._server.catalog
        if self._targets_of != catalog.changes or len(self._targets) > _TARGETS_KEPT:
            self._targets_of, self._targets = catalog.changes, {}
        target = self._targets.get(path)
        if target is None and not discovery.is_document(path):
            target = paths.find(path, catalog)
            if len(path) <= _LONGEST_KEPT:
                self._targets[path] = target
        return target

    async def _many(
        self, request: Request, target: Target, seat: Seat, send: Send
    ) -> Answer | None:
        if target.resource.is_virtual:
            raise status.method_not_allowed()
        asked = options.listing(request, target.resource)
        if target.legacy_watch:
            target, asked = watching.legacy(target, asked)
        if asked.watch and request.method == "GET":
            seat.take(_counted(request), self.limits.watches)
            request.code = HTTPStatus.OK
            if self._audit is not None and audit.wants(request):
                # When it begins: it may last for an hour.
                self._audit.note(request, 200)
            may = partial(self._callers.still_lets, request)
            await watching.watch(self._server, request, target, asked=asked, send=send, may=may)
            return None
        seat.take(_counted(request), self.limits.common)
        return listing.list_objects(self._server, request, target, asked)

    async def _prepare(self) -> None:
        """Make what every cluster has, once, before the first request is answered."""
        if self._prepared is not None:
            await self._prepared.wait()
            return
        self._prepared = asyncio.Event()
        try:
            await bootstrap.prepare(self._server)
            self._is_ready = True
        finally:
            # Whoever waited tries for themselves if this did not work.
            self._prepared.set()
            self._prepared = None


def _counted(request: Request) -> User:
    """Return under whose limits a request runs: acting for others gives nobody more than their own, but administrators."""
    return request.caller if request.sender.is_master else request.sender


def translated(error: Exception, request: Request) -> ApiError:
    """Return a failure as a refusal; what nobody foresaw is logged and told without its details."""
    if isinstance(error, ExceptionGroup):
        known = error.subgroup((ApiError, StorageUnavailable, Closed))
        if known is not None:
            return translated(_first(known), request)
    if isinstance(error, ApiError):
        return error
    if isinstance(error, StorageUnavailable):
        return ApiError(507, "InternalError", f"the storage refused the write: {error}")
    if isinstance(error, Closed):
        return status.unavailable("the server is shutting down")
    if isinstance(error, RecursionError):
        return status.bad_request("the request is nested too deeply: exceeded max depth")
    logger.error("Request failed", exc=error, method=request.method, path=request.path)
    return status.internal(type(error).__name__)


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
