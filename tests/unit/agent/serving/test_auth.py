"""Authentication and authorization of clients by reviews of the API, and their caches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from bramley.agent.serving.auth import (
    KubeletAuth,
    RequestAttributes,
    Settings,
    TtlCache,
    User,
    certificate_user,
    request_attributes,
)
from bramley.app import embedded
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response, Stream, Transport
from tests import virtual_time

NODE = "mac-1"
LOGS = RequestAttributes("get", "proxy")
GOOD = {
    "subject": (
        (("organizationName", "one"),),
        (("organizationName", "two"),),
        (("commonName", "anna"),),
    ),
    "notAfter": "Jan  1 00:00:00 2030 GMT",
}
BEFORE, AFTER = 1_800_000_000.0, 2_000_000_000.0


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/containerLogs/a/b/c", RequestAttributes("get", "proxy")),
        ("GET", "/stats/summary", RequestAttributes("get", "stats")),
        ("GET", "/stats", RequestAttributes("get", "stats")),
        ("GET", "/statsx", RequestAttributes("get", "proxy")),
        ("GET", "/metrics/resource", RequestAttributes("get", "metrics")),
        ("GET", "/logs/x", RequestAttributes("get", "log")),
        ("HEAD", "/healthz", RequestAttributes("get", "proxy")),
        ("POST", "/exec/a/b/c", RequestAttributes("create", "proxy")),
        ("PURGE", "/", RequestAttributes("purge", "proxy")),
    ],
)
def test_request_attributes_of_a_path(method: str, path: str, expected: RequestAttributes) -> None:
    assert request_attributes(method, path) == expected


def test_certificate_identifies_its_user_until_it_expires() -> None:
    expected = User("anna", ("one", "two", "system:authenticated"))

    assert certificate_user(GOOD, BEFORE) == expected
    assert certificate_user(GOOD, AFTER) is None
    assert certificate_user(None, BEFORE) is None
    assert certificate_user({**GOOD, "subject": ()}, BEFORE) is None


@dataclass
class Counting:
    """Counts requests, and answers none while it is down."""

    inner: Transport
    requests: list[str] = field(default_factory=list)
    is_down: bool = False
    hangs: bool = False

    async def send(self, request: Request) -> Response:
        self.requests.append(request.path.rpartition("/")[2])
        if self.is_down:
            raise errors.ApiUnavailable("down")
        if self.hangs:
            await asyncio.sleep(3600)
        return await self.inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self.inner.stream(request)

    async def close(self) -> None:
        await self.inner.close()


@asynccontextmanager
async def an_auth(**settings: Any) -> AsyncIterator[tuple[KubeletAuth, Counting, Secret]]:
    clock = virtual_time.clock()
    async with embedded.running(clock=clock) as (api, admin):
        transport = Counting(api.transport(admin))
        auth = KubeletAuth(NODE, Client(transport, clock=clock), clock, Settings(**settings))
        yield auth, transport, api.tokens.issue("anna", ("system:masters",))


async def test_token_is_reviewed_once_and_cached_as_a_hash() -> None:
    async with an_auth() as (auth, transport, token):
        first = await auth.authenticate(f"Bearer {token.reveal()}", None)
        again = await auth.authenticate(f"bearer {token.reveal()}", None)

        assert first == again
        assert first is not None
        assert (first.name, "system:masters" in first.groups) == ("anna", True)
        assert transport.requests == ["tokenreviews"]
        assert token.reveal() not in repr(auth._users._entries)
        await asyncio.sleep(61)
        await auth.authenticate(f"Bearer {token.reveal()}", None)
        assert transport.requests == ["tokenreviews"] * 2


@pytest.mark.parametrize("header", ["", "Basic abc", "Bearer", "Bearer ", "Bearer " + "x" * 20_000])
async def test_invalid_authorization_header_is_not_reviewed(header: str) -> None:
    async with an_auth() as (auth, transport, _):
        assert await auth.authenticate(header, None) is None
        assert transport.requests == []


async def test_rejected_token_is_cached_for_ten_seconds() -> None:
    async with an_auth() as (auth, transport, _):
        for _ in range(3):
            assert await auth.authenticate("Bearer wrong", None) is None
        assert transport.requests == ["tokenreviews"]
        await asyncio.sleep(11)
        assert await auth.authenticate("Bearer wrong", None) is None
        assert transport.requests == ["tokenreviews"] * 2


async def test_no_token_is_valid_while_the_api_is_unavailable() -> None:
    async with an_auth() as (auth, transport, token):
        transport.is_down = True
        assert await auth.authenticate(f"Bearer {token.reveal()}", None) is None
        with pytest.raises(errors.Unavailable):
            await auth.is_allowed(User("anna", ("system:masters",)), LOGS)

        transport.is_down = False
        assert await auth.authenticate(f"Bearer {token.reveal()}", None) is not None


async def test_flood_of_tokens_is_bounded_by_the_timeout() -> None:
    async with an_auth(max_concurrent=1, timeout=timedelta(seconds=5)) as (auth, transport, _):
        transport.hangs = True
        began = asyncio.get_running_loop().time()

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(auth.authenticate(f"Bearer {number}", None))

        assert asyncio.get_running_loop().time() - began <= 5.1


async def test_authorization_is_for_this_node_and_cached() -> None:
    async with an_auth() as (auth, transport, _):
        assert await auth.is_allowed(User("root", ("system:masters",)), LOGS)
        assert not await auth.is_allowed(User("anna"), LOGS)
        assert not await auth.is_allowed(User("anna"), LOGS)
        assert transport.requests == ["subjectaccessreviews"] * 2
        await asyncio.sleep(11)
        assert not await auth.is_allowed(User("anna"), LOGS)
        assert transport.requests == ["subjectaccessreviews"] * 3


def test_cache_is_bounded_and_expires() -> None:
    now = [0.0]
    cache: TtlCache[int, str] = TtlCache(2, lambda: now[0])
    for number in range(3):
        cache.put(number, "x", timedelta(seconds=10))

    assert (cache.find(0), cache.find(1), cache.find(2)) == (None, "x", "x")
    now[0] = 10.0
    assert cache.find(2) is None
