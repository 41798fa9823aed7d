"""The ASGI application of the API: who asks, for what, and the one place where failures become answers.

Every request passes here, so this is kept short: no middleware, no routing tables, no objects that only carry others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from bramley.apiserver import discovery, health, paths, status
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
    parse_query,
    send_answer,
)
from bramley.apiserver.rest.routes import handler_of
from bramley.apiserver.rest.server import Server
from bramley.apiserver.status import ApiError
from bramley.apiserver.store.errors import Closed, StorageUnavailable
from bramley.base import log

logger = log.get(__name__)

Authenticate = Callable[[str | None], Caller | None]

_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_OPEN = health.PROBES | {"version"}
_BEARER = "bearer "


@dataclass(slots=True)
class Api:
    """Serves the Kubernetes API over ASGI."""

    server: Server
    authenticate: Authenticate
    failing: dict[str, str] = field(default_factory=dict)
    _prepared: asyncio.Event | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        request = Request(scope["method"], scope["path"], scope, receive, self.server.settings)
        try:
            answer = await self._answer(request, send)
        except ApiError as error:
            answer = error_answer(error)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001 - the HTTP boundary: nothing may get past it
            answer = error_answer(_translated(error, request))
        if answer is not None:
            await send_answer(send, answer, request.warnings)

    async def _answer(self, request: Request, send: Send) -> Answer | None:
        if request.scope["query_string"]:
            request.query, request.repeated = parse_query(request.scope["query_string"])
        _check_headers(request)
        first = request.path.split("/", 2)[1] if request.path.startswith("/") else ""
        request.caller = self._caller(request, is_open=first in _OPEN)
        if first not in {"api", "apis"}:
            return self._aside(request, first)
        if self._prepared is None or not self._prepared.is_set():
            await self._prepare()
        document = discovery.document(request.path, self.server.catalog)
        if document is not None:
            if request.method not in {"GET", "HEAD"}:
                raise status.method_not_allowed()
            negotiation.form_of(request)
            return json_answer(document)
        return await self._resource(request, send)

    async def _resource(self, request: Request, send: Send) -> Answer | None:
        target = paths.find(request.path, self.server.catalog)
        reads_many = request.method == "GET" and (not target.name or target.legacy_watch)
        if not reads_many or target.subresource:
            return await handler_of(request.method, target)(self.server, request, target)
        asked = options.listing(request, target.resource)
        if target.legacy_watch:
            target, asked = watching.legacy(target, asked)
        if asked.watch:
            await watching.watch(self.server, request, target, asked=asked, send=send)
            return None
        return listing.list_objects(self.server, request, target, asked)

    def _caller(self, request: Request, *, is_open: bool) -> Caller | None:
        header = request.header(b"authorization")
        if header[: len(_BEARER)].lower() == _BEARER:
            caller = self.authenticate(header[len(_BEARER) :].strip())
        else:
            caller = self.authenticate(None)
        if caller is None and (header or not is_open):
            raise status.unauthorized()
        return caller

    def _aside(self, request: Request, first: str) -> Answer:
        """Answer what is not about resources: probes and the version."""
        parts = paths.split(request.path)
        if first == "version" and len(parts) == 1:
            if request.method not in {"GET", "HEAD"}:
                raise status.method_not_allowed()
            return json_answer(health.version(self.server.settings))
        if first in health.PROBES:
            return self._probe(request, *parts)
        raise status.no_such_path()

    def _probe(self, request: Request, probe: str, *check: str) -> Answer:
        query = request.repeated
        if check:
            if len(check) > 1 or check[0] not in health.CHECKS:
                raise status.no_such_path()
            others = [each for each in health.CHECKS if each != check[0]]
            query = {**query, "exclude": [*query.get("exclude", []), *others]}
        code, text = health.report(probe, self.failing, query)
        return Answer(text.encode(), code, _TEXT)

    async def _prepare(self) -> None:
        """Make what every cluster has, once, before the first request is answered."""
        if self._prepared is not None:
            await self._prepared.wait()
            return
        self._prepared = asyncio.Event()
        try:
            await bootstrap.prepare(self.server)
        except BaseException:
            self._prepared = None
            raise
        self._prepared.set()


def _check_headers(request: Request) -> None:
    size_bytes = sum(len(key) + len(value) for key, value in request.scope["headers"])
    if size_bytes > request.settings.header_limit_bytes:
        message = "the headers of the request are too large"
        raise ApiError(431, "RequestHeaderFieldsTooLarge", message)


def _translated(error: Exception, request: Request) -> ApiError:
    if isinstance(error, ExceptionGroup):
        known = error.subgroup((ApiError, StorageUnavailable, Closed))
        if known is not None:
            return _translated(_first(known), request)
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
