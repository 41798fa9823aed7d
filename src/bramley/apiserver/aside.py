"""What is not about resources: probes and the version, open to everybody; how to verify tokens; and the refusal of the rest.

A small Starlette application of its own, so that later pages are one route each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bramley.apiserver import health, status
from bramley.apiserver.api import Callers
from bramley.apiserver.auth import issuing
from bramley.apiserver.auth.accounts import Accounts
from bramley.apiserver.rest.exchange import Request
from bramley.apiserver.settings import Settings
from bramley.apiserver.status import ApiError

if TYPE_CHECKING:
    from bramley.apiserver.openapi.pages import Pages

_ALL_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def build(
    *,
    callers: Callers,
    accounts: Accounts,
    settings: Settings,
    failing: Callable[[str], Mapping[str, str]],
    openapi: Callable[[], Pages],
    more: Sequence[Route] = (),
) -> Starlette:
    """Return the application; `failing` names the checks of a probe that fail now, and why."""

    def check_caller(request: HttpRequest) -> None:
        plain = Request(request.scope, request.receive, settings)
        plain.check_headers()
        callers.check(plain)

    async def version(request: HttpRequest) -> Response:
        check_caller(request)
        _check_reads(request)
        return _json(health.version(settings))

    async def probe(request: HttpRequest) -> Response:
        check_caller(request)
        parts = request.url.path.strip("/").split("/")
        code, text = health.report(parts, failing(parts[0]), _repeated(request))
        return PlainTextResponse(text, code)

    async def issuer(request: HttpRequest) -> Response:
        check_caller(request)
        _check_reads(request)
        return _json(issuing.configuration(accounts, request.url.netloc))

    async def keys(request: HttpRequest) -> Response:
        check_caller(request)
        _check_reads(request)
        content = msgspec.json.encode({"keys": accounts.keys.published()})
        return Response(content, media_type=issuing.KEYS_TYPE)

    async def described(request: HttpRequest) -> Response:
        check_caller(request)
        _check_reads(request)
        return _page(openapi(), request)

    async def nothing(request: HttpRequest) -> Response:
        check_caller(request)
        raise status.no_such_path()

    paths = [f"/{name}{rest}" for name in health.PROBES for rest in ("", "/", "/{check}")]
    return Starlette(
        routes=[
            *(Route(path, version, methods=_ALL_METHODS) for path in ("/version", "/version/")),
            *(Route(path, probe, methods=_ALL_METHODS) for path in paths),
            Route(issuing.CONFIGURATION, issuer, methods=_ALL_METHODS),
            Route(issuing.KEYS, keys, methods=_ALL_METHODS),
            Route("/openapi/v3", described, methods=_ALL_METHODS),
            Route("/openapi/v3/{rest:path}", described, methods=_ALL_METHODS),
            *more,
            Route("/{rest:path}", nothing, methods=_ALL_METHODS),
        ],
        exception_handlers={ApiError: _refused},
    )


def _repeated(request: HttpRequest) -> dict[str, list[str]]:
    return {key: request.query_params.getlist(key) for key in request.query_params}


def _check_reads(request: HttpRequest) -> None:
    if request.method not in {"GET", "HEAD"}:
        raise status.method_not_allowed()


def _page(openapi: Pages, request: HttpRequest) -> Response:
    found = openapi.page(
        request.url.path,
        accept=request.headers.get("accept", ""),
        hash=request.query_params.get("hash", ""),
        known=request.headers.get("if-none-match", ""),
    )
    return Response(found.body, found.code, headers=found.headers)


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


async def _refused(_request: HttpRequest, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return Response(error.encoded(), error.code, media_type="application/json")
