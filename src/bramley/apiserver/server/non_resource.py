"""What is not about resources: probes and the version, open to everybody; how to verify tokens; and the refusal of the rest.

A small Starlette application of its own, so that later pages are one route each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.auth import issuing
from bramley.apiserver.auth.accounts import Accounts
from bramley.apiserver.http.exchange import Request
from bramley.apiserver.server import health
from bramley.apiserver.server.api import Callers
from bramley.apiserver.server.request_metrics import Meters

if TYPE_CHECKING:
    from bramley.apiserver.openapi import pages as openapi_pages

_ALL_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Pages(msgspec.Struct, frozen=True):
    """The pages, each of which asks first who reads it."""

    callers: Callers
    accounts: Accounts
    settings: Settings
    failing: Callable[[str], Mapping[str, str]]
    openapi: Callable[[], openapi_pages.Pages]
    discovered: Callable[[], Sequence[str]]
    meters: Meters

    async def index(self, request: HttpRequest) -> Response:
        """Tell which paths there are, as `kubectl get --raw /` asks."""
        self._check(request)
        own = (path for path in _paths(self) if path != "/" and "{" not in path)
        return _json({"paths": sorted({*own, *self.discovered()})})

    async def version(self, request: HttpRequest) -> Response:
        """Tell the version."""
        self._check(request)
        return _json(health.version(self.settings))

    async def probe(self, request: HttpRequest) -> Response:
        """Tell whether the server is well, all of it or one check."""
        self._check(request, reads=False)
        parts = request.url.path.strip("/").split("/")
        code, text = health.report(parts, self.failing(parts[0]), _repeated(request))
        return PlainTextResponse(text, code)

    async def issuer(self, request: HttpRequest) -> Response:
        """Tell who signs tokens of ServiceAccounts."""
        self._check(request)
        return _json(issuing.configuration(self.accounts, request.url.netloc))

    async def keys(self, request: HttpRequest) -> Response:
        """Show the keys that these tokens are verified with."""
        self._check(request)
        content = msgspec.json.encode({"keys": self.accounts.keys.published()})
        return Response(content, media_type=issuing.KEYS_TYPE)

    async def described(self, request: HttpRequest) -> Response:
        """Describe what is served."""
        self._check(request)
        return _page(self.openapi(), request)

    async def metrics(self, request: HttpRequest) -> Response:
        """Tell Prometheus what was counted."""
        self._check(request)
        # Prometheus' library is a large part of a small server's memory; whom nobody scrapes does without.
        from bramley.apiserver.server import metrics_page

        content = metrics_page.text(self.meters)
        return Response(content, media_type=metrics_page.CONTENT_TYPE)

    async def nothing(self, request: HttpRequest) -> Response:
        """Refuse every other path."""
        self._check(request, reads=False)
        raise status.no_such_page()

    def _check(self, request: HttpRequest, *, reads: bool = True) -> None:
        plain = Request(request.scope, request.receive, self.settings)
        plain.check_headers()
        self.callers.check(plain)
        if reads and request.method not in {"GET", "HEAD"}:
            raise status.method_not_allowed()


def build(pages: Pages, more: Sequence[Route] = ()) -> Starlette:
    """Return the application."""
    return Starlette(
        routes=[
            *(Route(path, page, methods=_ALL_METHODS) for path, page in _paths(pages).items()),
            *more,
            Route("/{rest:path}", pages.nothing, methods=_ALL_METHODS),
        ],
        exception_handlers={ApiError: _refused},
    )


def _paths(pages: Pages) -> dict[str, Callable[[HttpRequest], Awaitable[Response]]]:
    return {
        "/": pages.index,
        "/version": pages.version,
        "/version/": pages.version,
        **{
            f"/{name}{rest}": pages.probe
            for name in health.PROBES
            for rest in ("", "/", "/{check}")
        },
        "/metrics": pages.metrics,
        issuing.CONFIGURATION: pages.issuer,
        issuing.KEYS: pages.keys,
        "/openapi/v2": pages.described,
        "/openapi/v3": pages.described,
        "/openapi/v3/{rest:path}": pages.described,
    }


def _repeated(request: HttpRequest) -> dict[str, list[str]]:
    return {key: request.query_params.getlist(key) for key in request.query_params}


def _page(openapi: openapi_pages.Pages, request: HttpRequest) -> Response:
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
    if error.text:
        return PlainTextResponse(error.text, error.code)
    return Response(error.encoded(), error.code, media_type="application/json")
