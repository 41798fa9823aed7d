"""The embedded API as one ASGI application."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route

from bramley.apiserver import aside, discovery, health
from bramley.apiserver.api import Api, Authenticate, Callers
from bramley.apiserver.auth.accounts import Accounts
from bramley.apiserver.auth.agents import Agents
from bramley.apiserver.auth.authenticator import Authenticator
from bramley.apiserver.auth.authorizer import Authorizer
from bramley.apiserver.auth.rbac import Rbac
from bramley.apiserver.auth.signing import Keys
from bramley.apiserver.resources import Catalog
from bramley.apiserver.rest import bootstrap
from bramley.apiserver.rest.exchange import Receive, Scope, Send
from bramley.apiserver.rest.server import Server
from bramley.apiserver.settings import Settings
from bramley.apiserver.store.store import Store
from bramley.base.clock import Clock, SystemClock

if TYPE_CHECKING:
    from bramley.apiserver.audit import Log
    from bramley.apiserver.backups import Backups
    from bramley.apiserver.nodes.reaching import Nodes
    from bramley.apiserver.openapi.pages import Pages


class App(msgspec.Struct, frozen=True):
    """Sends resource requests straight to the API, and everything else through Starlette's routing.

    The routing costs as much as answering a GET, so the paths that are asked thousands of times a second go around it.
    """

    api: Api
    aside: Starlette

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
    more = (
        *_backup_routes(backups, callers, server.settings, audit),
        _key_route(accounts, callers, server.settings, audit),
    )
    pages = _pages(server, callers, accounts)
    return App(Api(server, callers, audit), aside.build(pages, more))


def _pages(server: Server, callers: Callers, accounts: Accounts) -> aside.Pages:
    return aside.Pages(
        callers=callers,
        accounts=accounts,
        settings=server.settings,
        failing=partial(health.failing, server.store),
        openapi=cache(partial(_openapi, server)),
        discovered=partial(discovery.roots, server.catalog),
    )


def _backup_routes(
    backups: Backups | None, callers: Callers, settings: Settings, audit: Log | None
) -> Sequence[Route]:
    """Return the way to a backup, if there is a data folder to back up."""
    if backups is None:
        return ()
    from bramley.apiserver.backups import PATH, Endpoint

    return (Route(PATH, Endpoint(backups, callers, settings, audit)),)


def _key_route(
    accounts: Accounts, callers: Callers, settings: Settings, audit: Log | None
) -> Route:
    from bramley.apiserver.key_rotation import PATH, Endpoint

    return Route(PATH, Endpoint(accounts, callers, settings, audit))


def _openapi(server: Server) -> Pages:
    # Most servers are never asked to describe themselves, and none is at its start.
    from bramley.apiserver.openapi.documents import Documents
    from bramley.apiserver.openapi.pages import Pages

    version = ".".join(server.settings.major_minor)
    return Pages(Documents(server.catalog, version), server.clock.now)
