"""`bramley sim github` as a process: a client of it, a guest that runs a job, and signed webhooks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import stat
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.github import app_keys, webhook_signatures
from bramley.github.app import GitHubApp
from bramley.github.app_keys import AppCredentials
from bramley.github.client import GitHubClient
from bramley.github.http import HttpTransport
from bramley.github.installation import Installation, RunnerSpec
from bramley.github.owners import Organisation
from bramley.kube.transport import Request
from tests.github_peer import ACME, APP
from tests.unit.kube.http_servers import ReceivedRequest, plain, serving

START = (
    "from bramley.cli.main import run; import sys; sys.exit(run(['sim', 'github', *sys.argv[1:]]))"
)
TIMEOUT_SECONDS = 60


@asynccontextmanager
async def started(key: Path, *flags: str) -> AsyncIterator[tuple[Process, str]]:
    arguments = ["--private-key-file", str(key), "--listen", "127.0.0.1:0", *flags]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", START, *arguments, stdout=PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            line = (await process.stdout.readline()).decode()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line
        yield process, found[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await process.wait() == 0


def installation(key: Path, transport: HttpTransport) -> Installation:
    client = GitHubClient(transport, clock=SystemClock(), registry=CollectorRegistry())
    credentials = AppCredentials("1", app_keys.load(key.read_bytes()))
    return GitHubApp(credentials, client, clock=SystemClock()).installation(100)


async def called(transport: HttpTransport, path: str, body: object, seconds: float = 30) -> Any:
    request = Request(
        "POST", path, body=json.dumps(body).encode(), deadline=timedelta(seconds=seconds)
    )
    response = await transport.send(request)
    assert response.status == 200, response
    return json.loads(response.body)


async def test_guest_runs_a_job_and_its_webhooks_are_signed(tmp_path: Path) -> None:
    key, secret = tmp_path / "app.pem", tmp_path / "webhook-secret"
    secret.write_text("canary\n")
    arrived: list[str] = []

    async def receive(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        header = received.header("x-hub-signature-256")
        assert webhook_signatures.is_valid(received.body, header, [Secret("canary")])
        arrived.append(json.loads(received.body)["action"])
        plain(writer, b"")

    async with serving(receive) as server:
        flags = ("--webhook-url", f"{server.url}/webhooks", "--webhook-secret-file", str(secret))
        async with started(key, *flags) as (_, url), HttpTransport(url) as transport:
            new_job = {"repository": "acme/app", "labels": ["macos"], "seconds": 0.1}
            job = await called(transport, "/sim/jobs", new_job)
            acme = installation(key, transport)
            runner = await acme.create_jit_runner(ACME, RunnerSpec("r-1", ["macos"]))

            guest = {"encoded_jit_config": runner.jit_config.reveal()}
            ended = await called(transport, "/sim/runners", guest)

            assert ended["job"]["id"] == job["id"]
            assert (await acme.workflow_job(APP, job["id"])).conclusion == "success"
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while len(arrived) < 3:
                    await asyncio.sleep(0.01)
    assert sorted(arrived) == ["completed", "in_progress", "queued"]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


async def test_guest_that_disconnects_is_a_lost_runner_and_faults_apply(tmp_path: Path) -> None:
    key = tmp_path / "app.pem"
    async with started(key) as (_, url), HttpTransport(url) as transport:
        acme = installation(key, transport)
        runner = await acme.create_jit_runner(ACME, RunnerSpec("r-1", ["macos"]))
        guest = {"encoded_jit_config": runner.jit_config.reveal()}
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(called(transport, "/sim/runners", guest))
            while not (await acme.runner(ACME, runner.runner_id)).is_online:
                await asyncio.sleep(0.01)
            waiting.cancel()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (await acme.runner(ACME, runner.runner_id)).is_online:
                await asyncio.sleep(0.01)

        fault = {"kind": "status", "status": 500, "path": "*/generate-jitconfig"}
        await called(transport, "/sim/faults", fault)

        with pytest.raises(errors.GitHubUnavailable):
            await acme.create_jit_runner(ACME, RunnerSpec("r-2", ["macos"]))


async def test_restart_keeps_the_key_and_organisations_have_their_own_installations(
    tmp_path: Path,
) -> None:
    key = tmp_path / "app.pem"
    async with started(key):
        content = key.read_bytes()

    flags = ("--repository", "acme/app", "--repository", "globex/app")
    async with started(key, *flags) as (_, url), HttpTransport(url) as transport:
        assert (await installation(key, transport).registration_token(ACME)).token
        with pytest.raises(errors.NotFound):
            await installation(key, transport).registration_token(Organisation("globex"))

    assert key.read_bytes() == content
