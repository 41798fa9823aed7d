"""The agent's HTTPS server: a kubelet's endpoints, for those whom the API lets.

Every request is identified and authorized before anything is looked up. Connections, streams, heads of requests and slow
readers are bounded; nobody outside can make the agent hold more than that. `kubectl exec` gets its place among the routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Hashable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from bramley.agent.programs import Programs
from bramley.agent.serving import auth, log_options, responses
from bramley.agent.serving.auth import KubeletAuth
from bramley.agent.serving.certificate import Pair, SelfSigned
from bramley.agent.serving.sources import LogSource, StatsSource
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.base.errors import Captured
from bramley.kube.client import Client
from bramley.runtime.probes import cannot_listen

_LOOK_EVERY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many connections there may be, and how long each may be open without a request under way."""

    most: int = 128
    idle: timedelta = timedelta(seconds=15)


class ConnectionLimiter:
    """Closes connections that send too slowly, or are too many."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._busy: set[Hashable] = set()
        self._waits_since: dict[Any, float] = {}

    @contextlib.contextmanager
    def busy(self, connection: Hashable) -> Generator[None, None, None]:
        """Know that a request of this connection is under way."""
        self._busy.add(connection)
        try:
            yield
        finally:
            self._busy.discard(connection)
            self._waits_since.pop(connection, None)

    async def run(self, runner: web.AppRunner) -> None:
        """Look at the connections until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            server = runner.server
            closed = self.look(list(server.connections) if server else [], loop.time())
            if closed:
                logger.warning("Closed connections", count=closed, reason="slow or too many")

    def look(self, there: list[Any], now: float) -> int:
        """Close what waits too long, then the longest waiting of what is too much; return how many."""
        waiting = [one for one in there if one not in self._busy]
        self._waits_since = {one: self._waits_since.get(one, now) for one in waiting}
        limit = self._bounds.idle.total_seconds()
        waiting.sort(key=self._waits_since.__getitem__)
        late = [one for one in waiting if now - self._waits_since[one] >= limit]
        surplus = max(0, len(there) - self._bounds.most)
        doomed = waiting[: max(len(late), surplus)]
        for one in doomed:
            del self._waits_since[one]
            one.force_close()
        return len(doomed)


