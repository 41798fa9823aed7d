"""The process of `bramley dispatch`: the dispatch server on a socket, its database, its client of GitHub, and its probes."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from prometheus_client import CollectorRegistry

from bramley.api.names import groups
from bramley.app.agent_access import Cluster
from bramley.app.https_server import HttpsServer, Stop
from bramley.app.listen_address import Address, bind, bound_address
from bramley.base import log
from bramley.base.clock import Clock, SystemClock
from bramley.base.errors import BadConfiguration, Unavailable
from bramley.base.secret import Secret
from bramley.dispatch.accounts import Accounts
from bramley.dispatch.dispatcher import Dispatcher, Peers
from bramley.dispatch.github_forge import GitHubForge
from bramley.dispatch.store import sqlite
from bramley.dispatch.store.operations import Database
from bramley.dispatch.store.sqlite import SqliteDatabase
from bramley.dispatch.store.store import Store
from bramley.github import app_keys
from bramley.github.app import GitHubApp
from bramley.github.app_keys import AppCredentials
from bramley.github.client import GitHubClient
from bramley.github.http import DEFAULT_API_URL, HttpTransport
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport as KubeTransport
from bramley.runtime.probes import Probes, ProbeSettings

logger = log.get(__name__)

_SQLITE = "sqlite:///"
_MAX_SECRET_BYTES = 64 * 1024
_MIN_SECRET_CHARACTERS = 16
_DRAIN = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHubSettings:
    """The GitHub App whose jobs are dispatched; the files hold its secrets."""

    app_id: str
    private_key_file: Path
    webhook_secret_file: Path
    api_url: str = DEFAULT_API_URL
    runner_group_id: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Address, cluster, database, GitHub App, accounts and endpoints of a dispatch server."""

    listen: Address
    github: GitHubSettings
    cluster: Cluster = field(default_factory=Cluster)
    namespace: str = groups.RUNNERS_NAMESPACE
    # `sqlite:///FILE`, or empty if the URL of a PostgreSQL database is in a file.
    database: str = ""
    database_url_file: Path | None = None
    accounts_file: Path | None = None
    probes: tuple[ProbeSettings, ...] = ()


