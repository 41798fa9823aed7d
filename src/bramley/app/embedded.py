"""The embedded API without a socket: the one function that builds it for the real server, for demos and for tests.

Over a store in memory it runs under virtual time; `bramley apiserver` puts the same thing behind TLS.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import msgspec

from bramley.api.core import Namespace
from bramley.api.meta import ObjectMeta, to_wire
from bramley.apiserver import app, crds
from bramley.apiserver.kinds import table
from bramley.apiserver.resources import Catalog, Json
from bramley.apiserver.settings import Settings
from bramley.apiserver.store.store import Store
from bramley.apiserver.tokens import ADMIN, ADMIN_GROUPS, Tokens
from bramley.base.clock import Clock
from bramley.base.errors import ApiUnavailable
from bramley.base.secret import Secret
from bramley.kube.in_process import Application, InProcessTransport
from bramley.kube.transport import Request

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
CRDS = "customresourcedefinitions.apiextensions.k8s.io"


@dataclass(frozen=True, slots=True)
class Api:
    """One embedded API, ready to be asked."""

    application: Application
    store: Store
    tokens: Tokens

    def transport(self, token: Secret) -> InProcessTransport:
        """Return a way to call the API from this process, as the token's owner."""
        return InProcessTransport(self.application, token=token)


def build(
    store: Store,
    tokens: Tokens,
    *,
    clock: Clock,
    chance: random.Random,
    settings: Settings | None = None,
) -> Api:
    """Build the API over a store: what is built in, and what its definitions add."""
    catalog = _catalog(store, clock)
    for record in store.list(CRDS):
        catalog.install(msgspec.json.decode(record.body))
    application = app.build(
        store=store,
        catalog=catalog,
        authenticate=tokens.identify,
        clock=clock,
        chance=chance,
        settings=settings or Settings(),
    )
    return Api(application, store, tokens)


def _catalog(store: Store, clock: Clock) -> Catalog:
    """Return what is served, with definitions judged by this clock and beside the other definitions of this store."""

    def admit(new: Json, old: Json | None) -> None:
        others = (msgspec.json.decode(record.body) for record in store.list(CRDS))
        crds.admit(new, old, others=others, clock=clock)

    served = [
        replace(one, rules=replace(one.rules, admit=admit)) if one.qualified == CRDS else one
        for one in table.builtin()
    ]
    return Catalog(served, from_crd=crds.served)


async def populate(api: Api, token: Secret) -> None:
    """Create the namespaces that every cluster has, where they are missing."""
    transport = api.transport(token)
    for name in NAMESPACES:
        body = to_wire(Namespace(metadata=ObjectMeta(name=name)))
        path = Namespace.resource.path()
        request = Request(
            "POST", path, body=msgspec.json.encode(body), content_type="application/json"
        )
        response = await transport.send(request)
        if response.status not in {201, 409}:
            raise ApiUnavailable(f"namespace {name} cannot be created: {response.body.decode()}")


@asynccontextmanager
async def running(
    *, clock: Clock, seed: int = 0, settings: Settings | None = None
) -> AsyncIterator[tuple[Api, Secret]]:
    """Run the API in memory, and give it together with an administrator's token."""
    async with Store.in_memory(clock=clock) as store:
        tokens = Tokens.in_memory()
        token = tokens.issue(ADMIN, ADMIN_GROUPS)
        api = build(store, tokens, clock=clock, chance=random.Random(seed), settings=settings)
        await populate(api, token)
        yield api, token
