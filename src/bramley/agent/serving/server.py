"""The HTTPS server of the kubelet endpoints.

Every request is authenticated and authorized before anything is looked up. Connections, streams, request heads and slow readers
are bounded, so a client cannot exhaust the agent's resources. `kubectl exec` will be added to the routes.
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

logger = log.get(__name__)

_CHECK_SECONDS = 1.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The maximum number of connections, and how long one may be open without a request in progress."""

    max_connections: int = 128
    idle: timedelta = timedelta(seconds=15)


class ConnectionLimiter:
    """Closes connections that are idle for too long or exceed the maximum number."""

    def __init__(self, bounds: ConnectionLimits) -> None:
        self._bounds = bounds
        self._busy: set[Hashable] = set()
        self._idle_since: dict[Any, float] = {}

    @contextlib.contextmanager
    def request_in_progress(self, connection: Hashable) -> Generator[None, None, None]:
        """Mark a connection as busy while one of its requests is handled."""
        self._busy.add(connection)
        try:
            yield
        finally:
            self._busy.discard(connection)
            # The idle time begins with the end of the request.
            self._idle_since.pop(connection, None)

    async def run(self, runner: web.AppRunner) -> None:
        """Check the connections until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            server = runner.server
            closed = self.close_excess(list(server.connections) if server else [], loop.time())
            if closed:
                logger.warning("Closed client connections", count=closed, reason="idle or too many")

    def close_excess(self, connections: list[Any], now: float) -> int:
        """Close connections that are idle for too long, then the longest idle ones above the maximum; return how many."""
        idle = [connection for connection in connections if connection not in self._busy]
        self._idle_since = {each: self._idle_since.get(each, now) for each in idle}
        limit = self._bounds.idle.total_seconds()
        idle.sort(key=self._idle_since.__getitem__)
        expired = [connection for connection in idle if now - self._idle_since[connection] >= limit]
        surplus = max(0, len(connections) - self._bounds.max_connections)
        to_close = idle[: max(len(expired), surplus)]
        for connection in to_close:
            del self._idle_since[connection]
            connection.force_close()
        return len(to_close)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Address, certificate, client authentication and limits of the server.

    Without `certificate` and `key` a self-signed pair is created in `folder`. Without `client_authority` clients need tokens.
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
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    max_streams: int = 32
    # The stream of a client that reads nothing for this long is aborted.
    send_deadline: timedelta = timedelta(seconds=30)
    handshake_deadline: timedelta = timedelta(seconds=10)
    reload_period: timedelta = timedelta(hours=1)
    retry_after: timedelta = timedelta(seconds=30)


class Server:
    """Serves the endpoints; once it listens, `ready` is set and `port` is the actual port."""

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
        self._auth = KubeletAuth(settings.node, kube, clock, settings.auth)
        names = settings.names or (settings.node,)
        self._self_signed = SelfSigned(settings.folder, names, programs, clock)
        self._connection_limiter = ConnectionLimiter(settings.connections)
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
                group.create_task(self._connection_limiter.run(runner))
                group.create_task(self._renew())
        finally:
            self.ready.clear()
            await runner.cleanup()

    @asynccontextmanager
    async def _listening(self, runner: web.AppRunner) -> AsyncIterator[None]:
        host, port, protocol_factory = self._settings.host, self._settings.port, runner.server
        if protocol_factory is None:
            raise RuntimeError("the AppRunner was not set up")
        try:
            server = await asyncio.get_running_loop().create_server(
                protocol_factory,
                host or None,
                port,
                ssl=self._context,
                ssl_handshake_timeout=self._settings.handshake_deadline.total_seconds(),
                backlog=64,
            )
        except OSError as error:
            raise cannot_listen(host, port, error) from error
        self.port = server.sockets[0].getsockname()[1]
        logger.info("Serving kubelet endpoints", host=host, port=self.port)
        # Only now: `port` is valid, and the port is published on the Node.
        self.ready.set()
        try:
            yield
        finally:
            server.close()

    # TLS

    async def _first_context(self) -> ssl.SSLContext:
        """Return a context; temporary errors are retried, because an agent without a certificate can still run VMs."""
        while True:
            try:
                return await self._new_context()
            except (errors.Unavailable, OSError) as error:
                logger.warning("Kubelet endpoints not served yet", reason=str(error))
            await asyncio.sleep(self._settings.retry_after.total_seconds())

    async def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if self._settings.client_authority is not None:
            # Optional: other clients authenticate by a token.
            context.verify_mode = ssl.CERT_OPTIONAL
        await self._load(context)
        return context

    async def _load(self, context: ssl.SSLContext) -> None:
        """Load the current files; they apply to new connections, open ones are not affected."""
        if self._settings.client_authority is not None:
            _load_client_ca(context, self._settings.client_authority)
        configured = self._configured_pair()
        if configured is not None:
            _load_pair(context, configured)
            return
        await self._self_signed.ensure()
        try:
            _load_pair(context, self._self_signed.pair)
        except errors.BadConfiguration as error:
            logger.warning("Recreating serving certificate", reason=str(error))
            self._self_signed.delete()
            await self._self_signed.ensure()
            _load_pair(context, self._self_signed.pair)

    def _configured_pair(self) -> Pair | None:
        certificate, key = self._settings.certificate, self._settings.key
        if certificate is None and key is None:
            return None
        if certificate is None or key is None:
            raise errors.BadConfiguration(
                "a serving certificate needs its key: set both --tls-cert-file and --tls-key-file, or neither"
            )
        return Pair(certificate, key)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._settings.reload_period.total_seconds())
            try:
                if self._context is not None:
                    await self._load(self._context)
            except (errors.BramleyError, OSError) as error:
                # The loaded certificate stays in use; the next reload may succeed.
                logger.warning("Serving certificate not reloaded", reason=str(error))

    # Requests

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._middleware])
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
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Authorize every request, and convert every error into a response."""
        with self._connection_limiter.request_in_progress(request.protocol):
            with Captured() as caught:
                refusal = await self._reject_unauthorized(request)
                return refusal if refusal is not None else await handler(request)
            return responses.error_response(caught.error)

    async def _reject_unauthorized(self, request: web.Request) -> web.Response | None:
        authorization = request.headers.getall("Authorization", [""])
        transport = request.transport
        peer = transport.get_extra_info("peercert") if transport is not None else None
        user = None
        # With two headers a proxy may have checked another one than we would.
        if len(authorization) == 1:
            user = await self._auth.authenticate(authorization[0], peer)
        if user is None:
            return responses.text_error(401, "Unauthorized")
        attributes = auth.request_attributes(request.method, request.path)
        text = f"user={user.name}, verb={attributes.verb}, resource=nodes, subresource(s)=[{attributes.subresource}]"
        try:
            allowed = await self._auth.is_allowed(user, attributes)
        except errors.BramleyError as error:
            logger.warning("SubjectAccessReview failed", user=user.name, reason=error.reason)
            return responses.text_error(500, f"Authorization error ({text})")
        return None if allowed else responses.text_error(403, f"Forbidden ({text})")

    async def _healthz(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _container_logs(self, request: web.Request) -> web.StreamResponse:
        match = request.match_info
        path_parts = (match["namespace"], match["pod"], match["container"])
        log_request = log_options.log_request(path_parts, request.query, self._clock.now())
        with self._stream():
            batches = self._logs.batches(log_request)
            encoded = log_options.encode(batches, log_request)
            async with aclosing(encoded) as chunks, aclosing(batches):
                deadline = self._settings.send_deadline
                return await responses.stream(request, chunks, deadline=deadline)

    @contextlib.contextmanager
    def _stream(self) -> Generator[None, None, None]:
        if self._streams >= self._settings.max_streams:
            raise responses.TooManyStreams("too many log streams are open")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def _summary(self, _request: web.Request) -> web.StreamResponse:
        return responses.summary(self._stats.usage())

    async def _resource_metrics(self, _request: web.Request) -> web.StreamResponse:
        return responses.resource_metrics(self._stats.usage())


def _load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    try:
        # Without a password OpenSSL would prompt for one on the terminal.
        context.load_cert_chain(pair.certificate, pair.key, password="")
    except (OSError, ValueError) as error:
        raise errors.BadConfiguration(
            f"{pair.certificate} and {pair.key} cannot be loaded: {error}; both must be PEM and belong together"
        ) from error


def _load_client_ca(context: ssl.SSLContext, authority: Path) -> None:
    try:
        # OpenSSL only adds: an authority that was removed from the file is trusted until the agent restarts.
        context.load_verify_locations(authority)
    except (OSError, ValueError) as error:
        raise errors.BadConfiguration(
            f"{authority} contains no certificate authority in PEM: {error}; see --client-ca-file"
        ) from error
