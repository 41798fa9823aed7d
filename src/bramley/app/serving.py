"""Serving an application over TLS until asked to stop, and stopping so that nobody loses anything.

The order of stopping: no new connections; requests under way are answered, watches excepted; `end_streams` lets the
watches end by themselves; what is left a moment later, or after the deadline, is cut. A second signal cuts at once.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

import uvicorn

from bramley.apiserver.http.uvicorn_protocol import CoalescingProtocol
from bramley.app.connections import ConnectionBounds
from bramley.base import log
from bramley.kube.in_process import Application, Message, Receive, Send

logger = log.get(__name__)

# Clients keep connections open between calls; closing them early costs a TLS handshake each time.
KEEP_ALIVE = timedelta(minutes=2)
LINGER = timedelta(seconds=1)
_STREAMING = re.compile(rb"(?:^|&)(?:watch|follow)=(?:1|t|true)(?:&|$)", re.IGNORECASE)


@dataclass(slots=True)
class Stop:
    """How a process is asked to stop: once kindly, twice at once."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    forced: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self) -> None:
        """Stop kindly, or at once if that was asked before."""
        (self.forced if self.asked.is_set() else self.asked).set()


class Calls:
    """Counts the requests under way that will end by themselves; watches do not."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass one request on."""
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

    async def settle(self) -> None:
        """Wait until none is left, or nobody wants to wait any longer."""
        await self._idle.wait()

    def give_up(self) -> None:
        """Wait no longer."""
        self._idle.set()


def _is_stream(scope: Message) -> bool:
    return bool(_STREAMING.search(scope["query_string"]))


class HttpsServer:
    """One application on one socket."""

    def __init__(
        self,
        application: Application,
        *,
        bound: socket.socket,
        context: ssl.SSLContext,
        drain: timedelta,
        bounds: ConnectionBounds | None = None,
    ) -> None:
        self._bounds = bounds or ConnectionBounds()
        self._calls = Calls(application)
        self._bound = bound
        self._drain = drain.total_seconds()
        self._server = uvicorn.Server(_config(self._calls, context, drain))
        self._ended = asyncio.Event()
        self.ready = asyncio.Event()

    async def run(self, stop: Stop, *, end_streams: Callable[[], Awaitable[None]]) -> None:
        """Serve until asked to stop; `end_streams` is called when only streams are left."""
        server = self._server
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        self._bounds.raise_file_limit()
        await server.startup(sockets=[self._bound])
        self.ready.set()
        async with asyncio.TaskGroup() as group:
            guarding = group.create_task(self._bounds.guard(server.server_state.connections))
            group.create_task(self._stop_when_asked(stop))
            forcing = group.create_task(self._cut_when_forced(stop))
            await server.main_loop()
            logger.info("Stopping", reason="asked to")
            ending = group.create_task(self._end(end_streams))
            await server.shutdown(sockets=[self._bound])
            await self._ended.wait()
            ending.cancel()
            forcing.cancel()
            guarding.cancel()

    async def _stop_when_asked(self, stop: Stop) -> None:
        await stop.asked.wait()
        self._server.should_exit = True

    async def _cut_when_forced(self, stop: Stop) -> None:
        await stop.forced.wait()
        logger.warning("Stopping at once", reason="asked twice")
        self._server.force_exit = True
        self._calls.give_up()

    async def _end(self, end_streams: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(self._drain):
                await self._calls.settle()
        except TimeoutError:
            logger.warning("Requests are still under way", reason="drain deadline passed")
        await end_streams()
        self._ended.set()
        # Everything is answered; who does not read the goodbye of TLS must not keep us here.
        await asyncio.sleep(LINGER.total_seconds())
        self._server.force_exit = True


def _config(application: Application, context: ssl.SSLContext, drain: timedelta) -> uvicorn.Config:
    # Its own start and stop messages say nothing that ours do not.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return uvicorn.Config(
        application,
        loop="none",
        http=CoalescingProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(KEEP_ALIVE.total_seconds()),
        timeout_graceful_shutdown=max(1, int(drain.total_seconds())),
        ssl_context_factory=lambda _config, _default: context,
    )
