"""The paths that are not about resources: probes, version, metrics, OpenAPI and token verification; a 404 for the rest.

A Starlette application, so that a further page is one more route.
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
from bramley.apiserver.auth.access_control import AccessControl
from bramley.apiserver.auth.accounts import Accounts
from bramley.apiserver.auth.authorizer import PROBES
from bramley.apiserver.http.exchange import Request
from bramley.apiserver.server import health
from bramley.apiserver.server.request_metrics import MetricSources

if TYPE_CHECKING:
    from bramley.apiserver.openapi import pages as openapi_pages

_ALL_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Pages(msgspec.Struct, frozen=True):
    """The pages; each checks access first."""

    access_control: AccessControl
    accounts: Accounts
    settings: Settings
    failing: Callable[[str], Mapping[str, str]]
    openapi: Callable[[], openapi_pages.Pages]
    discovery_paths: Callable[[], Sequence[str]]
    metric_sources: MetricSources

    async def index(self, request: HttpRequest) -> Response:
        """Return all paths, for `kubectl get --raw /`."""
        self._check(request)
        own = (path for path in _paths(self) if path != "/" and "{" not in path)
        return _json({"paths": sorted({*own, *self.discovery_paths()})})

    async def version(self, request: HttpRequest) -> Response:
        """Return the version."""
        self._check(request)
        return _json(health.version(self.settings))

    async def probe(self, request: HttpRequest) -> Response:
        """Return the result of a health probe, or of one of its checks."""
        self._check(request, read_only=False)
        parts = request.url.path.strip("/").split("/")
        code, text = health.report(parts, self.failing(parts[0]), _repeated(request))
        return PlainTextResponse(text, code)

    async def issuer(self, request: HttpRequest) -> Response:
        """Return the OpenID configuration of the ServiceAccount issuer."""
        self._check(request)
        return _json(issuing.configuration(self.accounts, request.url.netloc))

    async def keys(self, request: HttpRequest) -> Response:
        """Return the public keys that verify tokens of ServiceAccounts."""
        self._check(request)
        content = msgspec.json.encode({"keys": self.accounts.keys.published()})
        return Response(content, media_type=issuing.KEYS_TYPE)

    async def openapi_document(self, request: HttpRequest) -> Response:
        """Return an OpenAPI document."""
        self._check(request)
        return _openapi_response(self.openapi(), request)

    async def metrics(self, request: HttpRequest) -> Response:
        """Return the metrics for Prometheus."""
        self._check(request)
        # Prometheus' library is a large part of a small server's memory, so it is loaded at the first scrape.
        from bramley.apiserver.server import metrics_page

        content = metrics_page.text(self.metric_sources)
        return Response(content, media_type=metrics_page.CONTENT_TYPE)

    async def not_found(self, request: HttpRequest) -> Response:
        """Return a 404 for every other path."""
        self._check(request, read_only=False)
        raise status.no_such_page()

    def _check(self, request: HttpRequest, *, read_only: bool = True) -> None:
        plain = Request(request.scope, request.receive, self.settings)
        plain.check_headers()
        self.access_control.check(plain)
        if read_only and request.method not in {"GET", "HEAD"}:
            raise status.method_not_allowed()


def build(pages: Pages, more: Sequence[Route] = ()) -> Starlette:
    """Return the application."""
    return Starlette(
        routes=[
            *(Route(path, page, methods=_ALL_METHODS) for path, page in _paths(pages).items()),
            *more,
            Route("/{rest:path}", pages.not_found, methods=_ALL_METHODS),
        ],
        exception_handlers={ApiError: _error_response},
    )


def _paths(pages: Pages) -> dict[str, Callable[[HttpRequest], Awaitable[Response]]]:
    return {
        "/": pages.index,
        "/version": pages.version,
        "/version/": pages.version,
        **{f"/{name}{rest}": pages.probe for name in PROBES for rest in ("", "/", "/{check}")},
        "/metrics": pages.metrics,
        issuing.CONFIGURATION: pages.issuer,
        issuing.KEYS: pages.keys,
        "/openapi/v2": pages.openapi_document,
        "/openapi/v3": pages.openapi_document,
        "/openapi/v3/{rest:path}": pages.openapi_document,
    }


def _repeated(request: HttpRequest) -> dict[str, list[str]]:
    return {key: request.query_params.getlist(key) for key in request.query_params}


def _openapi_response(openapi: openapi_pages.Pages, request: HttpRequest) -> Response:
    found = openapi.page(
        request.url.path,
        accept=request.headers.get("accept", ""),
        hash=request.query_params.get("hash", ""),
        known=request.headers.get("if-none-match", ""),
    )
    return Response(found.body, found.code, headers=found.headers)


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


async def _error_response(_request: HttpRequest, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    if error.text:
        return PlainTextResponse(error.text, error.code)
    return Response(error.encoded(), error.code, media_type="application/json")
