"""The ASGI application of the resource API: who asks, for what, and the one place where failures become answers.

Every request passes here, so this is kept short: no middleware, no routing tables, no objects that only carry others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bramley.apiserver import discovery, paths, status
from bramley.apiserver.paths import Target
from bramley.apiserver.rest import bootstrap, listing, negotiation, options, watching
from bramley.apiserver.rest.exchange import (
    Answer,
    Caller,
    Disconnected,
    Receive,
    Request,
    Scope,
    Send,
    error_answer,
    json_answer,
    send_answer,
)
from bramley.apiserver.rest.routes import handler_of
from bramley.apiserver.rest.server import Server
from bramley.apiserver.status import ApiError
from bramley.apiserver.store.errors import Closed, StorageUnavailable
from bramley.base import log

logger = log.get(__name__)

Authenticate = Callable[[str | None], Caller | None]

_BEARER = "bearer "
_TARGETS_KEPT = 10_000


class Api:
    """Serves the paths below `/api` and `/apis`."""

    def __init__(self, server: Server, authenticate: Authenticate) -> None:
        self._server = server
        self._authenticate = authenticate
        self._prepared: asyncio.Event | None = None
        self._is_ready = False
        self._targets: dict[str, Target] = {}
        self._targets_of = server.catalog.changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        request = Request(scope, receive, self._server.settings)
        try:
            answer = await self._answer(request, send)
        except ApiError as error:
            answer = error_answer(error)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001 - the HTTP boundary: nothing may get past it
            answer = error_answer(translated(error, request))
        if answer is not None:
            await send_answer(send, answer, request.warnings)

    async def _answer(self, request: Request, send: Send) -> Answer | None:
        request.check_headers()
        request.caller = identify(request, self._authenticate)
        if request.caller is None:
            raise status.unauthorized()
        if not self._is_ready:
            await self._prepare()
        target = self._target(request.path)
        if target is None:
            return self._discovery(request)
        reads_many = request.method in {"GET", "HEAD"} and (not target.name or target.legacy_watch)
        if not reads_many or target.subresource:
            return await handler_of(request.method, target)(self._server, request, target)
        return await self._many(request, target, send)

    def _target(self, path: str) -> Target | None:
        """Return what a path names, None for a discovery document; kept, because clients ask for the same again."""
        catalog = self._server.catalog
        if self._targets_of != catalog.changes or len(self._targets) > _TARGETS_KEPT:
            self._targets_of, self._targets = catalog.changes, {}
        target = self._targets.get(path)
        if target is None and not discovery.is_document(path):
            target = self._targets[path] = paths.find(path, catalog)
        return target

    def _discovery(self, request: Request) -> Answer:
        document = discovery.document(request.path, self._server.catalog)
        if request.method not in {"GET", "HEAD"}:
            raise status.method_not_allowed()
        negotiation.form_of(request)
        return json_answer(document)

    async def _many(self, request: Request, target: Target, send: Send) -> Answer | None:
        if target.resource.is_virtual:
            raise status.method_not_allowed()
        asked = options.listing(request, target.resource)
        if target.legacy_watch:
            target, asked = watching.legacy(target, asked)
        if asked.watch and request.method == "GET":
            await watching.watch(self._server, request, target, asked=asked, send=send)
            return None
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


def identify(request: Request, authenticate: Authenticate) -> Caller | None:
    """Return who asks, None for nobody; raise a 401 for somebody who says a name that we do not know."""
    header = request.header(b"authorization")
    if not header:
        return authenticate(None)
    is_bearer = header[: len(_BEARER)].lower() == _BEARER
    caller = authenticate(header[len(_BEARER) :].strip()) if is_bearer else None
    if caller is None:
        raise status.unauthorized()
    return caller


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
