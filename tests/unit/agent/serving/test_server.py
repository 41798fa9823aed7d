"""The agent's endpoints over real sockets: authentication, responses, and limits on connections and streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from bramley.agent.processes import SystemPrograms
from bramley.agent.serving.server import ConnectionLimiter, ConnectionLimits, Server, Settings
from bramley.app import embedded
from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.kube.client import Client
from tests.unit.agent.serving.scene import (
    KUBELET_CLIENT,
    NODE,
    READER,
    STRANGER,
    Logs,
    Scene,
    Stats,
    scene,
    trusting,
)

pytestmark = pytest.mark.tier("process")  # a real server makes its certificate with openssl

LOG = "/containerLogs/ns/p/vm"


class Connection:
    """A connection."""

    is_closed = False

    def force_close(self) -> None:
        self.is_closed = True


@pytest.fixture
def stage(tmp_path: Path) -> AbstractAsyncContextManager[Scene]:
    return scene(tmp_path)


@pytest.mark.parametrize("path", [LOG, "/stats/summary", "/metrics/resource", "/healthz", "/no"])
async def test_request_without_a_valid_credential_is_unauthorized(stage: Scene, path: str) -> None:
    assert await stage.get(path, None) == (401, "Unauthorized")
    assert await stage.get(path, "unknown") == (401, "Unauthorized")
    assert stage.logs.requests == []


@pytest.mark.parametrize(
    ("path", "subresource"),
    [(LOG, "proxy"), ("/stats/summary", "stats"), ("/metrics/resource", "metrics")],
)
async def test_valid_token_without_permission_is_forbidden(
    stage: Scene, path: str, subresource: str
) -> None:
    message = (
        f"Forbidden (user={STRANGER}, verb=get, resource=nodes, subresource(s)=[{subresource}])"
    )

    assert await stage.get(path, STRANGER) == (403, message)
    assert stage.logs.requests == []


async def test_two_authorization_headers_are_refused(stage: Scene) -> None:
    token = stage.headers(READER)["Authorization"]
    twice = [("Authorization", token), ("Authorization", "Bearer other")]
    async with stage.session.get(stage.url(LOG), headers=twice) as answer:
        assert answer.status == 401


async def test_client_certificate_identifies_the_user(stage: Scene) -> None:
    allowed, stranger = stage.client_context(KUBELET_CLIENT), stage.client_context(STRANGER)

    assert (await stage.get(LOG, None, ssl=allowed))[0] == 200
    assert (await stage.get(LOG, None, ssl=stranger))[0] == 403


async def test_certificate_of_another_authority_cannot_connect(tmp_path: Path) -> None:
    from bramley.apiserver.pki import tls

    other = tls.Certificates(tmp_path / "other")
    other.ensure()
    async with scene(tmp_path) as stage:
        stage.certificates = other
        foreign = stage.client_context(KUBELET_CLIENT)

        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await stage.get(LOG, None, ssl=foreign)


async def test_log_options_are_applied(stage: Scene) -> None:
    path = f"{LOG}?timestamps=true&limitBytes=40&tailLines=7&sinceSeconds=60"

    code, text = await stage.get(path)

    assert (code, text) == (200, "2026-01-02T03:04:05.000000000Z one\n2026-")
    request = stage.logs.requests[0]
    assert (request.tail_lines, request.follow, request.limit_bytes) == (7, False, 40)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/containerLogs/ns/other/vm", 404),
        ("/containerLogs/..%2F..%2Fetc/passwd/vm", 404),
        ("/containerLogs/ns/..%2Fp/vm", 404),
        ("/containerLogs/ns/p/vm/more", 404),
        ("/exec/ns/p/vm", 404),
        (f"{LOG}?tailLines=x", 400),
        (f"{LOG}?tailLines=-1", 422),
        (f"{LOG}?follow=maybe", 400),
        (f"{LOG}?sinceTime=yesterday", 400),
        (f"{LOG}?sinceTime=2026-01-01T00:00:00Z&sinceSeconds=1", 422),
    ],
)
async def test_unknown_paths_and_invalid_options_are_refused(
    stage: Scene, path: str, code: int
) -> None:
    found, _ = await stage.get(path)

    assert found == code


async def test_post_is_not_allowed(stage: Scene) -> None:
    headers = stage.headers(READER)
    async with stage.session.post(stage.url(LOG), headers=headers) as answer:
        assert answer.status == 405


async def test_summary_and_metrics_have_the_same_values(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _, text = await stage.get("/stats/summary")
        _, metrics = await stage.get("/metrics/resource")

    summary = json.loads(text)
    used = {"usageNanoCores": 250_000_000, "usageCoreNanoSeconds": 12_500_000_000}
    assert summary["node"]["cpu"] == {"time": "2026-01-02T03:04:05Z", **used}
    assert summary["node"]["fs"]["usedBytes"] == 600
    (pod,) = summary["pods"]
    assert pod["podRef"] == {"name": "p", "namespace": "ns", "uid": "u"}
    assert pod["containers"][0]["memory"]["workingSetBytes"] == 4096
    line = 'container_cpu_usage_seconds_total{container="vm",namespace="ns",pod="p"} 12.500000000'
    assert f"{line} 1767323045000\n" in metrics
    assert "node_memory_working_set_bytes 4096 1767323045000\n" in metrics
    assert metrics.endswith("resource_scrape_error 0\n")


async def test_followed_log_is_closed_with_its_client(stage: Scene) -> None:
    url, headers = stage.url(f"{LOG}?follow=true"), stage.headers(READER)
    async with stage.session.get(url, headers=headers) as answer:
        assert await answer.content.readline() == b"one\n"
        answer.close()

        await asyncio.wait_for(stage.logs.closed.wait(), 10)


async def test_client_that_reads_nothing_is_disconnected(tmp_path: Path) -> None:
    deadline = timedelta(seconds=0.3)
    async with scene(tmp_path, send_deadline=deadline) as stage:
        stage.logs.lines = [b"x" * 65536] * 400
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", stage.server.port, ssl=trusting(), limit=1024
        )
        token = stage.headers(READER)["Authorization"]
        writer.write(f"GET {LOG} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n\r\n".encode())

        await asyncio.wait_for(stage.logs.closed.wait(), 20)

        with pytest.raises(ConnectionError):  # noqa: PT012 - what came before is read first
            while await reader.read(65536):
                pass
            raise ConnectionResetError
        writer.close()


async def test_failed_log_is_not_a_complete_response(stage: Scene) -> None:
    stage.logs.fails_with = OSError("the disk is gone")

    with pytest.raises(aiohttp.ClientError):
        await stage.get(LOG)


async def test_number_of_log_streams_is_limited(tmp_path: Path) -> None:
    async with scene(tmp_path, max_streams=1) as stage:
        url, headers = stage.url(f"{LOG}?follow=true"), stage.headers(READER)
        async with stage.session.get(url, headers=headers) as answer:
            await answer.content.readline()

            assert (await stage.get(LOG))[0] == 429
        await asyncio.wait_for(stage.logs.closed.wait(), 10)
        assert (await stage.get(LOG))[0] == 200


async def test_slow_request_is_disconnected(tmp_path: Path) -> None:
    bounds = ConnectionLimits(max_connections=2, idle=timedelta(seconds=1))
    async with scene(tmp_path, connections=bounds) as stage:
        began = time.monotonic()
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", stage.server.port, ssl=trusting()
        )
        writer.write(b"GET / HTTP/1.1\r\nHo")
        while not reader.at_eof() and time.monotonic() - began < 8:
            writer.write(b"o")
            with contextlib.suppress(TimeoutError, ConnectionError):
                await asyncio.wait_for(reader.read(1), 0.05)

        assert time.monotonic() - began < 8
        writer.close()


def test_idle_connection_is_closed_after_its_timeout() -> None:
    limiter, connection = (
        ConnectionLimiter(ConnectionLimits(idle=timedelta(seconds=10))),
        Connection(),
    )

    assert [limiter.close_excess([connection], now) for now in (0.0, 9.9)] == [0, 0]
    with limiter.request_in_progress(connection):
        assert limiter.close_excess([connection], 60.0) == 0
    assert [limiter.close_excess([connection], now) for now in (61.0, 70.0, 71.0)] == [0, 0, 1]
    assert connection.is_closed


def test_longest_idle_connections_are_closed_first() -> None:
    limiter, connections = (
        ConnectionLimiter(ConnectionLimits(max_connections=2, idle=timedelta(seconds=10))),
        [Connection() for _ in range(4)],
    )
    limiter.close_excess(connections[:1], 0.0)
    with limiter.request_in_progress(connections[1]):
        closed = limiter.close_excess(connections, 1.0)

    assert closed == 2
    assert (connections[0].is_closed, connections[1].is_closed) == (True, False)


async def test_header_size_is_limited(stage: Scene) -> None:
    headers = {**stage.headers(READER), "X": "y" * 20_000}
    async with stage.session.get(stage.url(LOG), headers=headers) as answer:
        assert answer.status == 400


async def test_authorization_is_cached_for_a_minute(stage: Scene) -> None:
    assert (await stage.get(LOG))[0] == 200
    from bramley.api.rbac import ClusterRoleBinding

    await stage.kube.delete(ClusterRoleBinding, f"allow-{READER}")

    assert (await stage.get(LOG))[0] == 200


async def refused(tmp_path: Path, **changes: Path) -> str:
    """Return why a server with these files does not start."""
    settings = Settings(node=NODE, folder=tmp_path / "serving", **changes)  # type: ignore[arg-type]
    async with embedded.running(clock=SystemClock()) as (api, admin):
        server = Server(
            settings,
            kube=Client(api.transport(admin)),
            logs=Logs(),
            stats=Stats(),
            programs=SystemPrograms({}),
            clock=SystemClock(),
        )
        with pytest.raises(errors.BadConfiguration) as refusal:
            await server.run()
    return str(refusal.value)


async def test_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    assert "--tls-key-file" in await refused(tmp_path, certificate=tmp_path / "c")


async def test_error_names_the_unusable_file(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")

    assert str(bad) in await refused(tmp_path, client_authority=bad)
    assert str(bad) in await refused(tmp_path, certificate=bad, key=bad)
