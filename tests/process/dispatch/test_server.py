"""`bramley dispatch` on a SQLite file, as a process: its stop, its kill, its backup, its probes, and where secrets are not."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from bramley.api.core import ServiceAccount
from bramley.api.names import dispatch as names
from bramley.api.pod import Pod
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.github import webhook_signatures
from bramley.github.http import HttpTransport
from bramley.kube import config_loader
from bramley.kube.transport import Request, Response
from tests.process.dispatch.guests import Guests, Proxy, poll_request
from tests.process.dispatch.history import History
from tests.process.dispatch.processes import (
    LABEL,
    NAMESPACE,
    SECRET,
    Files,
    Replica,
    a_github,
    call,
    create_pool,
)
from tests.process.serving.processes import TIMEOUT_SECONDS, Bramley, held_port, running

WEBHOOKS = 40


@dataclass(frozen=True, slots=True)
class Stage:
    """A dispatch server on a SQLite file, a simulated GitHub without webhooks, and what a guest needs."""

    server: Replica
    transport: HttpTransport
    github: HttpTransport
    guests: Guests
    database: Path
    probes: HttpTransport

    async def a_token(self, pod: Pod) -> Secret:
        issued = await self.guests.kube.request_token(
            pod.name,
            NAMESPACE,
            audiences=[names.TOKEN_AUDIENCE],
            expires=timedelta(hours=1),
            bound_to=pod,
        )
        return issued.token

    async def queue_job(self) -> int:
        """Queue a job at GitHub, and deliver its webhook; return its id."""
        new = {"repository": "acme/app", "labels": [LABEL], "seconds": 0.1}
        job = msgspec.json.decode((await call(self.github, "/sim/jobs", new)).body)
        assert (await self.deliver(job)).status == 200
        return int(job["id"])

    async def deliver(self, job: dict[str, object]) -> Response:
        owner = {"login": "acme", "type": "Organization"}
        payload = {
            "action": "queued",
            "workflow_job": job,
            "repository": {"name": "app", "full_name": "acme/app", "owner": owner},
            "organization": owner,
            "installation": {"id": 100},
        }
        body = msgspec.json.encode(payload)
        headers = (
            ("X-GitHub-Event", "workflow_job"),
            ("X-GitHub-Delivery", f"guid-{job['id']}"),
            (names.SIGNATURE_HEADER, webhook_signatures.signature(body, Secret(SECRET))),
        )
        return await self.transport.send(
            Request("POST", names.WEBHOOK_PATH, body=body, content_type="", headers=headers)
        )


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bramley]:
    with running(tmp_path_factory.mktemp("api")) as server:
        asyncio.run(_prepare(server))
        yield server


async def _prepare(server: Bramley) -> None:
    async with config_loader.connect(server.kubeconfig, environment={}) as kube:
        await create_pool(kube)


@asynccontextmanager
async def a_stage(api: Bramley, folder: Path) -> AsyncIterator[Stage]:
    files, database, history = Files(folder, api.kubeconfig), folder / "dispatch.sqlite", History()
    files.write()
    async with AsyncExitStack() as stack:
        port, probes_port = (stack.enter_context(held_port()) for _ in range(2))
        kube = await stack.enter_async_context(
            config_loader.connect(api.kubeconfig, environment={})
        )
        github, github_url = await stack.enter_async_context(a_github(files, ""))
        server = Replica("server", port, [], folder / "log")
        probes = f"127.0.0.1:{probes_port}"
        server.flags = [*files.flags(github_url), "--database", f"sqlite:///{database}"]
        server.flags += ["--metrics-bind-address", probes, "--health-probe-bind-address", probes]
        server.flags += ["--log-level", "debug"]
        stack.push_async_callback(server.stop)
        await server.start()
        transport = await stack.enter_async_context(HttpTransport(server.url))
        to_probes = await stack.enter_async_context(HttpTransport(f"http://{probes}"))
        await _until_ready(to_probes)
        proxy = Proxy([transport], history, random.Random(1))
        guests = Guests(kube, Secret(api.token), proxy, github, history)
        stack.push_async_callback(_delete_pods, guests)
        yield Stage(server, transport, github, guests, database, to_probes)


async def _until_ready(probes: HttpTransport) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not await _is_ready(probes):
            await asyncio.sleep(0.05)


async def _is_ready(probes: HttpTransport) -> bool:
    try:
        return (await call(probes, "/readyz")).status == 200
    except errors.GitHubUnavailable:
        return False


async def _delete_pods(guests: Guests) -> None:
    for kind in (Pod, ServiceAccount):
        for each in (await guests.kube.list(kind, namespace=NAMESPACE)).items:
            await guests.kube.delete(kind, each.name, namespace=NAMESPACE, grace=timedelta())


def stored_jobs(database: Path) -> set[int]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return {row[0] for row in connection.execute("SELECT id FROM jobs")}


async def until_stored(database: Path, jobs: set[int]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while stored_jobs(database) != jobs:
            await asyncio.sleep(0.05)


async def test_sigterm_ends_held_polls_with_204_and_exits_at_once(
    api: Bramley, tmp_path: Path
) -> None:
    async with a_stage(api, tmp_path) as stage, asyncio.TaskGroup() as group:
        tokens = [await stage.a_token(await stage.guests.a_pod()) for _ in range(3)]
        polls = [group.create_task(stage.transport.send(poll_request(token))) for token in tokens]
        await _until_metric(stage, "held_polls", "3")
        loop = asyncio.get_running_loop()
        began = loop.time()

        code = await stage.server.stop()

        assert code == 0, stage.server.tail()
        # The polls would have been held for 50 s, and requests in flight for 10.
        assert loop.time() - began < 8
        assert [(await poll).status for poll in polls] == [204, 204, 204]


async def _until_metric(stage: Stage, name: str, value: str) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not await _has_metric(stage, name, value):
            await asyncio.sleep(0.05)


async def _has_metric(stage: Stage, name: str, value: str) -> bool:
    text = (await call(stage.probes, "/metrics")).body.decode()
    lines = [line for line in text.splitlines() if name in line.partition("{")[0]]
    return any(line.split()[-1].removesuffix(".0") == value for line in lines)


async def test_kill_and_restart_on_the_file_lose_nothing_acknowledged(
    api: Bramley, tmp_path: Path
) -> None:
    async with a_stage(api, tmp_path) as stage:
        pod = await stage.guests.a_pod()
        token = await stage.a_token(pod)
        jobs = {await stage.queue_job()}
        first = await stage.guests.poll(token, pod.name)

        async with asyncio.TaskGroup() as group:
            queueing = [group.create_task(stage.queue_job()) for _ in range(WEBHOOKS)]
            await asyncio.gather(*queueing)
            await stage.server.kill()
        jobs |= {task.result() for task in queueing}
        await stage.server.start()

        await until_stored(stage.database, jobs)
        assert await stage.guests.poll(token, pod.name) == first


async def test_file_is_backed_up_while_webhooks_are_stored(api: Bramley, tmp_path: Path) -> None:
    """SQLite's own backup copies the file of a running server; a server starts on the copy."""
    async with a_stage(api, tmp_path) as stage:
        before = {await stage.queue_job() for _ in range(5)}
        await until_stored(stage.database, before)
        copy = tmp_path / "copy.sqlite"

        async with asyncio.TaskGroup() as group:
            later = [group.create_task(stage.queue_job()) for _ in range(WEBHOOKS)]
            await asyncio.to_thread(_back_up, stage.database, copy)
        queued = before | {task.result() for task in later}

        await until_stored(stage.database, queued)
        assert before <= stored_jobs(copy) <= queued
        await stage.server.kill()
        copied = stored_jobs(copy)
        stage.server.flags[stage.server.flags.index("--database") + 1] = f"sqlite:///{copy}"
        await stage.server.start()
        # Deliveries that were not processed yet are in the copy, too.
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while _pending(copy):
                await asyncio.sleep(0.05)
        assert copied <= stored_jobs(copy) <= queued


