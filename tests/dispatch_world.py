"""Dispatch under virtual time: the embedded API, the simulated GitHub, a dispatch server on SQLite, and guests that poll it.

A guest is the poller of a VM: it polls with its Pod's token until it has a job, runs it at the simulated GitHub, and ends its Pod. The
pool is kept by `replace`, which stands for the pool controller. `restart` is a crash of the server: its tasks are cancelled where
they are, and another server opens the same file.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec
from prometheus_client import CollectorRegistry

from bramley.api.core import ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.names import dispatch as names
from bramley.api.names import labels
from bramley.api.pod import Container, Pod, PodSpec
from bramley.api.runner_pool import RunnerPool, RunnerPoolSpec
from bramley.app import embedded
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.dispatch.accounts import Accounts, AccountsFile
from bramley.dispatch.dispatcher import Dispatcher, Peers
from bramley.dispatch.github_forge import GitHubForge
from bramley.dispatch.store.sqlite import SqliteDatabase
from bramley.dispatch.store.store import Store
from bramley.kube.client import Client
from bramley.kube.in_process import InProcessTransport
from bramley.kube.transport import Request, Response
from bramley.sim.github.application import application
from bramley.sim.github.github import Settings as GitHubSettings
from bramley.sim.github.github import SimulatedGitHub
from bramley.sim.github.records import Job, Refusal
from bramley.sim.github.webhooks import DeliverySettings, Hook
from tests import virtual_time
from tests.github_peer import APP, peer, simulated_github
from tests.scenarios.world import NAMESPACE, a_world

POOL = "macos"
LABEL = "tuist-macos"
IMAGE = "ghcr.io/example/runner:1"
SECRET = Secret("a webhook secret of tests")
OLD_POLL = timedelta()
LONG_POLL = timedelta(seconds=50)


class Cluster(Protocol):
    """The API, a client of it, and an administrator's token."""

    @property
    def api(self) -> embedded.Api: ...
    @property
    def kube(self) -> Client: ...
    @property
    def token(self) -> Secret: ...


@dataclass(slots=True)
class Relay:
    """The transport of webhooks; the server behind it may be down or replaced."""

    target: InProcessTransport | None = None

    async def send(self, request: Request) -> Response:
        if self.target is None:
            raise errors.Unavailable("connection refused")
        return await self.target.send(request)


