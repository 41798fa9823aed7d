"""The dispatch server of `bramley up`, a simulated GitHub whose jobs it hands out, and a small stream of sample jobs.

Both listen on loopback ports that are kept in the data folder, so that the URLs stay the same. Their addresses are in the
ConfigMap `bramley-dispatch`, where `bramley jobs` and `bramley demo` find them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from bramley.api.core import ConfigMap
from bramley.api.names import dispatch as names
from bramley.apiserver.pki import private_files
from bramley.app import dispatch, sim_github
from bramley.app.https_server import HttpsServer, Stop
from bramley.app.listen_address import Address, bind, bound_address
from bramley.app.pools import NAMESPACE
from bramley.app.sample_jobs import UNFINISHED, SampleJobs
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.dispatch.accounts import Accounts
from bramley.dispatch.dispatcher import Dispatcher, Peers
from bramley.dispatch.store.records import JobFilter
from bramley.dispatch.store.store import Store
from bramley.github.http import HttpTransport
from bramley.kube.client import Client
from bramley.kube.config_loader import load
from bramley.runners.dispatch_client import DispatchSettings
from bramley.sim.github import github as simulated
from bramley.sim.github.actions import Registration
from bramley.sim.github.application import application
from bramley.sim.github.github import SimulatedGitHub
from bramley.sim.github.webhooks import Hook

logger = log.get(__name__)

FOLDER = "dispatch"
REPOSITORIES = ("acme/app", "globex/site")
_LOOPBACK = "127.0.0.1"
_FIELD_MANAGER = "bramley"
_RESTART = Backoff(timedelta(seconds=1), timedelta(minutes=1))
_DRAIN = timedelta(seconds=2)
# So that the list of jobs shows something at every moment, and runners are idle most of the time.
_JOB_INTERVAL = timedelta(seconds=10)
_MAX_RESTORED = 500


@dataclass(frozen=True, slots=True)
class GitHubApp:
    """The App at the simulated GitHub, and its installation in the organisation of the builders."""

    url: str
    private_key_file: Path
    app_id: str = "1"
    organisation: str = REPOSITORIES[0].partition("/")[0]
    installation_id: int = simulated.FIRST_INSTALLATION


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the two servers listen, and the files with the token of the pool controller and with the key of the App."""

    dispatch: socket.socket
    github: socket.socket
    token_file: Path
    key_file: Path

    @property
    def app(self) -> GitHubApp:
        """Return the App at the simulated GitHub."""
        return GitHubApp(self.github_url, self.key_file)

    @property
    def dispatch_url(self) -> str:
        """Return the base URL of the dispatch server."""
        return _url(self.dispatch)

    @property
    def github_url(self) -> str:
        """Return the base URL of the simulated GitHub."""
        return _url(self.github)

    def client_settings(self) -> DispatchSettings:
        """Return the settings with which the pool controller calls the dispatch server."""
        return DispatchSettings(
            scaling_signals_url=self.dispatch_url + names.DESIRED_REPLICAS_PATH,
            sessions_url=self.dispatch_url + names.BASE_PATH,
            token_file=self.token_file,
        )