logger = log.get(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the server listens, how it proves itself, whom it believes, and its bounds.

    Without `certificate` and `key` a pair is made in `folder`. Without `client_authority` callers need tokens.
    """

    node: str
    host: str = "127.0.0.1"
    port: int = 0
    folder: Path
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None
    auth: auth.Settings = field(default_factory=auth.Settings)
    connections: Bounds = field(default_factory=Bounds)
    streams: int = 32
    # A reader that takes nothing for this long is cut off.
    send_deadline: timedelta = timedelta(seconds=30)
    handshake_deadline: timedelta = timedelta(seconds=10)
    look_every: timedelta = timedelta(hours=1)
    retry_after: timedelta = timedelta(seconds=30)


class Server:
    """Serves the endpoints; `ready` is set and `port` is true once it listens."""

    def __init__(
        self,
        settings: Settings,
        *,
        kube: Client,
        logs: LogSource,
        stats: StatsSource,
        programs: Programs,
        clock: Clock,
    ) -> None:
        self.ready = asyncio.Event()
        self.port = settings.port
        self._settings = settings
        self._clock = clock
        self._logs, self._stats = logs, stats
        self._callers = KubeletAuth(settings.node, kube, clock, settings.auth)
        names = settings.names or (settings.node,)
        self._made = SelfSigned(settings.folder, names, programs, clock)
        self._guard = ConnectionLimiter(settings.connections)
        self._streams = 0
        self._context: ssl.SSLContext | None = None

    async def run(self) -> None:
        """Serve until cancelled."""
        self._context = await self._first_context()
        runner = web.AppRunner(
            self._app(),
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            shutdown_timeout=1.0,
            keepalive_timeout=self._settings.connections.idle.total_seconds(),
        )
        await runner.setup()
        try:
            async with self._listening(runner), asyncio.TaskGroup() as group:
                group.create_task(self._guard.run(runner))
                group.create_task(self._renew())
        finally:
            self.ready.clear()
            await runner.cleanup()

    @asynccontextmanager
    async def _listening(self, runner: web.AppRunner) -> AsyncIterator[None]:
        host, port, serve = self._settings.host, self._settings.port, runner.server
        if serve is None:
            raise RuntimeError("the server was not set up")
        try:
            listening = await asyncio.get_running_loop().create_server(
                serve,
                host or None,
                port,
                ssl=self._context,
                ssl_handshake_timeout=self._settings.handshake_deadline.total_seconds(),
                backlog=64,
            )
        except OSError as error:
            raise cannot_listen(host, port, error) from error
        self.port = listening.sockets[0].getsockname()[1]
        logger.info("Serving the kubelet's endpoints", host=host, port=self.port)
        self.ready.set()
        try:
            yield
        finally:
            listening.close()

    # TLS

    async def _first_context(self) -> ssl.SSLContext:
        """Return a context; a Mac without a certificate of its own still runs VMs, so what may get better is waited for."""
        while True:
            try:
                return await self._new_context()
            except (errors.Unavailable, OSError) as error:
                logger.warning("The kubelet's endpoints are not served yet", reason=str(error))
            await asyncio.sleep(self._settings.retry_after.total_seconds())

    async def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if self._settings.client_authority is not None:
            # Asked for, not insisted on: others come with a token.
            context.verify_mode = ssl.CERT_OPTIONAL
        await self._load(context)
        return context

    async def _load(self, context: ssl.SSLContext) -> None:
        """Read what there is now; new connections see it, open ones go on."""
        if self._settings.client_authority is not None:
            _trust(context, self._settings.client_authority)
        given = self._given()
        if given is not None:
            _use(context, given)
            return
        await self._made.ensure()
        try:
            _use(context, self._made.pair)
        except errors.BadConfiguration as error:
            logger.warning("Making the serving certificate anew", reason=str(error))
            self._made.drop()
            await self._made.ensure()
            _use(context, self._made.pair)

    def _given(self) -> Pair | None:
        certificate, key = self._settings.certificate, self._settings.key
        if certificate is None and key is None:
            return None
        if certificate is None or key is None:
            raise errors.BadConfiguration(
                "a serving certificate needs its key: give both of --tls-cert-file and --tls-key-file, or neither"
            )
        return Pair(certificate, key)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._settings.look_every.total_seconds())
            try:
                if self._context is not None:
                    await self._load(self._context)
            except (errors.BramleyError, OSError) as error:
                # What is in use is good for a while yet; the next look may find it mended.
                logger.warning("Certificates cannot be read again", reason=str(error))

    # Requests

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._boundary])
        for path, handler in self._routes().items():
            app.router.add_get(path, handler)
        return app

    def _routes(self) -> dict[str, Handler]:
        return {
            "/healthz": self._healthz,
            "/containerLogs/{namespace}/{pod}/{container}": self._container_logs,
            "/stats/summary": self._summary,
            "/metrics/resource": self._resource_metrics,
        }

    @web.middleware
    async def _boundary(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in who may come, and turn every failure into an answer."""
        with self._guard.busy(request.protocol):
            with Captured() as caught:
                refusal = await self._refusal(request)
                return refusal if refusal is not None else await handler(request)
            return responses.of_error(caught.error)

    async def _refusal(self, request: web.Request) -> web.Response | None:
        authorization = request.headers.getall("Authorization", [""])
        transport = request.transport
        peer = transport.get_extra_info("peercert") if transport is not None else None
        caller = None
        if len(authorization) == 1:
            caller = await self._callers.identify(authorization[0], peer)
        if caller is None:
            return responses.failed(401, "Unauthorized")
        wanted = auth.request_attributes(request.method, request.path)
        try:
            allowed = await self._callers.may(caller, wanted)
        except errors.BramleyError as error:
            logger.warning("Rights cannot be checked", user=caller.name, reason=error.reason)
            return responses.failed(500, f"Authorization error ({_told(caller.name, wanted)})")
        if not allowed:
            return responses.failed(403, f"Forbidden ({_told(caller.name, wanted)})")
        return None

    async def _healthz(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _container_logs(self, request: web.Request) -> web.StreamResponse:
        match = request.match_info
        asked = (match["namespace"], match["pod"], match["container"])
        wanted = log_options.log_request(asked, request.query, self._clock.now())
        with self._stream():
            batches = self._logs.batches(wanted)
            async with aclosing(log_options.encoded(batches, wanted)) as chunks, aclosing(batches):
                deadline = self._settings.send_deadline
                return await responses.stream(request, chunks, deadline=deadline)

    @contextlib.contextmanager
    def _stream(self) -> Generator[None, None, None]:
        if self._streams >= self._settings.streams:
            raise responses.TooMany("too many logs are being read")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def _summary(self, _request: web.Request) -> web.StreamResponse:
        return responses.summary(self._stats.usage())

    async def _resource_metrics(self, _request: web.Request) -> web.StreamResponse:
        return responses.resource_metrics(self._stats.usage())


def _told(user: str, wanted: auth.RequestAttributes) -> str:
    return f"user={user}, verb={wanted.verb}, resource=nodes, subresource(s)=[{wanted.part}]"


def _use(context: ssl.SSLContext, pair: Pair) -> None:
    try:
        # The empty password keeps OpenSSL from asking for one at the terminal.
        context.load_cert_chain(pair.certificate, pair.key, password="")
    except (OSError, ValueError) as error:
        raise errors.BadConfiguration(
            f"{pair.certificate} and {pair.key} cannot be served with: {error}; both must be PEM and belong together"
        ) from error


def _trust(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except (OSError, ValueError) as error:
        raise errors.BadConfiguration(
            f"{authority} holds no certificate authority in PEM: {error}; see --client-ca-file"
        ) from error
