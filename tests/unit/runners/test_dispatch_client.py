from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.runners.dispatch_client import (
    DispatchClient,
    DispatchSettings,
    ImageSignals,
    PodSignals,
    ScalingSignals,
    Sessions,
    Signals,
)
from tests.unit.kube.http_servers import (
    Handler,
    ReceivedRequest,
    Server,
    chunk,
    chunked_head,
    plain,
    serving,
)

pytestmark = pytest.mark.real_time

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEMAND = {"fleet": "a", "claimed": 3, "queued": 2, "p95_concurrent_last_hour": 4}
TOKEN = "secret-token"


def answering(body: object, status: str = "200 OK") -> Handler:
    async def handler(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        plain(writer, body if isinstance(body, bytes) else json.dumps(body).encode(), status)

    return handler


@asynccontextmanager
async def a_client(
    handler: Handler, *, token_file: Path | None = None, deadline: float = 30
) -> AsyncIterator[tuple[DispatchClient, Server]]:
    async with serving(handler) as server:
        base = f"{server.url}/api/internal/runners"
        settings = DispatchSettings(
            scaling_signals_url=f"{base}/desired_replicas",
            sessions_url=f"{base}/",
            token_file=token_file,
            deadline=timedelta(seconds=deadline),
        )
        async with DispatchClient(settings) as client:
            yield client, server


def test_client_implements_both_protocols() -> None:
    client = DispatchClient(DispatchSettings())

    signals: Signals = client
    sessions: Sessions = client

    assert (signals, sessions) == (client, client)


def test_deadline_is_five_seconds_and_bodies_are_limited_to_a_mebibyte() -> None:
    settings = DispatchSettings()

    assert settings.deadline == timedelta(seconds=5)
    assert settings.max_response_bytes == 1024 * 1024


async def test_demand_of_a_pool_is_read() -> None:
    full = {**DEMAND, "occupied": 5, "withheld": 1, "unknown": ["x"]}
    async with a_client(answering(full)) as (client, server):
        found = await client.desired_replicas("pool a&b")

    assert found == ScalingSignals(
        claimed=3, queued=2, p95_concurrent_last_hour=4, occupied=5, withheld=1
    )
    [received] = server.received
    assert received.line == ("GET /api/internal/runners/desired_replicas?fleet=pool+a%26b HTTP/1.1")
    assert received.header("authorization") == ""


async def test_older_server_omits_occupied_and_withheld() -> None:
    async with a_client(answering(DEMAND)) as (client, _server):
        found = await client.desired_replicas("a")

    assert (found.occupied, found.withheld) == (0, 0)


@pytest.mark.parametrize(
    "body",
    [
        {**DEMAND, "claimed": -1},
        {**DEMAND, "queued": "2"},
        {**DEMAND, "queued": 2**31},
        {"fleet": "a"},
        [],
        b"<html>",
        b'{"fleet": "\xff"}',
        b"",
    ],
)
async def test_invalid_demand_is_no_demand(body: object) -> None:
    async with a_client(answering(body)) as (client, _server):
        with pytest.raises(errors.Unavailable, match="invalid response"):
            await client.desired_replicas("a")


async def test_token_is_read_again_for_each_call(tmp_path: Path) -> None:
    file = tmp_path / "token"
    async with a_client(answering(DEMAND), token_file=file) as (client, server):
        for token in ("first", "second"):
            file.write_text(f"{token}\n")
            await client.desired_replicas("a")

    sent = [received.header("authorization") for received in server.received]
    assert sent == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("content", [None, b"", b"two words", b"\xff\xfe"])
async def test_missing_or_invalid_token_sends_nothing(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    async with a_client(answering(DEMAND), token_file=file) as (client, server):
        with pytest.raises(errors.BadConfiguration):
            await client.desired_replicas("a")

    assert server.received == []


async def test_all_calls_use_one_socket() -> None:
    async with a_client(answering(DEMAND)) as (client, server):
        for _ in range(5):
            await client.desired_replicas("a")

    assert server.sockets == 1


async def test_roll_signals_come_from_the_host_of_the_scaling_signals() -> None:
    body = {
        "pool": "a",
        "pods": {"a-runner-1": {"first_poll_at": "2026-01-01T12:00:05Z", "more": 1}},
        "images": {"img:1": {"finished": 20, "failed": 2}},
    }
    async with a_client(answering(body)) as (client, server):
        found = await client.roll_signals("a", NOON.astimezone(timezone(timedelta(hours=2))))

    assert found is not None
    first_poll_at = NOON + timedelta(seconds=5)
    assert found.pods == {"a-runner-1": PodSignals(first_poll_at=first_poll_at)}
    assert found.images == {"img:1": ImageSignals(finished=20, failed=2)}
    assert server.received[0].line == (
        "GET /api/internal/runners/roll_signals?pool=a&since=2026-01-01T12:00:00Z HTTP/1.1"
    )


async def test_server_without_roll_signals_is_no_error() -> None:
    async with a_client(answering({}, "404 Not Found")) as (client, _server):
        assert await client.roll_signals("a", NOON) is None


@pytest.mark.parametrize(
    "images", [{"i": {"finished": 1, "failed": 2}}, {"i": {"finished": 1, "failed": -1}}]
)
async def test_impossible_counts_of_jobs_are_refused(images: object) -> None:
    async with a_client(answering({"pool": "a", "images": images})) as (client, _server):
        with pytest.raises(errors.Unavailable, match="invalid response"):
            await client.roll_signals("a", NOON)


@pytest.mark.parametrize("status", ["204 No Content", "200 OK"])
async def test_stopped_pod_is_reported(status: str) -> None:
    async with a_client(answering(b"", status)) as (client, server):
        await client.pod_stopped("a-runner-1", NOON)

    [received] = server.received
    assert received.line == "POST /api/internal/runners/pods/stopped HTTP/1.1"
    assert json.loads(received.body) == {
        "pod_name": "a-runner-1",
        "ended_at": "2026-01-01T12:00:00Z",
    }


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("301 Moved Permanently", errors.Refused),
        ("400 Bad Request", errors.BadRequest),
        ("401 Unauthorized", errors.Unauthorized),
        ("403 Forbidden", errors.Forbidden),
        ("404 Not Found", errors.Refused),
        ("408 Request Timeout", errors.Unavailable),
        ("422 Unprocessable", errors.Refused),
        ("429 Too Many Requests", errors.Unavailable),
        ("500 Internal Server Error", errors.Unavailable),
        ("503 Service Unavailable", errors.Unavailable),
    ],
)
async def test_status_decides_whether_a_retry_helps(
    status: str, expected: type[errors.BramleyError]
) -> None:
    async with a_client(answering(b"no such fleet", status)) as (client, _server):
        with pytest.raises(errors.BramleyError) as caught:
            await client.desired_replicas("a")
        with pytest.raises(expected):
            await client.pod_stopped("a", NOON)

    assert type(caught.value) is expected
    assert f"status {status[:3]}: 'no such fleet'" in str(caught.value)


