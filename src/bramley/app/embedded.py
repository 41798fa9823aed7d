"""The embedded cluster without a socket: the API over a store, and the controllers of a cluster as its clients.

`build` is the one function that composes it, for `bramley up` and `bramley apiserver`, which put it behind TLS, and for tests,
which run it over a store in memory under virtual time (`running`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.auth.bearer_tokens import ADMIN, ADMIN_GROUPS, Tokens
from bramley.apiserver.auth.signing_keys import SigningKeys
from bramley.apiserver.kinds import builtin_kinds
from bramley.apiserver.server import app
from bramley.apiserver.server.request_metrics import MetricSources
from bramley.apiserver.store.store import Store
from bramley.base import log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.base.errors import ApiUnavailable, BadConfiguration, Captured
from bramley.base.secret import Secret
from bramley.kube.in_process import Application, InProcessTransport
from bramley.kube.status import Status
from bramley.kube.transport import Request

if TYPE_CHECKING:
    from bramley.apiserver.admin.backups import Backups
    from bramley.apiserver.controllers.timings import Timings
    from bramley.apiserver.nodes.usage import Kubelets
    from bramley.apiserver.server.audit import AuditLog
    from bramley.app.restarted_manager import RestartedManager
    from bramley.kube.client import Client
    from bramley.runtime.manager import Manager


logger = log.get(__name__)

# The user name of the controllers in any cluster, with the roles that a cluster grants to them and no others.
CONTROLLERS_USER = "system:kube-controller-manager"
CONTROLLERS_GROUPS = ("system:authenticated",)
_RESTART = Backoff(timedelta(seconds=1), timedelta(minutes=1))


@dataclass(frozen=True, slots=True)
class Api:
    """One embedded API."""

    application: Application
    store: Store
    tokens: Tokens
    # Tokens of clients in this process, such as the controllers; never stored.
    internal_tokens: Tokens
    metric_sources: MetricSources

    def transport(self, token: Secret) -> InProcessTransport:
        """Return a transport that calls the API in this process as the owner of the token."""
        return InProcessTransport(self.application, token=token)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Whether the cluster has controllers, how long they may take to stop, and their intervals."""

    enabled: bool = True
    # Also the small ones of Cluster API's core kinds.
    cluster_api: bool = False
    drain: timedelta = timedelta(seconds=5)
    timings: Timings | None = None


