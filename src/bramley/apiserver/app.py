"""The embedded API as one ASGI application."""

from __future__ import annotations

import random

from starlette.applications import Starlette
from starlette.routing import Mount

from bramley.apiserver.api import Api, Authenticate
from bramley.apiserver.resources import Catalog
from bramley.apiserver.rest import bootstrap
from bramley.apiserver.rest.server import Server
from bramley.apiserver.settings import Settings
from bramley.apiserver.store.store import Store
from bramley.base.clock import Clock, SystemClock


def build(
    *,
    store: Store,
    catalog: Catalog,
    authenticate: Authenticate,
    clock: Clock | None = None,
    settings: Settings | None = None,
    chance: random.Random | None = None,
) -> Starlette:
    """Return the application over a store; `authenticate` gets a bearer token, or None when there is none."""
    server = Server(
        store=store,
        catalog=catalog,
        clock=clock or SystemClock(),
        chance=chance or random.SystemRandom(),
        settings=settings or Settings(),
    )
    bootstrap.install_definitions(server)
    return Starlette(routes=[Mount("/", Api(server, authenticate))])
