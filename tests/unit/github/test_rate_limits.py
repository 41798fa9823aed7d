from __future__ import annotations

import asyncio
from datetime import timedelta
from email.utils import format_datetime

import pytest
from prometheus_client import CollectorRegistry

from bramley.base import errors
from bramley.github.rate_limits import Budget
from bramley.kube.transport import Response
from tests import virtual_time
from tests.unit.github.scripted import CREDENTIAL, READ, a_client, answer

RESET = 1_767_225_600  # the epoch of virtual time


def limited(status: int = 403, *, remaining: int = 0, reset: int = RESET + 600) -> Response:
    return answer(
        status,
        b'{"message": "API rate limit exceeded for installation ID 1."}',
        x_ratelimit_limit="5000",
        x_ratelimit_remaining=str(remaining),
        x_ratelimit_reset=str(reset),
    )


@pytest.mark.parametrize(
    ("response", "seconds"),
    [
        (limited(), 600),
        (limited(429), 600),
        (limited(reset=RESET - 5), 1),
        (limited(reset=RESET + 10**6), 7200),
        (answer(403, retry_after="30"), 30),
        (answer(429, retry_after="30"), 30),
        (answer(429, retry_after="0"), 1),
        (answer(429, retry_after="9" * 400), 7200),
        (answer(403, b'{"message": "You have exceeded a secondary rate limit."}'), 60),
        (answer(403, b'{"message": "You have triggered an abuse detection mechanism."}'), 60),
        (answer(429), 60),
        (answer(429, retry_after="soon"), 60),
    ],
)
async def test_limit_is_recognized_and_names_the_wait(response: Response, seconds: float) -> None:
    client, transport = a_client(response)

    with pytest.raises(errors.RateLimited) as raised:
        await client.send(READ, CREDENTIAL)

    assert raised.value.after == timedelta(seconds=seconds)
    assert len(transport.requests) == 1


@pytest.mark.parametrize(
    "response",
    [
        answer(403, b'{"message": "Resource not accessible by integration"}'),
        answer(403, b"no", x_ratelimit_limit="5", x_ratelimit_remaining="4", x_ratelimit_reset="1"),
    ],
)
async def test_other_403_is_forbidden(response: Response) -> None:
    client, _ = a_client(response)

    with pytest.raises(errors.Forbidden):
        await client.send(READ, CREDENTIAL)


async def test_no_request_is_sent_until_the_wait_is_over() -> None:
    client, transport = a_client(answer(403, retry_after="30"), answer())
    with pytest.raises(errors.RateLimited):
        await client.send(READ, CREDENTIAL)
    await asyncio.sleep(10)

    with pytest.raises(errors.RateLimited) as raised:
        await client.send(READ, CREDENTIAL)

    assert raised.value.after == timedelta(seconds=20)
    assert len(transport.requests) == 1
    await asyncio.sleep(20)
    assert (await client.send(READ, CREDENTIAL)).status == 200


async def test_limit_without_a_time_waits_longer_each_time_until_a_success() -> None:
    refused = answer(403, b'{"message": "You have exceeded a secondary rate limit."}')
    client, transport = a_client(*[refused] * 7, answer(), refused)
    waits = []

    for _ in range(9):
        try:
            await client.send(READ, CREDENTIAL)
        except errors.RateLimited as error:
            waits.append(error.after / timedelta(minutes=1))
            await asyncio.sleep(error.after.total_seconds())

    assert waits == [1, 2, 4, 8, 16, 16, 16, 1]
    assert len(transport.requests) == 9


async def test_requests_that_are_limited_together_are_one_failure() -> None:
    limits = a_client(answer())[0].rate_limits
    waits = []
    for _ in range(3):
        with pytest.raises(errors.RateLimited) as raised:
            limits.record("app", answer(429), "GET /x")
        waits.append(raised.value.after / timedelta(minutes=1))

    assert waits == [1, 1, 1]


async def test_limit_of_one_installation_does_not_stop_another() -> None:
    client, _ = a_client(answer(403, retry_after="30"), answer())
    with pytest.raises(errors.RateLimited):
        await client.send(READ, CREDENTIAL)

    response = await client.send(READ, type(CREDENTIAL)("installation 2", CREDENTIAL.token))

    assert response.status == 200


async def test_reset_is_compared_with_the_clock_of_the_server() -> None:
    theirs = virtual_time.clock().now() + timedelta(seconds=60)
    response = limited()
    headers = {**response.headers, "date": format_datetime(theirs, usegmt=True)}
    client, _ = a_client(Response(403, headers, response.body))

    with pytest.raises(errors.RateLimited) as raised:
        await client.send(READ, CREDENTIAL)

    assert raised.value.after == timedelta(seconds=540)


async def test_impossible_date_of_the_server_is_ignored() -> None:
    client, _ = a_client(answer(401, date="Mon, 01 Jan 0001 00:00:00 +1400"))

    with pytest.raises(errors.Unauthorized):
        await client.send(READ, CREDENTIAL)


async def test_budget_is_visible_and_exported() -> None:
    registry = CollectorRegistry()
    response = limited(200, remaining=4321)
    client, _ = a_client(response, registry=registry)

    await client.send(READ, CREDENTIAL)

    reset = virtual_time.EPOCH + timedelta(seconds=600)
    scope = CREDENTIAL.scope
    assert client.rate_limits.budget(scope) == Budget(5000, 4321, reset)
    assert client.rate_limits.budget("app") is None
    exported = [
        registry.get_sample_value(f"bramley_github_rate_limit{suffix}", {"scope": scope})
        for suffix in ("", "_remaining", "_reset_timestamp_seconds")
    ]
    assert exported == [5000, 4321, reset.timestamp()]


async def test_success_with_an_empty_budget_is_no_error() -> None:
    client, _ = a_client(limited(200))

    assert (await client.send(READ, CREDENTIAL)).status == 200
    assert client.rate_limits.wait_until(CREDENTIAL.scope) is None