@dataclass(slots=True)
class Controllers:
    """The controllers of one API, in one manager; `run` until `stop`.

    A bug that ends the manager is logged and the controllers start again, as a supervisor would restart their process; the API
    keeps serving meanwhile.
    """

    api: Api
    clock: Clock
    rng: random.Random
    settings: ControllerSettings = field(default_factory=ControllerSettings)
    # The certificate authority that the controllers publish in every namespace.
    authority: str = ""
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: bool = False
    _manager: Manager | None = None
    _core: RestartedManager | None = None

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping = True
        if self._manager is not None:
            self._manager.stop()
        if self._core is not None:
            self._core.stop()

    async def run(self) -> None:
        """Run until stopped; restart after a bug."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._run_own())
                if self.settings.cluster_api:
                    group.create_task(self._run_cluster_api())
        finally:
            self._manager = None
            self.stopped.set()

    async def _run_cluster_api(self) -> None:
        from bramley.app import cluster_api

        self._core = cluster_api.core_controllers(self.api, clock=self.clock, rng=self.rng)
        # `stop` may have been called before there was something to stop.
        if not self._stopping:
            await self._core.run()

    async def _run_own(self) -> None:
        failures = 0
        while not self._stopping:
            with Captured() as captured:
                await self._run_manager()
            if captured.error is not None:
                failures += 1
                pause = _RESTART.delay(failures, self.rng)
                logger.error(
                    "Controllers failed; restarting them", exc=captured.error, retry_after=pause
                )
                await asyncio.sleep(pause.total_seconds())

    async def _run_manager(self) -> None:
        from bramley.kube.client import Client

        token = self.api.internal_tokens.issue(CONTROLLERS_USER, CONTROLLERS_GROUPS)
        async with Client(self.api.transport(token), clock=self.clock) as client:
            self._manager = manager = self._new_manager(client)
            # `stop` may have been called before there was a manager to stop.
            if self._stopping:
                return
            async with asyncio.TaskGroup() as group:
                readiness = group.create_task(self._set_ready(manager))
                await manager.run()
                readiness.cancel()

    async def _set_ready(self, manager: Manager) -> None:
        await manager.leading.wait()
        logger.info("Started controllers")
        self.ready.set()

    def _new_manager(self, client: Client) -> Manager:
        from prometheus_client import CollectorRegistry

        from bramley.apiserver.controllers import cluster, timings
        from bramley.runtime.manager import Manager, ManagerSettings

        # A new registry per start: the counters of controllers restart with them.
        self.api.metric_sources.controllers = registry = CollectorRegistry()
        manager = Manager(
            client,
            clock=self.clock,
            rng=self.rng,
            registry=registry,
            settings=ManagerSettings(drain=self.settings.drain, tune_gc=False),
        )
        intervals = self.settings.timings or timings.DEFAULT
        cluster.add_all(
            manager, client, clock=self.clock, timings=intervals, authority=self.authority
        )
        return manager

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the controllers while the context lasts, after waiting until they have started."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.run())
            try:
                await self.ready.wait()
                yield
            finally:
                self.stop()


@dataclass(frozen=True, slots=True)
class Cluster:
    """An embedded API and the controllers that run as its clients."""

    api: Api
    controllers: Controllers


def build(  # noqa: PLR0913 - one parameter per part that differs between servers
    store: Store,
    tokens: Tokens,
    *,
    clock: Clock,
    rng: random.Random,
    settings: Settings | None = None,
    controllers: ControllerSettings | None = None,
    authority: str = "",
    keys: SigningKeys | None = None,
    backups: Backups | None = None,
    audit: AuditLog | None = None,
    nodes: Kubelets | None = None,
) -> Cluster:
    """Build the API over a store and the controllers, which are not started yet; `keys` sign tokens of ServiceAccounts.

    With controllers the API also admits Pods and Nodes as a cluster does, unless `settings` say otherwise.
    """
    controllers = controllers or ControllerSettings(enabled=False)
    settings = settings or Settings(cluster_admission=controllers.enabled)
    internal_tokens = Tokens.in_memory()

    def authenticate(token: str | None) -> User | None:
        return tokens.identify(token) or internal_tokens.identify(token)

    application = app.build(
        store=store,
        catalog=builtin_kinds.catalog(settings),
        authenticate=authenticate,
        clock=clock,
        rng=rng,
        settings=settings,
        keys=keys,
        backups=backups,
        audit=audit,
        nodes=nodes,
    )
    api = Api(application, store, tokens, internal_tokens, application.metric_sources)
    return Cluster(api, Controllers(api, clock, rng, controllers, authority))


async def prepare(api: Api, token: Secret) -> None:
    """Make the API create the objects of every cluster, such as its namespaces, before the first client connects."""
    response = await api.transport(token).send(Request("GET", "/api/v1/namespaces/default"))
    if response.status == HTTPStatus.INSUFFICIENT_STORAGE:
        # Not ApiUnavailable: its advice would be about the server and the kubeconfig.
        reason = msgspec.json.decode(response.body, type=Status).message
        raise BadConfiguration(
            f"{reason}; free some disk space, or choose another folder with --data-dir"
        )
    if response.status != HTTPStatus.OK:
        raise ApiUnavailable(
            f"the API does not answer requests of its own process: {response.body.decode()}"
        )


@asynccontextmanager
async def running(
    *,
    clock: Clock,
    seed: int = 0,
    settings: Settings | None = None,
    keys: SigningKeys | None = None,
    controllers: bool = False,
    timings: Timings | None = None,
) -> AsyncIterator[tuple[Api, Secret]]:
    """Run a cluster over a store in memory and yield its API and an administrator's token; controllers run on request."""
    async with Store.in_memory(clock=clock) as store:
        tokens = Tokens.in_memory()
        token = tokens.issue(ADMIN, ADMIN_GROUPS)
        cluster = build(
            store,
            tokens,
            clock=clock,
            rng=random.Random(seed),
            settings=settings,
            controllers=ControllerSettings(enabled=controllers, timings=timings),
            keys=keys,
        )
        await prepare(cluster.api, token)
        if not controllers:
            yield cluster.api, token
            return
        async with cluster.controllers.running():
            yield cluster.api, token
