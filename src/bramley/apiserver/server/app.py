"""The embedded API as one ASGI application."""

from __future__ import annotations

import random
from functools import cache, partial
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route

from bramley.apiserver.admin.endpoints import AdminGate, Endpoint, key_rotation
from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.auth.access_control import AccessControl
from bramley.apiserver.auth.authenticator import Authenticate, Authenticator
from bramley.apiserver.auth.authorizer import Authorizer
from bramley.apiserver.auth.node_authorizer import NodeAuthorizer
from bramley.apiserver.auth.rbac import Rbac
from bramley.apiserver.auth.service_account_tokens import ServiceAccountTokens
from bramley.apiserver.auth.signing_keys import SigningKeys
from bramley.apiserver.http.exchange import Receive, Scope, Send
from bramley.apiserver.registry.resources import Catalog
from bramley.apiserver.rest import bootstrap
from bramley.apiserver.rest.server import Server
from bramley.apiserver.server import discovery, non_resource
from bramley.apiserver.server.api import Api
from bramley.apiserver.server.request_metrics import MetricSources
from bramley.apiserver.store.store import Store
from bramley.base.clock import Clock, SystemClock

if TYPE_CHECKING:
    from bramley.apiserver.admin.backups import Backups
    from bramley.apiserver.nodes.usage import Kubelets
    from bramley.apiserver.openapi.documents import OpenApiPages
    from bramley.apiserver.server.audit import AuditLog


class App(msgspec.Struct, frozen=True):
    """Passes resource requests straight to the API, and everything else through Starlette's routing.

    That routing costs as much as a GET, so the paths that are requested thousands of times a second bypass it.
    """

    api: Api
    non_resource: Starlette
    metric_sources: MetricSources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        path = scope.get("path", "")
        if path.startswith(("/api/", "/apis/")) or path in {"/api", "/apis"}:
            await self.api(scope, receive, send)
        else:
            await self.non_resource(scope, receive, send)


def build(  # noqa: PLR0913 - the one place where an API is put together
    *,
    store: Store,
    catalog: Catalog,
    authenticate: Authenticate,
    clock: Clock | None = None,
    settings: Settings | None = None,
    rng: random.Random | None = None,
    keys: SigningKeys | None = None,
    backups: Backups | None = None,
    audit: AuditLog | None = None,
    nodes: Kubelets | None = None,
) -> App:
    """Return the application over a store; `authenticate` identifies the tokens that are not of ServiceAccounts.

    `keys` sign the tokens of ServiceAccounts; by default they live as long as the process. Without `nodes` logs and metrics
    of agents are not available.
    """
    clock = clock or SystemClock()
    accounts = ServiceAccountTokens(store, keys or SigningKeys.in_memory(clock=clock), clock=clock)
    agents = NodeAuthorizer(store)
    server = Server(
        store=store,
        catalog=catalog,
        clock=clock,
        rng=rng or random.SystemRandom(),
        settings=settings or Settings(),
        authorizer=Authorizer(Rbac(store), [agents.authorize]),
        authenticator=Authenticator(authenticate, accounts, clock),
        node_authorizer=agents,
        nodes=nodes,
    )
    bootstrap.install_definitions(server)
    access_control = AccessControl(server.authenticator, server.authorizer)
    api = Api(server, access_control, audit)
    sources = MetricSources(store, api.limits, api.requests, audit)
    endpoints = [key_rotation(accounts), *([backups.endpoint] if backups else [])]
    return App(api, _non_resource(server, access_control, accounts, sources, endpoints), sources)


def _non_resource(
    server: Server,
    access_control: AccessControl,
    accounts: ServiceAccountTokens,
    sources: MetricSources,
    endpoints: list[Endpoint],
) -> Starlette:
    """Return the application of all other paths, with the endpoints of the administrator."""
    pages = non_resource.Pages(
        access_control=access_control,
        accounts=accounts,
        settings=server.settings,
        failing_checks=partial(non_resource.failing_checks, server.store),
        openapi=cache(partial(_openapi, server)),
        discovery_paths=partial(discovery.roots, server.catalog),
        metric_sources=sources,
    )
    record = sources.audit.record if sources.audit is not None else lambda _request, _code: None
    gates = [AdminGate(endpoint, access_control, server.settings, record) for endpoint in endpoints]
    return non_resource.build(pages, [Route(gate.endpoint.path, gate) for gate in gates])


def _openapi(server: Server) -> OpenApiPages:
    # Loaded at the first request: most servers never serve an OpenAPI document, and none does at its start.
    from bramley.apiserver.openapi.documents import Documents, OpenApiPages

    version = ".".join(server.settings.major_minor)
    return OpenApiPages(Documents(server.catalog, version), server.clock.now)
