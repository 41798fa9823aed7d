"""Errors, deadlines, waits and secrets of calls."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
import time
import traceback
from datetime import timedelta
from typing import Any

import pytest

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.providers.provider import HostRef
from bramley.providers.scaleway import ScalewayProvider
from tests.contract.providers.targets import (
    FAST,
    ONE_KEY,
    OS,
    OTHER_ZONE,
    POOL,
    ZONE,
    Target,
)
from tests.provider_peer import KEY

SHORT = dataclasses.replace(
    FAST,
    attempt_deadline=timedelta(seconds=0.3),
    call_deadline=timedelta(seconds=2),
    deadline=timedelta(seconds=4),
)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, '{"type":"invalid_arguments","message":"invalid argument(s)"}', errors.BadRequest),
        (401, '{"type":"denied_authentication"}', errors.Unauthorized),
        (403, '{"type":"quotas_exceeded"}', errors.Forbidden),
        (404, '{"type":"not_found"}', errors.NotFound),
        (409, '{"type":"transient_state","current_state":"rebooting"}', errors.HostBusy),
        (409, '{"type":"conflict"}', errors.Conflict),
        (409, "[]", errors.Conflict),
        (410, "", errors.NotFound),
        (412, '{"type":"precondition_failed","help_message":"24 h"}', errors.Refused),
        (418, "[" * 100_000, errors.Refused),
        (429, "{}", errors.RateLimited),
        (301, "", errors.ProviderUnavailable),
        (500, '{"type":"internal"}', errors.ProviderUnavailable),
        (502, "<html>bad gateway</html>", errors.ProviderUnavailable),
        (200, "", errors.ProviderUnavailable),
        (200, "<html>", errors.ProviderUnavailable),
        (200, "[]", errors.ProviderUnavailable),
        (200, '{"id":"../x"}', errors.ProviderUnavailable),
        (200, '{"servers":[{}],"total_count":1}', errors.ProviderUnavailable),
    ],
)
async def test_statuses_and_bodies(
    target: Target, status: int, body: str, error: type[errors.BramleyError]
) -> None:
    ref = await target.add()
    target.fail("GET", ref.id, status=status, body=body, times=4)

    with pytest.raises(error) as raised:
        await target.provider().host(ref)

    assert type(raised.value) is error
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("failures", [1, 3])
async def test_reads_are_repeated(target: Target, failures: int) -> None:
    ref = await target.add()
    target.fail("GET", ref.id, times=failures)

    assert (await target.provider().host(ref)).ref == ref
    assert len(target.requests) == failures + 1


@pytest.mark.parametrize(
    "body",
    [
        '{"servers":[],"total_count":7}',
        '{"servers":null,"total_count":7}',
        '{"servers":[{"id":"a"}]}',
        '{"total_count":"many","servers":[]}',
    ],
)
async def test_incomplete_list_is_an_error(target: Target, body: str) -> None:
    await target.add()
    target.fail("GET", "/servers", status=200, body=body, times=4)

    with pytest.raises(errors.ProviderUnavailable):
        await target.provider().hosts(ZONE)

    assert len(await target.provider().hosts(ZONE)) == 1


async def test_requested_wait_holds_for_the_zone_only(target: Target) -> None:
    ref, other = await target.add(), await target.add(zone=OTHER_ZONE)
    target.fail("GET", ref.id, status=429, headers={"Retry-After": "1"}, body="{}")
    provider = target.provider()

    for _ in range(3):
        with pytest.raises(errors.RateLimited) as raised:
            await provider.host(ref)
        assert timedelta() < raised.value.after <= timedelta(seconds=1)
    assert (await provider.host(other)).ref == other

    assert len(target.requests) == 2
    await asyncio.sleep(1.05)
    await provider.host(ref)


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [("", '{"reset_seconds":90}', 90), ("0", "{}", 1), ("9" * 30, "{}", 3600), ("soon", "{}", 60)],
)
async def test_length_of_a_requested_wait(
    target: Target, header: str, body: str, seconds: int
) -> None:
    ref = await target.add()
    target.fail("GET", ref.id, status=429, headers={"Retry-After": header}, body=body)

    with pytest.raises(errors.RateLimited) as raised:
        await target.provider().host(ref)

    assert raised.value.after == timedelta(seconds=seconds)


async def test_late_answer_is_a_timeout_and_stops_no_other_zone(http_target: Target) -> None:
    target = http_target
    ref, other = await target.add(), await target.add(zone=OTHER_ZONE)
    target.fail("GET", ref.id, seconds=5, times=100)
    provider = target.provider(SHORT)
    calls = [asyncio.ensure_future(provider.host(ref)) for _ in range(20)]
    assert (await provider.host(other)).ref == other
    assert not any(call.done() for call in calls)
    ends = await asyncio.gather(*calls, return_exceptions=True)

    assert {type(end) for end in ends} == {errors.TimedOut}


async def test_whole_operation_has_a_deadline(stale_target: Target) -> None:
    host = await stale_target.host()
    short = dataclasses.replace(FAST, deadline=timedelta(seconds=0.3))

    with pytest.raises(errors.TimedOut, match="claim of host"):
        await stale_target.provider(short).claim(host, "m1")


async def test_refused_connection_is_unavailable(http_target: Target) -> None:
    target = http_target
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        target.account = dataclasses.replace(
            target.account, api_url=f"http://127.0.0.1:{unused.getsockname()[1]}"
        )

        with pytest.raises(errors.ProviderUnavailable, match="ConnectionError"):
            await target.provider().hosts(ZONE)


async def test_write_is_not_processed_after_its_deadline(
    http_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name lookup has no timeout: the thread goes on when the caller has given up."""
    host = await http_target.host()
    look_up = socket.getaddrinfo

    def slow(*args: Any, **options: Any) -> Any:
        time.sleep(0.5)
        return look_up(*args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with pytest.raises(errors.TimedOut):
        await http_target.provider(SHORT).rename(host.ref, "late")
    await asyncio.sleep(1)

    assert http_target.name(host.ref) == host.name


async def test_redirect_is_not_followed(http_target: Target) -> None:
    target = http_target
    ref, other = await target.add(), await target.add()
    url = f"/apple-silicon/v1alpha1/zones/{ZONE}/servers/{other.id}"
    target.fail("GET", ref.id, status=302, headers={"Location": url}, times=4)

    with pytest.raises(errors.ProviderUnavailable):
        await target.provider().host(ref)

    assert not any(other.id in each for each in target.requests)


async def test_environment_is_not_read(
    http_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = http_target
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("SCW_SECRET_KEY", "99999999-9999-4999-8999-999999999999")

    assert await target.provider().hosts(ZONE) == []


async def test_rotated_key_is_used_for_the_refused_call(target: Target) -> None:
    ref = await target.add()
    old = dataclasses.replace(target.account, secret_key=Secret(KEY[::-1]))
    accounts = [old, target.account]
    provider = ScalewayProvider(
        lambda: accounts.pop(0) if len(accounts) > 1 else accounts[0],
        settings=FAST,
        transport=target.transport,
    )

    assert (await provider.host(ref)).ref == ref
    target.account = old
    with pytest.raises(errors.Unauthorized, match=old.access_key):
        await target.provider().host(ref)


async def test_secrets_are_in_no_error_log_or_representation(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    """The secret key and the passwords of hosts, which every answer about a host contains."""
    caplog.set_level(logging.DEBUG)
    ref = await target.add("m1")
    password = target.server(ref).password
    body = f'{{"message":"key {KEY} is bad","servers":[{{"sudo_password":"{password}"}}]'
    provider = target.provider()
    texts = [repr(provider), repr(target.account), repr(vars(provider))]
    answers = [(200, ""), *((status, "}") for status in (200, 400, 401, 403, 409, 429, 500))]
    for status, end in answers:
        target.fail("GET", "/servers", status=status, body=body + end, times=4)
        provider = target.provider()
        with pytest.raises(errors.BramleyError) as raised:
            await provider.hosts(ZONE)
        target.faults.pending.clear()
        texts += traceback.format_exception(raised.value)
        texts += [repr(raised.value), repr(raised.value.__cause__), repr(raised.value.__context__)]

    texts += [
        repr(await target.provider().credentials(ref)),
        repr(await target.provider().host(ref)),
    ]
    await target.provider().release(ref, "m1", pool_prefix=POOL, os=OS)
    await target.provider().ensure_ssh_key("fleet", ONE_KEY)

    assert target.transport or any("urllib3" in record.name for record in caplog.records)
    for text in (*texts, caplog.text):
        assert KEY not in text
        assert password not in text


@pytest.mark.parametrize("zone", ["", "..", "a/b", "fr-par-1/servers?x="])
async def test_unsafe_zone_is_refused_before_any_call(target: Target, zone: str) -> None:
    with pytest.raises(errors.InvalidSpec):
        await target.provider().hosts(zone)
    with pytest.raises(errors.InvalidSpec):
        HostRef(zone, "a")

    assert target.requests == []
