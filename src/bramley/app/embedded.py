"""The embedded API without a socket: the one function that builds it for the real server, for demos and for tests.

Over a store in memory it runs under virtual time; `bramley apiserver` puts the same thing behind TLS.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from bramley.apiserver.server import app
from bramley.apiserver.auth.signing import Keys
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.kinds import table
from bramley.apiserver.server.request_metrics import Meters
from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.store.store import Store
from bramley.apiserver.auth.bearer_tokens import ADMIN, ADMIN_GROUPS, Tokens
from bramley.base.clock import Clock
from bramley.base.errors import ApiUnavailable, BadConfiguration
from bramley.base.secret import Secret
from bramley.kube.in_process import Application, InProcessTransport
from bramley.kube.status import Status
from bramley.kube.transport import Request

if TYPE_CHECKING:
    from bramley.apiserver.server.audit import Log
    from bramley.apiserver.admin.backups import Backups
    from bramley.apiserver.controllers.timings import Timings
    from bramley.apiserver.nodes.reaching import Nodes


@dataclass(frozen=True, slots=True)
class Api:
    """One embedded API, ready to be asked."""

    application: Application
    store: Store
    tokens: Tokens
    # Tokens of those who live in this process; they are never written down.
    insiders: Tokens
    meters: Meters

    def transport(self, token: Secret) -> InProcessTransport:
        """Return a way to call the API from this process, as the token's owner."""
        return InProcessTransport(self.application, token=token)


def build(  # noqa: PLR0913 - one parameter per part that differs between servers
    store: Store,
    tokens: Tokens,
    *,
    clock: Clock,
    chance: random.Random,
    settings: Settings | None = None,
    keys: Keys | None = None,
    backups: Backups | None = None,
    audit: Log | None = None,
    nodes: Nodes | None = None,
) -> Api:
    """Build the API over a store: what is built in, and what its definitions add; `keys` sign ServiceAccounts' tokens."""
    insiders = Tokens.in_memory()

    def known(token: str | None) -> User | None:
        return tokens.identify(token) or insiders.identify(token)

    application = app.build(
        store=store,
        catalog=table.catalog(settings or Settings()),
        authenticate=known,
        clock=clock,
        chance=chance,
        settings=settings,
        keys=keys,
        backups=backups,
        audit=audit,
        nodes=nodes,
    )
    return Api(application, store, tokens, insiders, application.meters)


async def prepare(api: Api, token: Secret) -> None:
    """Let the API create what every cluster has, so that the first client finds it there."""
    answer = await api.transport(token).send(Request("GET", "/api/v1/namespaces/default"))
    if answer.status == HTTPStatus.INSUFFICIENT_STORAGE:
        # Nothing is wrong with the server, or with a kubeconfig.
        why = msgspec.json.decode(answer.body, type=Status).message
        raise BadConfiguration(f"{why}; make room for the data folder, or choose another one")
    if answer.status != HTTPStatus.OK:
        raise ApiUnavailable(f"the API does not answer itself: {answer.body.decode()}")


@asynccontextmanager
async def running(
    *,
    clock: Clock,
    seed: int = 0,
    settings: Settings | None = None,
    keys: Keys | None = None,
    controllers: bool = False,
    timings: Timings | None = None,
) -> AsyncIterator[tuple[Api, Secret]]:
    """Run the API in memory, bare or with a cluster's controllers; give it and an administrator's token.

    With controllers the API also admits Pods and Nodes as a cluster does, unless `settings` say otherwise.
    """
    async with Store.in_memory(clock=clock) as store:
        tokens = Tokens.in_memory()
        token = tokens.issue(ADMIN, ADMIN_GROUPS)
        chance = random.Random(seed)
        settings = settings or Settings(cluster_admission=controllers)
        api = build(store, tokens, clock=clock, chance=chance, settings=settings, keys=keys)
        await prepare(api, token)
        if not controllers:
            yield api, token
            return
        from bramley.app import cluster

        chosen = cluster.Settings(timings=timings)
        chance = random.Random(seed + 1)
        async with cluster.beside(cluster.Cluster(api, clock, chance, chosen)):
            yield api, token
