"""Guests that poll any replica as VMs do, and the proxy in front of the replicas that GitHub's webhooks go through."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec
from aiohttp import web

from bramley.api.core import ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.names import dispatch as names
from bramley.api.names import labels
from bramley.api.pod import Container, Pod, PodSpec
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.github.http import HttpTransport
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response
from tests.process.dispatch.history import HandedOut, History, Run
from tests.process.dispatch.processes import IMAGE, NAMESPACE, POOL, Replica, call

POLL_DEADLINE = timedelta(seconds=70)
RUN_DEADLINE = timedelta(minutes=20)
PAUSE_SECONDS = 0.2
PASSED_ON = ("content-type", "x-github-event", "x-github-delivery", "x-hub-signature-256")


@dataclass(slots=True)
class Proxy:
    """Sends each request to a random replica; a refused or lost connection is tried at the others if `retries`."""

    transports: Sequence[HttpTransport]
    history: History
    rng: random.Random
    retries: bool = False
    failed_webhooks: int = 0

    async def send(self, request: Request) -> Response:
        """Return the response of a random replica; Unavailable without one."""
        return await self.rng.choice(self.transports).send(request)

    async def receive(self, received: web.Request) -> web.Response:
        """Pass a webhook on, and record its GUID if it is acknowledged."""
        headers = tuple((name, received.headers[name]) for name in PASSED_ON)
        request = Request(
            "POST",
            names.WEBHOOK_PATH,
            body=await received.read(),
            content_type="",
            headers=headers,
            deadline=timedelta(seconds=9),
        )
        status = 502
        for transport in self.rng.sample(self.transports, len(self.transports)):
            with suppress(errors.Unavailable):
                status = (await transport.send(request)).status
            if status < 500 or not self.retries:
                break
        if 200 <= status < 300:
            self.history.acknowledged.add(received.headers["x-github-delivery"])
        else:
            self.failed_webhooks += 1
        return web.Response(status=status)


@asynccontextmanager
async def a_proxy(
    replicas: Sequence[Replica], history: History, rng: random.Random, *, retries: bool
) -> AsyncIterator[tuple[Proxy, str]]:
    """Serve webhooks on a free port; yield the proxy and the URL for webhooks."""
    async with AsyncExitStack() as stack:
        transports = [await stack.enter_async_context(HttpTransport(each.url)) for each in replicas]
        proxy = Proxy(transports, history, rng, retries=retries)
        application = web.Application()
        application.router.add_post(names.WEBHOOK_PATH, proxy.receive)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield proxy, f"http://127.0.0.1:{port}{names.WEBHOOK_PATH}"


@dataclass(slots=True)
class Guests:
    """Pods with their guests; one that ended is replaced, as by the pool controller."""

    kube: Client
    admin: Secret
    proxy: Proxy
    github: HttpTransport
    history: History
    created: int = 0
    # Runners that wait for a job, by their Pod.
    idle: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Run one Pod after another, for ever."""
        while True:
            pod = await self.a_pod()
            token = await self.kube.request_token(
                pod.name,
                NAMESPACE,
                audiences=[names.TOKEN_AUDIENCE],
                expires=timedelta(hours=8),
                bound_to=pod,
            )
            if jit := await self.poll(token.token, pod.name):
                await self._run_runner(pod.name, jit)
            await self._end(pod)

    async def a_pod(self) -> Pod:
        """Create a Pod and its ServiceAccount."""
        self.created += 1
        name = f"{POOL}-runner-{self.created:04}"
        owned = {labels.RUNNER: labels.TRUE, labels.RUNNER_POOL: POOL}
        account = ObjectMeta(name=name, namespace=NAMESPACE, labels={labels.RUNNER_POOL: POOL})
        await self.kube.create(ServiceAccount(metadata=account))
        spec = PodSpec(
            containers=[Container(name="runner", image=IMAGE)], service_account_name=name
        )
        metadata = ObjectMeta(name=name, namespace=NAMESPACE, labels=owned)
        return await self.kube.create(Pod(metadata=metadata, spec=spec))

    async def poll(self, token: Secret, pod: str) -> str:
        """Poll until there is a JIT config or the guest is to exit, then without one."""
        while True:
            with suppress(errors.Unavailable):
                response = await self.proxy.send(poll_request(token))
                if response.status == 200:
                    jit = str(msgspec.json.decode(response.body)["encoded_jit_config"])
                    self.history.handed_out.append(HandedOut(pod, jit))
                    return jit
                if response.status in (401, 410):
                    return ""
                if response.status == 204:
                    continue
            await asyncio.sleep(PAUSE_SECONDS)

    async def _run_runner(self, pod: str, jit: str) -> None:
        self.idle[pod] = jit
        response = await call(
            self.github, "/sim/runners", {"encoded_jit_config": jit}, deadline=RUN_DEADLINE
        )
        del self.idle[pod]
        answer = msgspec.json.decode(response.body)
        if response.status != 200:
            self.history.runs.append(Run(pod, jit, refusal=f"{response.status} {answer}"))
            return
        job = answer["job"]
        self.history.runs.append(Run(pod, jit, job["id"] if job else None))

    async def _end(self, pod: Pod) -> None:
        succeeded = {"status": {"phase": "Succeeded"}}
        await self.kube.merge_patch(
            Pod, pod.name, succeeded, namespace=NAMESPACE, subresource="status"
        )
        await self._report_stopped(pod.name)
        for kind in (Pod, ServiceAccount):
            await self.kube.delete(kind, pod.name, namespace=NAMESPACE, grace=timedelta())

    async def _report_stopped(self, pod: str) -> None:
        body = msgspec.json.encode({"pod_name": pod, "ended_at": datetime.now(UTC)})
        request = Request(
            "POST",
            names.POD_STOPPED_PATH,
            body=body,
            content_type="application/json",
            headers=(("Authorization", f"Bearer {self.admin.reveal()}"),),
        )
        while True:
            with suppress(errors.Unavailable):
                if (await self.proxy.send(request)).status == 204:
                    return
            await asyncio.sleep(PAUSE_SECONDS)


def poll_request(token: Secret, *, wait: int = 50) -> Request:
    """Return the poll of a guest."""
    headers = (("Authorization", f"Bearer {token.reveal()}"), ("Prefer", f"wait={wait}"))
    return Request(
        "POST",
        names.DISPATCH_PATH,
        body=b"{}",
        content_type="application/json",
        headers=headers,
        deadline=POLL_DEADLINE,
    )