@dataclass(slots=True)
class DispatchWorld:
    """The parts of the world; `server` is None while it is down."""

    world: Cluster
    github: SimulatedGitHub
    relay: Relay
    database: Path
    clock: Clock
    group: asyncio.TaskGroup
    accounts: Accounts = field(default_factory=Accounts)
    # Wraps the transports of the next server to GitHub and to the API.
    wrap: Callable[[Any], Any] = lambda transport: transport
    server: Dispatcher | None = None
    # Jobs by the runner that ran them, in the order of their ends.
    ran: list[tuple[str, int]] = field(default_factory=list)
    guests: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    _running: asyncio.Task[None] | None = None
    _store: Store | None = None
    _names: int = 0

    @property
    def kube(self) -> Client:
        return self.world.kube

    @property
    def store(self) -> Store:
        assert self._store is not None
        return self._store

    @property
    def dispatcher(self) -> Dispatcher:
        assert self.server is not None
        return self.server

    async def start(self, **options: Any) -> Dispatcher:
        """Start a server on the file."""
        database = SqliteDatabase.open(self.database, threaded=False, **options)
        self._store = Store(database)
        to_github = self.wrap(InProcessTransport(application(self.github)))
        forge = GitHubForge(peer(self.github, to_github).app(), lambda: [SECRET])
        kube = Client(self.wrap(self.world.api.transport(self.world.token)), clock=self.clock)
        self.server = Dispatcher(
            Peers(self._store, forge, kube, NAMESPACE),
            self.accounts,
            self.clock,
            random.Random(1),
            CollectorRegistry(),
        )
        self._running = self.group.create_task(_until_cancelled(self.server))
        await self.server.ready.wait()
        self.relay.target = InProcessTransport(self.server.application)
        return self.server

    async def crash(self) -> None:
        """End the server where it is."""
        self.relay.target = None
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            await self.store.close()
        self.server = self._running = self._store = None

    async def a_pool(self, name: str = POOL, *, label: str = LABEL, image: str = IMAGE) -> None:
        spec = RunnerPoolSpec(
            image=image,
            fleet_selector="demo",
            dispatch_label=label,
            runner_labels=["self-hosted", "macOS", "ARM64"],
            replicas=0,
        )
        metadata = ObjectMeta(name=name, namespace=NAMESPACE)
        await self.kube.create(RunnerPool(metadata=metadata, spec=spec))

    async def a_pod(
        self, *, pool: str = POOL, image: str = IMAGE, extra: Mapping[str, str] | None = None
    ) -> Pod:
        """Create a Pod and its ServiceAccount, as the pool controller does."""
        self._names += 1
        name = f"{pool}-runner-{self._names:04}"
        owned = {labels.RUNNER: labels.TRUE, labels.RUNNER_POOL: pool}
        account = ObjectMeta(name=name, namespace=NAMESPACE, labels={labels.RUNNER_POOL: pool})
        await self.kube.create(ServiceAccount(metadata=account))
        metadata = ObjectMeta(name=name, namespace=NAMESPACE, labels={**owned, **(extra or {})})
        spec = PodSpec(
            containers=[Container(name="runner", image=image)], service_account_name=name
        )
        return await self.kube.create(Pod(metadata=metadata, spec=spec))

    async def a_token(self, pod: Pod, *, audience: str = names.TOKEN_AUDIENCE) -> Secret:
        """Return a token that is bound to a Pod."""
        issued = await self.kube.request_token(
            pod.name,
            NAMESPACE,
            audiences=[audience],
            expires=timedelta(hours=8),
            bound_to=pod,
        )
        return issued.token

    async def send(
        self,
        path: str = names.DISPATCH_PATH,
        *,
        method: str = "POST",
        token: Secret | None = None,
        body: bytes = b"{}",
        query: Mapping[str, str] | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        deadline: timedelta = timedelta(seconds=70),
    ) -> Response:
        """Send a request to the server."""
        if token is not None:
            headers = (*headers, ("Authorization", f"Bearer {token.reveal()}"))
        if self.relay.target is None:
            raise errors.Unavailable("connection refused")
        return await self.relay.target.send(
            Request(
                method,
                path,
                query or {},
                body if method == "POST" else None,
                "application/json",
                deadline=deadline,
                headers=headers,
            )
        )

    async def poll(self, token: Secret, wait: timedelta = OLD_POLL) -> Response:
        """Poll as a guest does."""
        prefer = (("Prefer", f"wait={int(wait.total_seconds())}"),) if wait else ()
        response = await self.send(token=token, headers=prefer)
        self.answers.append(response.status)
        return response

    def queue_job(
        self,
        *,
        owner: str = APP.owner,
        name: str = APP.name,
        seconds: float = 30,
        labels: tuple[str, ...] = (LABEL,),
    ) -> Job:
        repository = self.github.accounts[owner].repositories[name]
        return self.github.actions.queue_job(
            repository, labels=labels, duration=timedelta(seconds=seconds)
        )

    def boot(self, pod: Pod, *, wait: timedelta = LONG_POLL, replace: bool = False) -> None:
        """Start the guest of a Pod; with `replace` another Pod follows when it ends."""
        self.guests[pod.name] = self.group.create_task(self._guest(pod, wait, replace=replace))

    async def _guest(self, pod: Pod, wait: timedelta, *, replace: bool) -> None:
        token = await self.a_token(pod)
        jit = await self.wait_for_job(token, wait)
        phase = "Succeeded"
        if jit:
            phase = await self._run(pod, jit)
        await self.end(pod, phase)
        if replace:
            self.boot(await self.a_pod(), wait=wait, replace=True)

    async def wait_for_job(self, token: Secret, wait: timedelta) -> str:
        """Poll until there is a job or the guest is to exit; return the JIT configuration or an empty text."""
        while True:
            status = 0
            with suppress(errors.BramleyError):
                response = await self.poll(token, wait)
                status = response.status
                if status == 200:
                    return str(msgspec.json.decode(response.body)["encoded_jit_config"])
            if status in (401, 410):
                return ""
            if status != 204 or not wait:
                await asyncio.sleep(2)

    async def _run(self, pod: Pod, jit: str) -> str:
        try:
            job = await self.github.actions.run_runner(jit)
        except Refusal:
            return "Failed"
        if job is not None:
            self.ran.append((pod.name, job.id))
        return "Succeeded"

    async def end(self, pod: Pod, phase: str = "Succeeded") -> None:
        """End a Pod, report it and delete it, as its agent and the pool controller do."""
        with suppress(errors.NotFound):
            await self.kube.merge_patch(
                Pod,
                pod.name,
                {"status": {"phase": phase}},
                namespace=NAMESPACE,
                subresource="status",
            )
        await self.report_stopped(pod.name, self.clock.now())
        for kind in (Pod, ServiceAccount):
            with suppress(errors.NotFound):
                await self.kube.delete(kind, pod.name, namespace=NAMESPACE, grace=timedelta())

    async def report_stopped(self, pod_name: str, ended_at: datetime) -> None:
        """Report a Pod that stopped until the server has stored it."""
        body = {"pod_name": pod_name, "ended_at": ended_at}
        while True:
            with suppress(errors.BramleyError):
                token = self.world.token
                response = await self.send(
                    names.POD_STOPPED_PATH, token=token, body=msgspec.json.encode(body)
                )
                if response.status == 204:
                    return
            await asyncio.sleep(5)

    async def until_all_completed(self, within: timedelta = timedelta(hours=2)) -> None:
        """Wait until every job of GitHub has ended and the server knows it."""
        async with asyncio.timeout(within.total_seconds()):
            while any(job.status != "completed" for job in self.github.actions.jobs.values()):
                await asyncio.sleep(1)


