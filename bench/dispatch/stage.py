"""`bramley apiserver` and `bramley dispatch` as processes, and in this process the simulated GitHub, which can answer late.

Pods are only objects: no agent runs, and the guests of the load generator poll with their tokens.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import msgspec

from bench.apiserver.servers import Bramley, ProcessFolder, quiet
from bench.dispatch.guests import Guest
from bench.pools.stage import IMAGE, NAMESPACE, Stage, all_of, staged
from bramley.api.core import ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.names import dispatch as names
from bramley.api.names import labels
from bramley.api.pod import Container, Pod, PodSpec
from bramley.app import sim_github
from bramley.app.listen_address import Address, bind, bound_address
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.github.client import Transport
from bramley.github.http import HttpTransport
from bramley.kube.in_process import Application, Message, Receive, Send
from bramley.kube.transport import Request, Response
from bramley.sim.github import github as simulated
from bramley.sim.github.application import application
from bramley.sim.github.faults import Fault
from bramley.sim.github.github import SimulatedGitHub
from bramley.sim.github.webhooks import Hook
from tools.kube import control_plane, processes
from tools.kube.processes import ProcessRecord

REPOSITORY = "acme/app"
# What `bramley dispatch` logs when clients can connect.
STARTED = "Serving dispatch"
_LOOPBACK = "127.0.0.1"


class BadDelivery(Exception):
    """The server refused a webhook."""


@dataclass(slots=True)
class Webhooks:
    """Sends the webhooks of the simulated GitHub, and records when each was sent, by the id of its job."""

    inner: Transport
    sent: dict[int, float] = field(default_factory=dict)

    async def send(self, request: Request) -> Response:
        """Send one webhook."""
        job_id = msgspec.json.decode(request.body or b"{}")["workflow_job"]["id"]
        self.sent[job_id] = time.perf_counter()
        response = await self.inner.send(request)
        if response.status != 200:
            raise BadDelivery(f"a webhook was answered with {response.status}")
        return response


@dataclass(slots=True)
class Calls:
    """The application of the simulated GitHub, with its number of calls."""

    inner: Application
    count: int = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one call."""
        self.count += 1
        await self.inner(scope, receive, send)


@dataclass(slots=True)
class DispatchStage:
    """The processes, the simulated GitHub, and the guests that can be started."""

    api: Stage
    port: int
    github: SimulatedGitHub
    calls: Calls
    webhooks: Webhooks
    server: ProcessRecord
    set_up_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """Return the process of the dispatch server."""
        return self.server.pid

    def set_latency(self, seconds: float) -> None:
        """Set how long GitHub takes to answer each call from now on."""
        self.github.faults.clear()
        if seconds:
            self.github.faults.add(Fault(kind="latency", seconds=seconds, times=sys.maxsize))

    def queue_job(self, pool: str) -> int:
        """Queue a job at GitHub, which sends its webhook; return its id."""
        owner, _, name = REPOSITORY.partition("/")
        repository = self.github.accounts[owner].repositories[name]
        return self.github.actions.queue_job(repository, labels=[pool]).id

    async def create_pools(self, pools: Sequence[str]) -> None:
        """Create pools without replicas, whose label is their name."""
        await all_of(self.api.create_pool(pool, "bench", replicas=0) for pool in pools)

    async def create_guests(self, pools: Sequence[str]) -> list[Guest]:
        """Create a Pod with its ServiceAccount and token for each entry."""
        started = time.perf_counter()
        guests: dict[int, Guest] = {}

        async def create(number: int, pool: str) -> None:
            guests[number] = await self._create_guest(f"runner-{number:05}", pool)

        await all_of(create(number, pool) for number, pool in enumerate(pools))
        self.set_up_seconds["Pods and tokens"] = round(time.perf_counter() - started, 2)
        return [guests[number] for number in range(len(pools))]

    async def _create_guest(self, name: str, pool: str) -> Guest:
        kube, of_pool = self.api.kube, {labels.RUNNER_POOL: pool}
        account = ObjectMeta(name=name, namespace=NAMESPACE, labels=of_pool)
        await kube.create(ServiceAccount(metadata=account))
        owned = {labels.RUNNER: labels.TRUE, **of_pool}
        pod = await kube.create(
            Pod(
                metadata=ObjectMeta(name=name, namespace=NAMESPACE, labels=owned),
                spec=PodSpec(
                    containers=[Container(name="runner", image=IMAGE)], service_account_name=name
                ),
            )
        )
        issued = await kube.request_token(
            name,
            NAMESPACE,
            audiences=[names.TOKEN_AUDIENCE],
            expires=timedelta(hours=8),
            bound_to=pod,
        )
        return Guest(name, pool, issued.token)


@asynccontextmanager
async def dispatch_stage(folder: ProcessFolder) -> AsyncIterator[DispatchStage]:
    """Start everything; the dispatch server uses SQLite."""
    secret_file, key_file = folder.folder / "webhook-secret", folder.folder / "github-app.pem"
    secret = Secret(secrets.token_hex(32))
    secret_file.write_text(secret.reveal())
    (port,) = control_plane.free_ports(1)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(staged(folder, Bramley(folder)))
        sender = await stack.enter_async_context(HttpTransport(f"http://{_LOOPBACK}:{port}"))
        webhooks = Webhooks(sender)
        github = SimulatedGitHub(
            sim_github.public_key(key_file),
            clock=SystemClock(),
            hook=Hook(webhooks, names.WEBHOOK_PATH, secret),
            settings=simulated.Settings(requests_per_hour=1_000_000),
        )
        sim_github.add_repositories(github, [REPOSITORY])
        calls = Calls(application(github))
        bound = bind(Address(_LOOPBACK, 0))
        stack.callback(bound.close)
        await stack.enter_async_context(github.running())
        await stack.enter_async_context(sim_github.serving(calls, bound))
        command = [
            *_command(folder.folder, port),
            *("--github-api-url", f"http://{bound_address(Address(_LOOPBACK, 0), bound)}"),
            *("--github-private-key-file", str(key_file)),
            *("--webhook-secret-file", str(secret_file)),
        ]
        server = folder.run("dispatch", command, env=quiet())
        api.controller = server
        await api.until(lambda: _has_started(server), what="the dispatch server")
        yield DispatchStage(api, port, github, calls, webhooks, server)


def _command(folder: Path, port: int) -> list[str]:
    return [
        *(str(Path(sys.executable).parent / "bramley"), "dispatch"),
        *("--listen", f"{_LOOPBACK}:{port}"),
        *("--kubeconfig", str(folder / "kubeconfig"), "--namespace", NAMESPACE),
        *("--database", f"sqlite:///{folder / 'dispatch.sqlite'}"),
        *("--metrics-bind-address", f"{_LOOPBACK}:0", "--health-probe-bind-address", "off"),
        *("--github-app-id", "1"),
    ]


async def _has_started(server: ProcessRecord) -> bool:
    return STARTED in processes.tail(server.log)
