from __future__ import annotations

import asyncio
import logging
import time
import traceback
from datetime import timedelta
from email.utils import format_datetime

import pytest
from prometheus_client import CollectorRegistry

from bramley.base import errors
from bramley.github.client import Call, Settings
from bramley.kube.transport import Response
from tests import virtual_time
from tests.unit.github.scripted import CREDENTIAL, READ, TOKEN, WRITE, a_client, answer

DOWN = errors.GitHubUnavailable("connection refused")


async def test_request_has_the_token_and_the_version_of_the_api() -> None:
    client, transport = a_client(answer())

    await client.send(WRITE, CREDENTIAL)

    request = transport.requests[0]
    assert dict(request.headers) == {
        "X-GitHub-Api-Version": "2022-11-28",
        "Authorization": f"Bearer {TOKEN}",
    }
    assert (request.body, request.accept) == (b'{"name":"a"}', "application/vnd.github+json")
    assert TOKEN not in repr(request)


async def test_safe_call_is_repeated_after_5xx_and_failed_connections() -> None:
    client, transport = a_client(answer(502), DOWN, answer(503), answer(body=b"done"))

    response = await client.send(READ, CREDENTIAL)

    assert response.body == b"done"
    assert len(transport.requests) == 4


async def test_call_with_an_effect_is_never_repeated() -> None:
    client, transport = a_client(answer(502), answer())

    with pytest.raises(errors.GitHubUnavailable, match="status 502"):
        await client.send(WRITE, CREDENTIAL)

    assert len(transport.requests) == 1


async def test_retries_end_and_wait_longer_each_time() -> None:
    client, transport = a_client(answer(500))
    began = asyncio.get_running_loop().time()

    with pytest.raises(errors.GitHubUnavailable):
        await client.send(READ, CREDENTIAL)

    assert len(transport.requests) == 4
    # 0.25 + 0.5 + 1 seconds, each shortened by up to 30 %.
    assert 1.75 * 0.7 <= asyncio.get_running_loop().time() - began <= 1.75


async def test_all_attempts_together_end_at_the_deadline() -> None:
    settings = Settings(attempt_deadline=timedelta(seconds=60), deadline=timedelta(seconds=10))
    client, _ = a_client(answer(502), 3600.0, answer(), settings=settings)
    began = asyncio.get_running_loop().time()

    with pytest.raises(errors.TimedOut, match=r"the last attempt failed: .*status 502"):
        await client.send(READ, CREDENTIAL)

    assert asyncio.get_running_loop().time() - began == pytest.approx(10)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.BadRequest),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (409, errors.AlreadyExists),
        (422, errors.BadRequest),
        (301, errors.Refused),
        (408, errors.GitHubUnavailable),
        (500, errors.GitHubUnavailable),
    ],
)
async def test_status_decides_the_error(status: int, kind: type[errors.BramleyError]) -> None:
    client, _ = a_client(answer(status, b'{"message": "why"}'))

    with pytest.raises(kind) as raised:
        await client.send(WRITE, CREDENTIAL)

    assert type(raised.value) is kind
    assert f"{WRITE}: status {status}: " in str(raised.value)
    assert "why" in str(raised.value)


