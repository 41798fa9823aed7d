"""The small HTTP server of a process: /healthz and /readyz for whoever watches over it, /metrics for Prometheus.

Each check is a function that returns nothing when all is well, or a short reason. `?verbose` lists every check, and so does
an answer that is not ok. Nothing here may be secret: the endpoints ask nobody who he is, and bind to loopback by default.
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
    # Ten megabytes that a process without probes, such as the embedded cluster, does not need.
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
    """Return what to tell people about an address that cannot be had."""
    # Of a failed name asyncio gives a number that is none of the system's, and otherwise a text that repeats the address.
    why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
    told = f"cannot listen on {host}:{port}: {why}"
    return errors.BadConfiguration(f"{told}; end what listens there, or choose another address")


class Probes:
    """Serves the health, the readiness and the metrics of this process."""

    def __init__(self, settings: ProbeSettings, registry: CollectorRegistry) -> None:
        self.ready = asyncio.Event()
        self.port = settings.port
        self._settings = settings
        self._registry = registry
        self._health: dict[str, Check] = {"ping": lambda: ""}
        self._readiness: dict[str, Check] = {"ping": lambda: ""}

    def health_check(self, name: str, check: Check) -> None:
        """Ask this on /healthz; a failure means that the process should be restarted."""
        self._health[name] = check

    def ready_check(self, name: str, check: Check) -> None:
        """Ask this on /readyz; a failure means that the process cannot do its work now."""
        self._readiness[name] = check

    async def run(self) -> None:
        """Serve until cancelled; `ready` is set and `port` is true once it listens."""
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
            app.router.add_get("/healthz", self._answer_health)
            app.router.add_get("/readyz", self._answer_readiness)
        if self._settings.metrics:
            app.router.add_get("/metrics", self._answer_metrics)
        return app

    async def _answer_health(self, request: web.Request) -> web.Response:
        return _answer(self._health, verbose="verbose" in request.query)

    async def _answer_readiness(self, request: web.Request) -> web.Response:
        return _answer(self._readiness, verbose="verbose" in request.query)

    async def _answer_metrics(self, _request: web.Request) -> web.Response:
        from aiohttp import web

        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(checks: dict[str, Check], *, verbose: bool) -> web.Response:
    from aiohttp import web

    failures = {name: check() for name, check in sorted(checks.items())}
    is_well = not any(failures.values())
    if is_well and not verbose:
        return web.Response(text="ok")
    lines = [
        f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in failures.items()
    ]
    lines.append("check passed" if is_well else "check failed")
    return web.Response(text="\n".join(lines) + "\n", status=200 if is_well else 503)
