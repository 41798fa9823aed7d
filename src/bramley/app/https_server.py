"""HTTPS server: serves an application until a stop is requested, and drains it.

The order of stopping: no new connections; requests in flight are answered, except watches; `end_streams` makes the watches
end; connections that are left after that, or after the drain deadline, are closed. A second stop request closes them at once.
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import uvicorn

from bramley.apiserver.http.uvicorn_protocol import BufferedHttpProtocol
from bramley.base import log
from bramley.kube.in_process import Application, Message, Receive, Send

# Open files that are not connections: the database, logs, scratch files of a backup.
_RESERVED_FILES = 128
_CHECK_INTERVAL_SECONDS = 1.0


class ConnectionBounds:
    """Limits the number and the idle time of connections of one server.

    All connections are checked once per second, at no cost per request. A client that sends the head of a request slowly keeps its
    connection until the head deadline. When the server is full, connections that wait for a request are closed, those without any
    request so far first, so that a flood of idle connections cannot lock out other clients.
    """

    def __init__(
        self, limit: int = 20_000, head_deadline: timedelta = timedelta(seconds=20)
    ) -> None:
        self._limit = limit
        self._deadline = head_deadline.total_seconds()

    def raise_file_limit(self) -> None:
        """Raise the soft limit of open files, which is a few hundred on many systems, to the number of connections."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = self._limit + _RESERVED_FILES
        if soft != resource.RLIM_INFINITY and soft < needed:
            soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft != resource.RLIM_INFINITY:
            self._limit = min(self._limit, max(soft - _RESERVED_FILES, _RESERVED_FILES))

    async def guard(self, connections: Iterable[Any]) -> None:
        """Check the connections once per second until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_SECONDS)
            closed = self.close_surplus(connections, loop.time())
            if closed:
                logger.warning("Closed client connections", count=closed, reason="slow or too many")

    def close_surplus(self, connections: Iterable[Any], now: float) -> int:
        """Close overdue connections, then the longest waiting ones above the limit; return how many were closed."""
        open_now = list(connections)
        waiting = [each for each in open_now if each.waiting_since]
        overdue = [each for each in waiting if now - each.waiting_since > self._deadline]
        remaining = [each for each in waiting if now - each.waiting_since <= self._deadline]
        remaining.sort(key=lambda each: (each.has_requested, each.waiting_since))
        surplus = max(0, len(open_now) - len(overdue) - self._limit)
        for each in (*overdue, *remaining[:surplus]):
            each.abort()
        return len(overdue) + len(remaining[:surplus])


logger = log.get(__name__)

# Clients keep connections open between calls; closing them early costs a TLS handshake each time.
KEEP_ALIVE = timedelta(minutes=2)
LINGER = timedelta(seconds=1)
_STREAMING = re.compile(rb"(?:^|&)(?:watch|follow)=(?:1|t|true)(?:&|$)", re.IGNORECASE)


@dataclass(slots=True)
class Stop:
    """Stop requests to a process: the first one drains it, the second one stops it at once."""

    requested: asyncio.Event = field(default_factory=asyncio.Event)
    forced: asyncio.Event = field(default_factory=asyncio.Event)

    def request(self) -> None:
        """Request a stop; a second request forces it."""
        (self.forced if self.requested.is_set() else self.requested).set()


class InFlightRequests:
    """Counts the requests in flight, without watches and other streams, which do not end by themselves."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if _is_stream(scope):
            await self._application(scope, receive, send)
            return
        self._open += 1
        self._idle.clear()
        try:
            await self._application(scope, receive, send)
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until no request is in flight, or until `cancel_wait`."""
        await self._idle.wait()

    def cancel_wait(self) -> None:
        """End the wait although requests are in flight."""
        self._idle.set()


def _is_stream(scope: Message) -> bool:
    return bool(_STREAMING.search(scope["query_string"]))


class HttpsServer:
    """Serves one application on one socket; without a context over plain HTTP, for servers behind an Ingress."""

    def __init__(
        self,
        application: Application,
        *,
        bound: socket.socket,
        context: ssl.SSLContext | None,
        drain: timedelta,
        bounds: ConnectionBounds | None = None,
    ) -> None:
        self._bounds = bounds or ConnectionBounds()
        self._in_flight = InFlightRequests(application)
        self._bound = bound
        self._drain = drain.total_seconds()
        self._server = uvicorn.Server(_config(self._in_flight, context, drain))
        self._ended = asyncio.Event()
        self.ready = asyncio.Event()

    async def run(self, stop: Stop, *, end_streams: Callable[[], Awaitable[None]]) -> None:
        """Serve until a stop is requested; `end_streams` is called when only streams are left."""
        server = self._server
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        self._bounds.raise_file_limit()
        await server.startup(sockets=[self._bound])
        self.ready.set()
        async with asyncio.TaskGroup() as group:
            guard = group.create_task(self._bounds.guard(server.server_state.connections))
            group.create_task(self._stop_when_requested(stop))
            force = group.create_task(self._close_when_forced(stop))
            await server.main_loop()
            logger.info("Draining server", reason="stop requested")
            # Concurrent with the shutdown, which waits for all connections: watches end only by this task.
            end = group.create_task(self._end(end_streams))
            await server.shutdown(sockets=[self._bound])
            await self._ended.wait()
            end.cancel()
            force.cancel()
            guard.cancel()

    async def _stop_when_requested(self, stop: Stop) -> None:
        await stop.requested.wait()
        self._server.should_exit = True

    async def _close_when_forced(self, stop: Stop) -> None:
        await stop.forced.wait()
        logger.warning("Stopping server without drain", reason="stop requested twice")
        self._server.force_exit = True
        self._in_flight.cancel_wait()

    async def _end(self, end_streams: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(self._drain):
                await self._in_flight.wait_idle()
        except TimeoutError:
            logger.warning(
                "Closing streams with requests in flight", reason="drain deadline passed"
            )
        await end_streams()
        self._ended.set()
        # Every request is answered; a client that does not complete the TLS shutdown must not delay the exit.
        await asyncio.sleep(LINGER.total_seconds())
        self._server.force_exit = True


def _config(
    application: Application, context: ssl.SSLContext | None, drain: timedelta
) -> uvicorn.Config:
    # uvicorn's start and stop messages duplicate ours.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return uvicorn.Config(
        application,
        loop="none",
        http=BufferedHttpProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(KEEP_ALIVE.total_seconds()),
        timeout_graceful_shutdown=max(1, int(drain.total_seconds())),
        ssl_context_factory=None if context is None else lambda _config, _default: context,
    )
