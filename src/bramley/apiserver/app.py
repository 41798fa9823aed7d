"""The embedded API as one ASGI application."""

from __future__ import annotations

import random

from starlette.routing import Router

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
) -> Router:
    """Return the application over a store; `authenticate` gets a bearer token, or None when there is none."""
    server = Server(
        store=store,
        catalog=catalog,
        clock=clock or SystemClock(),
        chance=chance or random.SystemRandom(),
        settings=settings or Settings(),
    )
    bootstrap.install_definitions(server)
    # Starlette's router answers lifespans and passes all else on: its application class would wrap every request in two
    # middlewares that catch what the API lets nobody see, for a quarter of the time of a read.
    return Router(default=Api(server, authenticate), redirect_slashes=False)