async def test_error_shows_a_bounded_part_of_the_body_and_never_the_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    body = (f"token {TOKEN} " + "x" * 100_000).encode()
    async with a_client(answering(body, "401 Unauthorized"), token_file=file) as (client, _server):
        with pytest.raises(errors.Unauthorized) as caught:
            await client.desired_replicas("a")

    shown = "".join(traceback.format_exception(caught.value))
    assert TOKEN not in shown
    assert "token [hidden]" in str(caught.value)
    assert len(str(caught.value)) < 500


async def test_malformed_response_shows_no_token(tmp_path: Path) -> None:
    async def garbage(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"not http\r\n\r\n")

    file = tmp_path / "token"
    file.write_text(TOKEN)
    async with a_client(garbage, token_file=file) as (client, _server):
        with pytest.raises(errors.Unavailable) as caught:
            await client.desired_replicas("a")

    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None


async def test_silent_server_is_given_up_at_the_deadline() -> None:
    async def silent(_received: ReceivedRequest, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    async with a_client(silent, deadline=0.05) as (client, _server):
        with pytest.raises(errors.TimedOut):
            await client.desired_replicas("a")


async def test_endless_response_is_given_up_at_the_size_limit() -> None:
    async def endless(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        chunked_head(writer)
        while not writer.is_closing():
            chunk(writer, b" " * 100_000)
            await writer.drain()

    async with a_client(endless) as (client, _server):
        with pytest.raises(errors.Unavailable, match="exceeds the size limit"):
            await client.desired_replicas("a")


async def test_unreachable_server_is_unavailable() -> None:
    async with serving(answering(DEMAND)) as server:
        url = f"{server.url}/desired_replicas"
    async with DispatchClient(DispatchSettings(scaling_signals_url=url)) as client:
        with pytest.raises(errors.Unavailable, match="desired_replicas"):
            await client.desired_replicas("a")


async def test_closed_client_is_unavailable() -> None:
    settings = DispatchSettings(scaling_signals_url="http://127.0.0.1:1/")
    async with DispatchClient(settings) as client:
        pass

    with pytest.raises(errors.Unavailable, match="closed"):
        await client.desired_replicas("a")


@pytest.mark.parametrize(
    "url", ["dispatch", "ftp://host/x", "http://", "http://user:pw@host/", "http://[::1"]
)
def test_invalid_url_is_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(errors.BadConfiguration, match="sessions-url") as caught:
        DispatchClient(DispatchSettings(sessions_url=url))

    assert "pw" not in str(caught.value)


async def test_call_without_its_url_is_refused() -> None:
    async with DispatchClient(DispatchSettings()) as client:
        with pytest.raises(errors.BadConfiguration, match="sessions-url is not set"):
            await client.pod_stopped("a", NOON)
