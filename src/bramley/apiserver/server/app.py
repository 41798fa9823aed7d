"""The embedded API as one ASGI application."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route

from bramley.apiserver.admin import key_rotation
from bramley.apiserver.admin.gate import Door, Endpoint
from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.auth.accounts import Accounts
from bramley.apiserver.auth.agents import Agents
from bramley.apiserver.auth.authenticator import Authenticator
from bramley.apiserver.auth.authorizer import Authorizer
from bramley.apiserver.auth.rbac import Rbac
from bramley.apiserver.auth.signing import Keys
from bramley.apiserver.http.exchange import Receive, Scope, Send
from bramley.apiserver.registry.resources import Catalog
from bramley.apiserver.rest import bootstrap
from bramley.apiserver.rest.server import Server
from bramley.apiserver.server import discovery, health, non_resource
from bramley.apiserver.server.api import Api, Authenticate, Callers
from bramley.apiserver.server.request_metrics import Meters
from bramley.apiserver.store.store import Store
from bramley.base.clock import Clock, SystemClock

if TYPE_CHECKING:
    from bramley.apiserver.admin.backups import Backups
    from bramley.apiserver.nodes.reaching import Nodes
    from bramley.apiserver.openapi.pages import Pages
    from bramley.apiserver.server.audit import Log


class App(msgspec.Struct, frozen=True):
    """Sends resource requests straight to the API, and everything else through Starlette's routing.

    The routing costs as much as answering a GET, so the paths that are asked thousands of times a second go around it.
    """

    api: Api
    non_resource: Starlette
    meters: Meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        path = scope.get("path", "")
        if path.startswith(("/api/", "/apis/")) or path in {"/api", "/apis"}:
            await self.api(scope, receive, send)
        else:
            await self.aside(scope, receive, send)


def build(  # noqa: PLR0913 - the one place where an API is put together
    *,
    store: Store,
    catalog: Catalog,
    authenticate: Authenticate,
    clock: Clock | None = None,
    settings: Settings | None = None,
    chance: random.Random | None = None,
    keys: Keys | None = None,
    backups: Backups | None = None,
    audit: Log | None = None,
    nodes: Nodes | None = None,
) -> App:
    """Return the application over a store; `authenticate` knows the tokens that are not those of ServiceAccounts.

    `keys` sign the latter; left out, they live as long as the process. Without `nodes` no agent is asked for logs.
    """
    clock = clock or SystemClock()
    accounts = Accounts(store, keys or Keys.in_memory(clock=clock), clock=clock)
    authenticator = Authenticator(authenticate, accounts, clock)
    agents = Agents(store)
    server = Server(
        store=store,
        catalog=catalog,
        clock=clock,
        chance=chance or random.SystemRandom(),
        settings=settings or Settings(),
        authorizer=Authorizer(Rbac(store), [agents.opinion]),
        authenticator=authenticator,
        agents=agents,
        nodes=nodes,
    )
    bootstrap.install_definitions(server)
    callers = Callers(authenticator, server.authorizer)
    more = _for_masters(accounts, backups, Door(callers, server.settings, audit))
    api = Api(server, callers, audit)
    meters = Meters(store, api.limits, api.requests, audit)
    pages = _pages(server, callers, accounts, meters)
    return App(api, non_resource.build(pages, more), meters)


def _pages(server: Server, callers: Callers, accounts: Accounts, meters: Meters) -> non_resource.Pages:
    return non_resource.Pages(
        callers=callers,
        accounts=accounts,
        settings=server.settings,
        failing=partial(health.failing, server.store),
        openapi=cache(partial(_openapi, server)),
        discovered=partial(discovery.roots, server.catalog),
        meters=meters,
    )


def _for_masters(accounts: Accounts, backups: Backups | None, door: Door) -> Sequence[Route]:
    """Return the ways to the keys and, if there is a data folder to back up, to a backup."""
    works = [key_rotation.work(accounts), *([backups.work] if backups is not None else [])]
    return [Route(work.path, Endpoint(work, door)) for work in works]


def _openapi(server: Server) -> Pages:
    # Most servers are never asked to describe themselves, and none is at its start.
    from bramley.apiserver.openapi.documents import Documents
    from bramley.apiserver.openapi.pages import Pages

    version = ".".join(server.settings.major_minor)
    return Pages(Documents(server.catalog, version), server.clock.now)