def _back_up(source: Path, target: Path) -> None:
    with (
        contextlib.closing(sqlite3.connect(source)) as reader,
        contextlib.closing(sqlite3.connect(target)) as copy,
    ):
        reader.backup(copy)


def _pending(database: Path) -> int:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT COUNT(*) FROM deliveries WHERE processed_at IS NULL")
        return int(found.fetchone()[0])


async def test_probes_are_ready_and_metrics_count_jobs(api: Bramley, tmp_path: Path) -> None:
    async with a_stage(api, tmp_path) as stage:
        await stage.queue_job()

        for path in ("/healthz", "/readyz"):
            assert (await call(stage.probes, path)).status == 200
        text = (await call(stage.probes, "/metrics")).body.decode()
        assert "webhook" in text


async def test_secrets_are_in_no_log_argument_or_metric(api: Bramley, tmp_path: Path) -> None:
    async with a_stage(api, tmp_path) as stage:
        pod = await stage.guests.a_pod()
        token = await stage.a_token(pod)
        await stage.queue_job()
        jit = await stage.guests.poll(token, pod.name)
        wrong = await stage.transport.send(poll_request(Secret("canary-not-a-token"), wait=0))
        metrics = (await call(stage.probes, "/metrics")).body.decode()
        process = stage.server.process
        assert process is not None
        shown = _arguments(process.pid)
        assert await stage.server.stop() == 0

        assert wrong.status == 401
        seen = stage.server.log.read_text() + metrics + shown
        key = Files(tmp_path, api.kubeconfig).key.read_text().splitlines()[1]
        for secret in (SECRET, key, jit, token.reveal(), api.token, "canary-not-a-token"):
            assert secret not in seen
        assert stage.database.stat().st_mode & 0o777 == 0o600


def _arguments(pid: int) -> str:
    path = Path(f"/proc/{pid}/cmdline")
    return path.read_text() if path.exists() else ""
