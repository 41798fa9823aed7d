"""The servers that the cases run on: ours in process, ours behind TLS, and a real kube-apiserver."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bramley.app import apiserver, embedded
from bramley.app.https_server import Stop
from bramley.app.listen_address import Address
from bramley.base.clock import Clock, SystemClock
from bramley.kube import config_loader
from bramley.kube.http import HttpTransport
from bramley.kube.transport import Request, Response, Transport
from tests.contract.kube_api import case_runner
from tests.contract.kube_api.tables import COLLECTIONS, Case, Json
from tests.unit.apiserver.world import widget_crd

_AT_A_TIME = 3
_TRIES = 9


@dataclass(frozen=True, slots=True)
class Target:
    """A server with the CRD of widgets, and an administrator's client of it."""

    transport: Transport
    prefix: str
    numbers: Iterator[int] = field(default_factory=itertools.count)

    async def run(self, case: Case) -> list[Json]:
        """Run a case and return the answers; retry from the start if the machine was too busy."""
        for _ in range(_TRIES):
            with suppress(case_runner.TooLate):
                return await self._run(case)
        return await self._run(case)

    async def _run(self, case: Case) -> list[Json]:
        """Run a case in its own namespace."""
        namespace = f"{self.prefix}-{next(self.numbers)}"
        await self._send("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        try:
            return await case_runner.run_case(self.transport, case, namespace)
        finally:
            await self._send("DELETE", f"/api/v1/namespaces/{namespace}")

    async def run_all(self, cases: Sequence[Case]) -> dict[str, list[Json]]:
        """Run the cases and return the answers by the case's id.

        Those that wait run all at once; meanwhile those that use only their namespace run a few at a time, and then one by
        one those that other cases could observe.
        """
        answers: dict[str, list[Json]] = {}

        async def run_in_order(*queue: Case) -> None:
            for each in queue:
                answers[each.id] = await self.run(each)

        waiting = [each for each in cases if each.waits]
        own = [each for each in cases if not each.waits and not each.is_wide]
        async with asyncio.TaskGroup() as group:
            for each in waiting:
                group.create_task(run_in_order(each))
            async with asyncio.TaskGroup() as few:
                for start in range(_AT_A_TIME):
                    few.create_task(run_in_order(*own[start::_AT_A_TIME]))
            await run_in_order(*(each for each in cases if each.is_wide and not each.waits))
        return answers

    async def install(self) -> None:
        """Create the CRD of widgets and wait until they are served."""
        await self._send("POST", COLLECTIONS["crds"], widget_crd())
        async with asyncio.timeout(180):
            while (await self._send("GET", "/apis/example.com/v1/widgets")).status != 200:
                await asyncio.sleep(0.05)

    async def _send(self, method: str, path: str, body: object = None) -> Response:
        data = None if body is None else json.dumps(body).encode()
        kind = None if data is None else "application/json"
        return await self.transport.send(Request(method, path, body=data, content_type=kind))


@asynccontextmanager
async def in_process(clock: Clock) -> AsyncIterator[Target]:
    """Run our server in memory, on any event loop; without controllers, as the real server whose answers are recorded."""
    async with embedded.running(clock=clock) as (api, token):
        target = Target(api.transport(token), "case")
        await target.install()
        yield target


@asynccontextmanager
async def over_http(folder: Path, *, controllers: bool) -> AsyncIterator[Target]:
    """Run our server with its files, certificates and sockets, and with a cluster's controllers or without."""
    settings = apiserver.Settings(
        data_dir=folder / "data",
        listen=Address("127.0.0.1", 0),
        kubeconfig=folder / "kubeconfig",
        controllers=embedded.ControllerSettings(enabled=controllers),
    )
    started, stop, clock = asyncio.Event(), Stop(), SystemClock()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            apiserver.serve(settings, stop=stop, on_serving=lambda _: started.set(), clock=clock)
        )
        async with asyncio.timeout(180):
            await started.wait()
        try:
            async with real(settings.kubeconfig) as target:
                yield target
        finally:
            stop.request()


@asynccontextmanager
async def real(kubeconfig: Path) -> AsyncIterator[Target]:
    """Use a server that runs already."""
    transport = HttpTransport(config_loader.load(kubeconfig, environment={}))
    try:
        # A real server may still be busy with the namespaces of an earlier run.
        target = Target(transport, f"case-{secrets.token_hex(3)}")
        await target.install()
        yield target
    finally:
        await transport.close()
