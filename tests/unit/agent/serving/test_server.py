"""The agent's endpoints over real sockets: who is let in, what they get, and what nobody can make it hold."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from bramley.agent.processes import SystemPrograms
from bramley.agent.serving.server import Bounds, ConnectionLimiter, Server, Settings
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
    Stats,
    scene,
    trusting,
)

pytestmark = pytest.mark.tier("process")  # a real server makes its certificate with openssl

LOG = "/containerLogs/ns/p/vm"


class Line:
    """A connection."""

    is_closed = False

    def force_close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("path", [LOG, "/stats/summary", "/metrics/resource", "/healthz", "/no"])
async def test_nobody_is_let_in_without_a_credential(tmp_path: Path, path: str) -> None:
    async with scene(tmp_path) as stage:
        assert await stage.get(path, None) == (401, "Unauthorized")
        assert await stage.get(path, "nobody") == (401, "Unauthorized")
        assert stage.logs.asked == []


@pytest.mark.parametrize(
    ("path", "part"),
    [(LOG, "proxy"), ("/stats/summary", "stats"), ("/metrics/resource", "metrics")],
)
async def test_a_good_token_without_rights_is_forbidden(
    tmp_path: Path, path: str, part: str
) -> None:
    async with scene(tmp_path) as stage:
        told = f"Forbidden (user={STRANGER}, verb=get, resource=nodes, subresource(s)=[{part}])"

        assert await stage.get(path, STRANGER) == (403, told)
        assert stage.logs.asked == []


async def test_two_credentials_are_none(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        token = stage.headers(READER)["Authorization"]
        twice = [("Authorization", token), ("Authorization", "Bearer other")]
        async with stage.session.get(stage.url(LOG), headers=twice) as answer:
            assert answer.status == 401


async def test_a_certificate_of_the_client_authority_says_who_comes(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        allowed, stranger = stage.proving(KUBELET_CLIENT), stage.proving(STRANGER)

        assert (await stage.get(LOG, None, ssl=allowed))[0] == 200
        assert (await stage.get(LOG, None, ssl=stranger))[0] == 403


async def test_certificates_of_others_do_not_even_connect(tmp_path: Path) -> None:
    from bramley.apiserver.pki import tls

    other = tls.Certificates(tmp_path / "other")
    other.ensure()
    async with scene(tmp_path) as stage:
        stage.certificates = other
        foreign = stage.proving(KUBELET_CLIENT)

        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await stage.get(LOG, None, ssl=foreign)


async def test_a_log_is_sent_with_what_was_asked_for(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        asked = f"{LOG}?timestamps=true&limitBytes=40&tailLines=7&sinceSeconds=60"

        code, text = await stage.get(asked)

        assert (code, text) == (200, "2026-01-02T03:04:05.000000000Z one\n2026-")
        wanted = stage.logs.asked[0]
        assert (wanted.tail_lines, wanted.follow, wanted.limit_bytes) == (7, False, 40)


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
async def test_what_is_not_there_or_makes_no_sense_is_refused(
    tmp_path: Path, path: str, code: int
) -> None:
    async with scene(tmp_path) as stage:
        found, _ = await stage.get(path)

        assert found == code


async def test_nothing_can_be_posted(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        headers = stage.headers(READER)
        async with stage.session.post(stage.url(LOG), headers=headers) as answer:
            assert answer.status == 405


async def test_the_summary_and_the_metrics_tell_the_same(tmp_path: Path) -> None:
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


async def test_a_followed_log_ends_with_its_reader(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        url, headers = stage.url(f"{LOG}?follow=true"), stage.headers(READER)
        async with stage.session.get(url, headers=headers) as answer:
            assert await answer.content.readline() == b"one\n"
            answer.close()

            await asyncio.wait_for(stage.logs.closed.wait(), 10)


async def test_a_reader_that_takes_nothing_is_cut_off(tmp_path: Path) -> None:
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


async def test_a_log_that_breaks_does_not_look_whole(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.logs.fails_with = OSError("the disk is gone")

        with pytest.raises(aiohttp.ClientError):
            await stage.get(LOG)


async def test_no_more_logs_are_read_than_allowed(tmp_path: Path) -> None:
    async with scene(tmp_path, streams=1) as stage:
        url, headers = stage.url(f"{LOG}?follow=true"), stage.headers(READER)
        async with stage.session.get(url, headers=headers) as answer:
            await answer.content.readline()

            assert (await stage.get(LOG))[0] == 429
        await asyncio.wait_for(stage.logs.closed.wait(), 10)
        assert (await stage.get(LOG))[0] == 200


async def test_who_sends_a_request_byte_by_byte_is_hung_up_on(tmp_path: Path) -> None:
    bounds = Bounds(max_connections=2, idle=timedelta(seconds=1))
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


def test_a_connection_without_a_request_goes_when_its_time_is_over() -> None:
    guard, line = ConnectionLimiter(Bounds(idle=timedelta(seconds=10))), Line()

    assert [guard.close_excess([line], now) for now in (0.0, 9.9)] == [0, 0]
    with guard.request_in_progress(line):
        assert guard.close_excess([line], 60.0) == 0
    assert [guard.close_excess([line], now) for now in (61.0, 70.0, 71.0)] == [0, 0, 1]
    assert line.is_closed


def test_of_too_many_connections_the_longest_waiting_go() -> None:
    guard, there = (
        ConnectionLimiter(Bounds(max_connections=2, idle=timedelta(seconds=10))),
        [Line() for _ in range(4)],
    )
    guard.close_excess(there[:1], 0.0)
    with guard.request_in_progress(there[1]):
        closed = guard.close_excess(there, 1.0)

    assert closed == 2
    assert (there[0].is_closed, there[1].is_closed) == (True, False)


async def test_headers_are_bounded(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        headers = {**stage.headers(READER), "X": "y" * 20_000}
        async with stage.session.get(stage.url(LOG), headers=headers) as answer:
            assert answer.status == 400


async def test_rights_are_asked_once_a_minute_and_not_for_each_request(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
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


async def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    assert "--tls-key-file" in await refused(tmp_path, certificate=tmp_path / "c")


async def test_files_that_hold_nothing_usable_are_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")

    assert str(bad) in await refused(tmp_path, client_authority=bad)
    assert str(bad) in await refused(tmp_path, certificate=bad, key=bad)
