"""Who callers are and what they may, as the API says and for as long as it is believed."""

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
def test_a_path_is_a_part_of_the_node(method: str, path: str, expected: RequestAttributes) -> None:
    assert request_attributes(method, path) == expected


def test_a_certificate_names_its_owner_until_it_ends() -> None:
    expected = User("anna", ("one", "two", "system:authenticated"))

    assert certificate_user(GOOD, BEFORE) == expected
    assert certificate_user(GOOD, AFTER) is None
    assert certificate_user(None, BEFORE) is None
    assert certificate_user({**GOOD, "subject": ()}, BEFORE) is None


@dataclass
class Counting:
    """Counts requests, and answers none while it is down."""

    inner: Transport
    asked: list[str] = field(default_factory=list)
    is_down: bool = False
    hangs: bool = False

    async def send(self, request: Request) -> Response:
        self.asked.append(request.path.rpartition("/")[2])
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
async def asking(**settings: Any) -> AsyncIterator[tuple[KubeletAuth, Counting, Secret]]:
    clock = virtual_time.clock()
    async with embedded.running(clock=clock) as (api, admin):
        line = Counting(api.transport(admin))
        callers = KubeletAuth(NODE, Client(line, clock=clock), clock, Settings(**settings))
        yield callers, line, api.tokens.issue("anna", ("system:masters",))


async def test_a_token_is_reviewed_once_and_kept_as_a_hash() -> None:
    async with asking() as (callers, line, token):
        first = await callers.authenticate(f"Bearer {token.reveal()}", None)
        again = await callers.authenticate(f"bearer {token.reveal()}", None)

        assert first == again
        assert first is not None
        assert (first.name, "system:masters" in first.groups) == ("anna", True)
        assert line.asked == ["tokenreviews"]
        assert token.reveal() not in repr(callers._users._entries)
        await asyncio.sleep(61)
        await callers.authenticate(f"Bearer {token.reveal()}", None)
        assert line.asked == ["tokenreviews"] * 2


@pytest.mark.parametrize("header", ["", "Basic abc", "Bearer", "Bearer ", "Bearer " + "x" * 20_000])
async def test_what_is_no_token_is_not_even_reviewed(header: str) -> None:
    async with asking() as (callers, line, _):
        assert await callers.authenticate(header, None) is None
        assert line.asked == []


async def test_a_wrong_token_is_remembered_for_ten_seconds() -> None:
    async with asking() as (callers, line, _):
        for _ in range(3):
            assert await callers.authenticate("Bearer wrong", None) is None
        assert line.asked == ["tokenreviews"]
        await asyncio.sleep(11)
        assert await callers.authenticate("Bearer wrong", None) is None
        assert line.asked == ["tokenreviews"] * 2


async def test_nobody_is_known_while_the_api_cannot_be_asked() -> None:
    async with asking() as (callers, line, token):
        line.is_down = True
        assert await callers.authenticate(f"Bearer {token.reveal()}", None) is None
        with pytest.raises(errors.Unavailable):
            await callers.is_allowed(User("anna", ("system:masters",)), LOGS)

        line.is_down = False
        assert await callers.authenticate(f"Bearer {token.reveal()}", None) is not None


async def test_a_flood_of_tokens_keeps_nobody_waiting_for_ever() -> None:
    async with asking(max_concurrent=1, timeout=timedelta(seconds=5)) as (callers, line, _):
        line.hangs = True
        began = asyncio.get_running_loop().time()

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(callers.authenticate(f"Bearer {number}", None))

        assert asyncio.get_running_loop().time() - began <= 5.1


async def test_rights_are_those_on_this_node_and_kept_for_a_minute() -> None:
    async with asking() as (callers, line, _):
        assert await callers.is_allowed(User("root", ("system:masters",)), LOGS)
        assert not await callers.is_allowed(User("anna"), LOGS)
        assert not await callers.is_allowed(User("anna"), LOGS)
        assert line.asked == ["subjectaccessreviews"] * 2
        await asyncio.sleep(11)
        assert not await callers.is_allowed(User("anna"), LOGS)
        assert line.asked == ["subjectaccessreviews"] * 3


def test_a_memory_is_bounded_and_forgets() -> None:
    now = [0.0]
    kept: TtlCache[int, str] = TtlCache(2, lambda: now[0])
    for number in range(3):
        kept.put(number, "x", timedelta(seconds=10))

    assert (kept.find(0), kept.find(1), kept.find(2)) == (None, "x", "x")
    now[0] = 10.0
    assert kept.find(2) is None