@pytest.mark.parametrize(
    "canary",
    [
        TOKEN,
        TOKEN.removeprefix("ghs_"),
        TOKEN[5:25],
        "ghp_" + "other" * 8,
        "github_pat_" + "x1" * 30,
        "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiIxIn0.c2lnbmF0dXJl",
        "eyJydW5uZXJfaWQiOjEsInNlY3JldCI6ImNhbmFyeSJ9/+==",
        # A JIT configuration of the real GitHub: {".runner":"...
        "eyIucnVubmVyIjoiZXlKQloyVnVkRWxrSWpvaU15SXM=",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEcanary\n-----END RSA PRIVATE KEY-----",
    ],
)
async def test_credentials_in_a_body_are_hidden(
    canary: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    # The cut at the end of the excerpt must not leave a part of it.
    client, _ = a_client(answer(403, b"x" * 500 + b" " + canary.encode() + b" end"))

    with pytest.raises(errors.Forbidden) as raised:
        await client.send(WRITE, CREDENTIAL)

    shown = "".join(traceback.format_exception(raised.value)) + caplog.text
    assert "[hidden]" in shown
    assert canary[:20] not in shown
    assert len(str(raised.value)) < 700


@pytest.mark.parametrize("body", [b"eyJ-" * 16_000, b"-----BEGIN a" * 5_000, b"ghs_" * 16_000])
async def test_hostile_body_is_redacted_quickly(body: bytes) -> None:
    client, _ = a_client(answer(403, body))
    began = time.process_time()

    with pytest.raises(errors.Forbidden):
        await client.send(WRITE, CREDENTIAL)

    assert time.process_time() - began < 1


async def test_unauthorized_names_a_difference_of_the_clocks() -> None:
    theirs = virtual_time.clock().now() - timedelta(minutes=3)
    client, _ = a_client(answer(401, date=format_datetime(theirs, usegmt=True)))

    with pytest.raises(errors.Unauthorized, match=r"local clock differs from GitHub's by \+180 s"):
        await client.send(WRITE, CREDENTIAL)


async def test_repeated_read_sends_the_etag_and_304_returns_the_known_body() -> None:
    client, transport = a_client(answer(body=b"known", etag='W/"1"'), answer(304, b""))

    bodies = [(await client.send(READ, CREDENTIAL)).body for _ in range(2)]

    assert bodies == [b"known", b"known"]
    assert ("If-None-Match", 'W/"1"') in transport.requests[1].headers


async def test_etag_of_another_installation_or_query_is_not_sent() -> None:
    client, transport = a_client(answer(etag='W/"1"'))
    other = type(CREDENTIAL)("installation 2", CREDENTIAL.token)
    await client.send(READ, CREDENTIAL)

    await client.send(READ, other)
    await client.send(Call("GET", READ.path, {"page": "2"}), CREDENTIAL)

    sent = [dict(request.headers).get("If-None-Match") for request in transport.requests]
    assert sent == [None, None, None]


async def test_stored_responses_are_bounded_and_the_least_recently_used_are_dropped() -> None:
    settings = Settings(max_stored_bytes=3000)
    client, transport = a_client(answer(body=b"x" * 300, etag='"1"'), settings=settings)
    calls = [Call("GET", f"/{number}") for number in (1, 2, 1, 3)]
    for call in calls:
        await client.send(call, CREDENTIAL)
    transport.requests.clear()

    for path in ("/1", "/3", "/2"):
        await client.send(Call("GET", path), CREDENTIAL)

    sent = [dict(request.headers).get("If-None-Match") for request in transport.requests]
    assert sent == ['"1"', '"1"', None]


async def test_response_larger_than_the_store_is_not_stored() -> None:
    settings = Settings(max_stored_bytes=3000)
    client, transport = a_client(answer(body=b"x" * 3000, etag='"1"'), settings=settings)

    for _ in range(2):
        await client.send(READ, CREDENTIAL)

    assert "If-None-Match" not in dict(transport.requests[1].headers)


async def test_next_page_is_read_from_the_same_server_whatever_its_link_says() -> None:
    link = '<https://evil.invalid/steal?page=2&per_page=100>; rel="next", <https://x>; rel="last"'
    client, transport = a_client(answer(link=link), answer(body=b"last"))

    async def send(call: Call) -> Response:
        return await client.send(call, CREDENTIAL)

    pages = [page.body async for page in client.pages(READ, send)]

    assert pages == [b"{}", b"last"]
    assert transport.requests[1].path == READ.path
    assert transport.requests[1].query == {"page": "2", "per_page": "100"}


async def test_endless_list_is_refused() -> None:
    client, transport = a_client(
        answer(link='<https://api/x?page=2>; rel="next"'), settings=Settings(max_pages=5)
    )

    async def send(call: Call) -> Response:
        return await client.send(call, CREDENTIAL)

    with pytest.raises(errors.Refused, match="more than 5 pages"):
        [page async for page in client.pages(READ, send)]

    assert len(transport.requests) == 5


async def test_requests_are_counted_by_status() -> None:
    registry = CollectorRegistry()
    client, _ = a_client(DOWN, answer(502), answer(), registry=registry)

    await client.send(READ, CREDENTIAL)

    name = "bramley_github_requests_total"
    counts = {
        status: registry.get_sample_value(name, {"method": "GET", "status": status})
        for status in ("none", "502", "200")
    }
    assert counts == {"none": 1, "502": 1, "200": 1}
