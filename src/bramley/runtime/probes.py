"""The small HTTP server of a process: /healthz and /readyz for its supervisor, /metrics for Prometheus.

Each check is a function that returns an empty string, or a short reason for failing. `?verbose` lists every check, and so
does a failed one. Nothing here may be secret: the endpoints do not authenticate clients, and bind to loopback by default.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from bramley.base import errors, log

if TYPE_CHECKING:
    # Takes ten megabytes, which a process without probes, such as the embedded cluster, does not need.
    from aiohttp import web

logger = log.get(__name__)

Check = Callable[[], str]


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Where to listen and what to serve there; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 0
    health: bool = True
    metrics: bool = True


def cannot_listen(host: str, port: int, error: OSError) -> errors.BadConfiguration:
    """Return the error for an address that cannot be bound."""
    # For a failed name lookup asyncio sets an errno that is not the system's, otherwise a text that repeats the address.
    why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
    return errors.BadConfiguration(
        f"cannot listen on {host}:{port}: {why}; stop what listens there, or choose another address"
    )


class Probes:
    """Serves the health, the readiness and the metrics of this process."""

    def __init__(self, settings: ProbeSettings, registry: CollectorRegistry) -> None:
        self.ready = asyncio.Event()
        self.port = settings.port
        self._settings = settings
        self._registry = registry
        self._health: dict[str, Check] = {"ping": lambda: ""}
        self._readiness: dict[str, Check] = {"ping": lambda: ""}

    def add_health_check(self, name: str, check: Check) -> None:
        """Add a check to /healthz; a failure means that the process should be restarted."""
        self._health[name] = check

    def add_ready_check(self, name: str, check: Check) -> None:
        """Add a check to /readyz; a failure means that the process cannot do its work at present."""
        self._readiness[name] = check

    async def run(self) -> None:
        """Serve until cancelled; `ready` is set and `port` is the real one once it listens."""
        from aiohttp import web

        runner = web.AppRunner(
            self._app(), access_log=None, handle_signals=False, shutdown_timeout=1.0
        )
        await runner.setup()
        try:
            await self._listen(runner)
            await asyncio.Event().wait()
        finally:
            self.ready.clear()
            await runner.cleanup()

    async def _listen(self, runner: web.AppRunner) -> None:
        from aiohttp import web

        host, port = self._settings.host, self._settings.port
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise cannot_listen(host, port, error) from error
        self.port = runner.addresses[0][1]
        logger.info("Serving probes", host=host, port=self.port)
        self.ready.set()

    def _app(self) -> web.Application:
        from aiohttp import web

        app = web.Application()
        if self._settings.health:
            app.router.add_get("/healthz", self._serve_health)
            app.router.add_get("/readyz", self._serve_readiness)
        if self._settings.metrics:
            app.router.add_get("/metrics", self._serve_metrics)
        return app

    async def _serve_health(self, request: web.Request) -> web.Response:
        return _response(self._health, verbose="verbose" in request.query)

    async def _serve_readiness(self, request: web.Request) -> web.Response:
        return _response(self._readiness, verbose="verbose" in request.query)

    async def _serve_metrics(self, _request: web.Request) -> web.Response:
        from aiohttp import web

        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _response(checks: dict[str, Check], *, verbose: bool) -> web.Response:
    from aiohttp import web

    failures = {name: check() for name, check in sorted(checks.items())}
    is_ok = not any(failures.values())
    if is_ok and not verbose:
        return web.Response(text="ok")
    lines = [
        f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in failures.items()
    ]
    lines.append("check passed" if is_ok else "check failed")
    return web.Response(text="\n".join(lines) + "\n", status=200 if is_ok else 503)