async def _until_cancelled(server: Dispatcher) -> None:
    await server.run()


def a_github(
    relay: Relay, deliveries: DeliverySettings | None = None, *, picks_randomly: bool = False
) -> SimulatedGitHub:
    """Return a simulated GitHub whose webhooks go to the server behind the relay."""
    settings = GitHubSettings(
        picks_randomly=picks_randomly,
        requests_per_hour=1_000_000,
        deliveries=deliveries or DeliverySettings(),
    )
    hook = Hook(relay, names.WEBHOOK_PATH, SECRET)
    return simulated_github(virtual_time.clock(), settings, hook)


@asynccontextmanager
async def a_dispatch_world(
    folder: Path,
    *,
    accounts: AccountsFile | None = None,
    deliveries: DeliverySettings | None = None,
    start: bool = True,
    picks_randomly: bool = False,
) -> AsyncIterator[DispatchWorld]:
    """Run the world with an empty pool."""
    clock = virtual_time.clock()
    relay = Relay()
    github = a_github(relay, deliveries, picks_randomly=picks_randomly)
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(a_world())
        await stack.enter_async_context(github.running())
        group = await stack.enter_async_context(asyncio.TaskGroup())
        built = DispatchWorld(world, github, relay, folder / "dispatch.sqlite", clock, group)
        if accounts is not None:
            built.accounts = Accounts(current=accounts, policy=accounts.policy())
        await built.a_pool()
        if start:
            await built.start()
        try:
            yield built
        finally:
            for task in built.guests.values():
                task.cancel()
            await built.crash()