def reserve(folder: Path, kubeconfig: Path) -> Addresses:
    """Bind the ports of the last start, or free ones, and write the token of the pool controller and the key; not in an event loop."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    token_file = folder / "token"
    private_files.write(token_file, _token(kubeconfig).reveal().encode())
    key_file = folder / "github-app.pem"
    sim_github.public_key(key_file)
    return Addresses(_bound(folder / "port"), _bound(folder / "github-port"), token_file, key_file)


def _token(kubeconfig: Path) -> Secret:
    credential = asyncio.run(load(kubeconfig).credentials.current())
    if credential.authorization is None:
        raise errors.BadConfiguration(f"{kubeconfig} has no token")
    return Secret(credential.authorization.reveal().partition(" ")[2])


def _bound(file: Path) -> socket.socket:
    port = 0
    with contextlib.suppress(OSError, ValueError):
        port = int(file.read_text())
    try:
        bound = bind(Address(_LOOPBACK, port))
    except errors.BadConfiguration:
        bound = bind(Address(_LOOPBACK, 0))
    file.write_text(str(bound_address(Address(_LOOPBACK, 0), bound).port))
    return bound


def _url(bound: socket.socket) -> str:
    return f"http://{bound_address(Address(_LOOPBACK, 0), bound)}"


@dataclass(slots=True)
class SampleDispatch:
    """The servers of one `bramley up`; `run` until `stop`. After a bug they start again."""

    folder: Path
    addresses: Addresses
    connect: Callable[[], Client]
    clock: Clock
    rng: random.Random
    # Whether sample jobs are queued.
    samples: bool = True
    _stop: Stop = field(default_factory=Stop)

    def stop(self) -> None:
        """Begin to stop."""
        self._stop.request()

    async def run(self) -> None:
        """Serve until stopped."""
        failures = 0
        while not self._stop.requested.is_set():
            with errors.Captured() as captured:
                await self._run()
            if captured.error is not None and not self._stop.requested.is_set():
                failures += 1
                pause = _RESTART.delay(failures, self.rng)
                logger.error(
                    "Dispatch failed; restarting it", exc=captured.error, retry_after=pause
                )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause.total_seconds()):
                        await self._stop.requested.wait()

    async def _run(self) -> None:
        secret = self._webhook_secret()
        app = self.addresses.app
        settings = dispatch.GitHubSettings(
            app_id=app.app_id,
            private_key_file=app.private_key_file,
            webhook_secret_file=self.folder / "webhook-secret",
            api_url=app.url,
        )
        async with AsyncExitStack() as stack:
            github = await stack.enter_async_context(self._github(app.private_key_file, secret))
            registry = CollectorRegistry()
            database = await stack.enter_async_context(
                dispatch.opened_sqlite(self.folder / "jobs.sqlite")
            )
            forge = await stack.enter_async_context(
                dispatch.opened_forge(settings, clock=self.clock, registry=registry)
            )
            kube = await stack.enter_async_context(self.connect())
            await self._publish(kube)
            store = Store(database)
            peers = Peers(store, forge, kube, NAMESPACE)
            dispatcher = Dispatcher(peers, Accounts(), self.clock, self.rng, registry)
            await self._serve(dispatcher, github, store)

    async def _serve(self, dispatcher: Dispatcher, github: SimulatedGitHub, store: Store) -> None:
        bound = self.addresses.dispatch.dup()
        server = HttpsServer(dispatcher.application, bound=bound, context=None, drain=_DRAIN)
        async with asyncio.TaskGroup() as group:
            jobs = group.create_task(self._queue_jobs(dispatcher, github, store))
            await dispatch.run_server(dispatcher, server, (), stop=self._stop)
            jobs.cancel()

    @asynccontextmanager
    async def _github(self, key_file: Path, secret: Secret) -> AsyncIterator[SimulatedGitHub]:
        key = await asyncio.to_thread(sim_github.public_key, key_file)
        file = self.folder / "runners.json"
        before = private_files.read(file)

        def save() -> None:
            private_files.write(file, msgspec.json.encode(github.actions.registrations()))

        async with HttpTransport(self.addresses.dispatch_url) as transport:
            github = SimulatedGitHub(
                key,
                clock=self.clock,
                hook=Hook(transport, names.WEBHOOK_PATH, secret),
                settings=simulated.Settings(
                    seed=secrets.randbits(64),
                    base_url=self.addresses.github_url,
                    # Ids of this start differ from those of earlier ones, which the database still knows.
                    first_id=int(self.clock.now().timestamp()) * 1000,
                ),
                on_registration=save,
            )
            # Of builders, which are registered once.
            github.actions.restore(msgspec.json.decode(before or b"[]", type=list[Registration]))
            sim_github.add_repositories(github, REPOSITORIES)
            served = sim_github.serving(application(github), self.addresses.github.dup())
            async with github.running(), served:
                yield github

    async def _queue_jobs(
        self, dispatcher: Dispatcher, github: SimulatedGitHub, store: Store
    ) -> None:
        await dispatcher.ready.wait()
        jobs = SampleJobs(github, self.rng)
        jobs.restore(await store.jobs(JobFilter(UNFINISHED, limit=_MAX_RESTORED)))
        while self.samples:
            jobs.queue_next()
            await asyncio.sleep(_JOB_INTERVAL.total_seconds())

    def _webhook_secret(self) -> Secret:
        file = self.folder / "webhook-secret"
        if not file.exists():
            private_files.write(file, secrets.token_hex(32).encode())
        return Secret(file.read_text().strip())

    async def _publish(self, kube: Client) -> None:
        body = {
            "data": {
                names.URL_KEY: self.addresses.dispatch_url,
                names.GITHUB_URL_KEY: self.addresses.github_url,
            }
        }
        await kube.apply(
            ConfigMap,
            names.DISPATCH_CONFIG_MAP,
            body,
            manager=_FIELD_MANAGER,
            force=True,
            namespace=NAMESPACE,
        )
