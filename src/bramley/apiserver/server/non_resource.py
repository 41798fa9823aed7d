"""The paths that are not about resources: probes, version, metrics, OpenAPI and token verification; a 404 for the rest.

A Starlette application, so that a further page is one more route.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.apimachinery.status import ApiError, no_such_path
from bramley.apiserver.auth.access_control import AccessControl
from bramley.apiserver.auth.authorizer import PROBES
from bramley.apiserver.auth.service_account_tokens import ServiceAccountTokens
from bramley.apiserver.auth.signing_keys import ALGORITHM
from bramley.apiserver.http.exchange import Request
from bramley.apiserver.server.request_metrics import MetricSources
from bramley.apiserver.store.store import Store

if TYPE_CHECKING:
    from bramley.apiserver.openapi.documents import OpenApiPages

CHECKS = ("ping", "store")
OPENID_CONFIGURATION = "/.well-known/openid-configuration"
JWKS = "/openid/v1/jwks"
JWKS_TYPE = "application/jwk-set+json"
_ALL_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Pages(msgspec.Struct, frozen=True):
    """The pages; each checks access first."""

    access_control: AccessControl
    accounts: ServiceAccountTokens
    settings: Settings
    failing_checks: Callable[[str], Mapping[str, str]]
    openapi: Callable[[], OpenApiPages]
    discovery_paths: Callable[[], Sequence[str]]
    metric_sources: MetricSources

    async def index(self, request: HttpRequest) -> Response:
        """Return all paths, for `kubectl get --raw /`."""
        self._check(request)
        pages = (path for path in _paths(self) if path != "/" and "{" not in path)
        return _json({"paths": sorted({*pages, *self.discovery_paths()})})

    async def version(self, request: HttpRequest) -> Response:
        """Return the version."""
        self._check(request)
        return _json(version_info(self.settings))

    async def probe(self, request: HttpRequest) -> Response:
        """Return the result of a health probe, or of one of its checks."""
        self._check(request, read_only=False)
        parts = request.url.path.strip("/").split("/")
        code, text = probe_result(parts, self.failing_checks(parts[0]), _query_values(request))
        return PlainTextResponse(text, code)

    async def issuer(self, request: HttpRequest) -> Response:
        """Return the OpenID configuration of the ServiceAccount issuer."""
        self._check(request)
        return _json(openid_configuration(self.accounts, request.url.netloc))

    async def keys(self, request: HttpRequest) -> Response:
        """Return the public keys that verify tokens of ServiceAccounts."""
        self._check(request)
        content = msgspec.json.encode({"keys": self.accounts.keys.json_web_keys()})
        return Response(content, media_type=JWKS_TYPE)

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
        checked = Request(request.scope, request.receive, self.settings)
        checked.check_headers()
        self.access_control.check(checked)
        if read_only and request.method not in {"GET", "HEAD"}:
            raise status.method_not_allowed()


def build(pages: Pages, admin_routes: Sequence[Route] = ()) -> Starlette:
    """Return the application."""
    return Starlette(
        routes=[
            *(Route(path, page, methods=_ALL_METHODS) for path, page in _paths(pages).items()),
            *admin_routes,
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
        OPENID_CONFIGURATION: pages.issuer,
        JWKS: pages.keys,
        "/openapi/v2": pages.openapi_document,
        "/openapi/v3": pages.openapi_document,
        "/openapi/v3/{rest:path}": pages.openapi_document,
    }


def _query_values(request: HttpRequest) -> dict[str, list[str]]:
    return {key: request.query_params.getlist(key) for key in request.query_params}


def _openapi_response(openapi: OpenApiPages, request: HttpRequest) -> Response:
    page = openapi.page(
        request.url.path,
        accept=request.headers.get("accept", ""),
        hash=request.query_params.get("hash", ""),
        if_none_match=request.headers.get("if-none-match", ""),
    )
    return Response(page.body, page.code, headers=page.headers)


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


async def _error_response(_request: HttpRequest, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    if error.text:
        return PlainTextResponse(error.text, error.code)
    return Response(error.encoded(), error.code, media_type="application/json")


def failing_checks(store: Store, probe: str) -> dict[str, str]:
    """Return the failing checks with their reasons; liveness fails only if a restart helps, which it does not with a full disk."""
    write_error = store.write_error
    if write_error is None or (probe == "livez" and not write_error.cured_by_restart):
        return {}
    return {"store": str(write_error)}


def probe_result(
    path: list[str], failing: Mapping[str, str], query: Mapping[str, list[str]]
) -> tuple[int, str]:
    """Return the status code and the text of a probe or of one of its checks; the query may hold `verbose` and `exclude`."""
    probe, *only = path
    excluded = set(query.get("exclude", ()))
    if only:
        if only[0] not in CHECKS:
            raise no_such_path()
        excluded |= set(CHECKS) - set(only)
    lines, has_failed = [], False
    for check in CHECKS:
        if check in excluded:
            lines.append(f"[+]{check} excluded: ok")
        elif check in failing:
            has_failed = True
            lines.append(f"[-]{check} failed: {failing[check]}")
        else:
            lines.append(f"[+]{check} ok")
    lines += [
        f'warn: some health checks cannot be excluded: no matches for "{each}"'
        for each in sorted(excluded - set(CHECKS))
    ]
    verdict = "failed" if has_failed else "passed"
    text = "\n".join([*lines, f"{probe} check {verdict}", ""])
    if has_failed:
        return 500, text
    return 200, text if "verbose" in query else "ok"


def version_info(settings: Settings) -> dict[str, Any]:
    """Return the content of `/version`."""
    major, minor = settings.major_minor
    return {
        "major": major,
        "minor": minor,
        "gitVersion": settings.git_version,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation(),
        "platform": f"{sys.platform}/{platform.machine()}",
    }


def openid_configuration(accounts: ServiceAccountTokens, host: str) -> dict[str, Any]:
    """Return the OpenID document; its keys are at the host under which the client requested it."""
    return {
        "issuer": accounts.settings.issuer,
        "jwks_uri": f"https://{host}{JWKS}",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
    }