def read_secret(file: Path, flag: str) -> str:
    """Return the content of a file with a secret; the error names the flag and never the content."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_SECRET_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise BadConfiguration(f"{flag} {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadConfiguration(f"{flag} {file} is not text") from None
    if not text.strip() or len(content) > _MAX_SECRET_BYTES:
        raise BadConfiguration(f"{flag} {file} is empty or too large")
    return text


def webhook_secrets(file: Path) -> list[Secret]:
    """Return the secrets of a file: one line each, two lines while a secret is rotated."""
    lines = [line.strip() for line in read_secret(file, "--webhook-secret-file").splitlines()]
    secrets = [line for line in lines if line]
    if len(secrets) > 2:
        raise BadConfiguration(f"--webhook-secret-file {file} has more than two lines")
    if any(len(secret) < _MIN_SECRET_CHARACTERS for secret in secrets):
        raise BadConfiguration(
            f"--webhook-secret-file {file} has a secret of fewer than {_MIN_SECRET_CHARACTERS} characters; "
            "create one with: openssl rand -hex 32"
        )
    return [Secret(secret) for secret in secrets]


@dataclass(slots=True)
class SecretFile:
    """The webhook secrets, read again when their file changes; an unreadable file leaves the last ones in force."""

    path: Path
    _secrets: list[Secret]
    _seen: tuple[int, int, int] | None = None

    def current(self) -> Sequence[Secret]:
        """Return the secrets in force."""
        with contextlib.suppress(OSError):
            status = self.path.stat()
            # With the size: an editor may empty and write the file at the same time of the file system's clock.
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            if version != self._seen:
                self._seen = version
                self._read()
        return self._secrets

    def _read(self) -> None:
        try:
            self._secrets = webhook_secrets(self.path)
        except BadConfiguration as error:
            logger.warning(
                "Webhook secret file is invalid; keeping its last content", error=str(error)
            )


@contextlib.contextmanager
def _naming(flag: str) -> Iterator[None]:
    """Name the flag in errors of its value, which the modules that use the value do not know."""
    try:
        yield
    except BadConfiguration as error:
        raise BadConfiguration(f"{flag}: {error}") from error
    except OSError as error:
        raise BadConfiguration(f"{flag}: {error.filename}: {error.strerror}") from error
    except Unavailable as error:
        raise Unavailable(f"{flag}: {error}") from None


@asynccontextmanager
async def opened_database(settings: Settings) -> AsyncIterator[Database]:
    """Open the database, and run what it needs beside it."""
    if settings.database_url_file is not None:
        async with _postgres(settings.database_url_file) as postgres:
            yield postgres
        return
    async with opened_sqlite(_sqlite_file(settings.database), "--database") as database:
        yield database


def back_up(database: str, out: Path) -> None:
    """Write a consistent copy of a SQLite database, which a server may have open, to a new file."""
    path = _sqlite_file(database)
    if not path.is_file():
        raise BadConfiguration(f"--database: {path} does not exist")
    if out.exists():
        raise BadConfiguration(f"--out: {out} exists; choose another file")
    with _naming("--out"):
        sqlite.back_up(path, out)


def _sqlite_file(database: str) -> Path:
    if not database.startswith(_SQLITE):
        raise BadConfiguration(
            "--database must be sqlite:///FILE; for PostgreSQL write its URL into a file and use --database-url-file"
        )
    return Path(database.removeprefix(_SQLITE))


@asynccontextmanager
async def opened_sqlite(path: Path, name: str = "the queue of jobs") -> AsyncIterator[Database]:
    """Open a SQLite file, created if it does not exist; errors begin with `name`."""
    with _naming(name):
        path.parent.mkdir(parents=True, exist_ok=True)
        database = await asyncio.to_thread(SqliteDatabase.open, path)
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def _postgres(url_file: Path) -> AsyncIterator[Database]:
    try:
        from bramley.dispatch.store.postgres import PostgresDatabase
    except ImportError as error:
        raise BadConfiguration(
            "--database-url-file needs psycopg; install Bramley with the extra postgres"
        ) from error
    url = Secret(read_secret(url_file, "--database-url-file").strip())
    with _naming("--database-url-file"):
        database = await PostgresDatabase.open(url)
    try:
        async with asyncio.TaskGroup() as group:
            listener = group.create_task(database.run_listener())
            yield database
            listener.cancel()
    finally:
        await database.close()


@asynccontextmanager
async def opened_forge(
    settings: GitHubSettings, *, clock: Clock, registry: CollectorRegistry
) -> AsyncIterator[GitHubForge]:
    """Open the client of GitHub."""
    from bramley.dispatch import github_forge

    content = read_secret(settings.private_key_file, "--github-private-key-file")
    with _naming("--github-private-key-file"):
        key = app_keys.load(content.encode(), str(settings.private_key_file))
    # Read now, so that a bad file is an error of the start.
    secrets = SecretFile(
        settings.webhook_secret_file, webhook_secrets(settings.webhook_secret_file)
    )
    with _naming("--github-api-url"):
        to_github = HttpTransport(settings.api_url)
    async with to_github as transport:
        client = GitHubClient(transport, clock=clock, registry=registry)
        app = GitHubApp(AppCredentials(settings.app_id, key), client, clock=clock)
        yield GitHubForge(
            app,
            secrets.current,
            github_forge.Settings(runner_group_id=settings.runner_group_id),
        )


def run(settings: Settings, *, on_serving: Callable[[str], None]) -> None:
    """Serve until a signal arrives; `on_serving` gets the URL once clients can connect."""
    from bramley.app.apiserver import run_until_signalled

    run_until_signalled(
        lambda stop: serve(settings, stop=stop, on_serving=on_serving, clock=SystemClock())
    )


async def serve(
    settings: Settings, *, stop: Stop, on_serving: Callable[[str], None], clock: Clock
) -> None:
    """Serve until a stop is requested: held polls end, requests in flight are answered, then the database is closed."""
    config = config_loader.load(settings.cluster.kubeconfig, settings.cluster.context)
    with _naming("--accounts-file"):
        accounts = Accounts.open(settings.accounts_file)
    registry = CollectorRegistry()
    # Before the database: an address in use is reported without touching the data.
    with contextlib.closing(bind(settings.listen)) as bound:
        async with (
            opened_database(settings) as database,
            opened_forge(settings.github, clock=clock, registry=registry) as forge,
            Client(KubeTransport(config), clock=clock) as kube,
        ):
            peers = Peers(Store(database), forge, kube, settings.namespace)
            dispatcher = Dispatcher(peers, accounts, clock, random.Random(), registry)
            server = HttpsServer(dispatcher.application, bound=bound, context=None, drain=_DRAIN)
            address = bound_address(settings.listen, bound)
            await run_server(
                dispatcher,
                server,
                settings.probes,
                stop=stop,
                on_serving=lambda: on_serving(f"http://{address}"),
            )


async def run_server(
    dispatcher: Dispatcher,
    server: HttpsServer,
    probes: Sequence[ProbeSettings],
    *,
    stop: Stop,
    on_serving: Callable[[], None] = lambda: None,
) -> None:
    """Run a dispatch server and its probes until a stop is requested."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(dispatcher.run())]
        tasks += [group.create_task(_probe(each, dispatcher).run()) for each in probes]
        # The caches need the API server and its CustomResourceDefinitions, which may never come before the stop.
        if await _is_ready_before_stop(dispatcher, stop):
            closing = group.create_task(_close_polls(dispatcher, stop))
            serving = group.create_task(server.run(stop, end_streams=_nothing))
            await server.ready.wait()
            on_serving()
            await asyncio.wait((serving,))
            closing.cancel()
        for task in tasks:
            task.cancel()


async def _is_ready_before_stop(dispatcher: Dispatcher, stop: Stop) -> bool:
    async with asyncio.TaskGroup() as group:
        waits = [
            group.create_task(dispatcher.ready.wait()),
            group.create_task(stop.requested.wait()),
        ]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    return not stop.requested.is_set()


def _probe(settings: ProbeSettings, dispatcher: Dispatcher) -> Probes:
    probes = Probes(settings, dispatcher.registry)
    probes.add_ready_check("caches", lambda: "" if dispatcher.ready.is_set() else "not synced")
    return probes


async def _close_polls(dispatcher: Dispatcher, stop: Stop) -> None:
    await stop.requested.wait()
    dispatcher.close()


async def _nothing() -> None:
    """End no streams: there are none."""
