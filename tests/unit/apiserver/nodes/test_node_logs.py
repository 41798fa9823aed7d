"""Logs through the API: what is passed on, what comes back, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.rest import node_agents
from tests.unit.apiserver.nodes.fake_agents import Agents, bind, place
from tests.unit.apiserver.world import PODS, World, a_world

URL = "https://192.0.2.7:10251"
LOG = f"{PODS}/p/log"


@asynccontextmanager
async def a_placed_pod(agents: Agents, settings: Settings | None = None) -> AsyncIterator[World]:
    async with a_world(settings, nodes=agents.nodes) as world:
        await place(world, "n", "192.0.2.7")
        await bind(world, "p", "n")
        yield world


async def test_a_log_is_read_from_the_nodes_port_and_passed_on() -> None:
    agents = Agents()
    async with a_placed_pod(agents) as world:
        path = f"{LOG}?container=vm&follow=false&timestamps=1&tailLines=3&pretty=true"
        async with world.watching(path) as reading:
            await reading.ended.wait()

        assert reading.chunks == [b"one\n", b"two\n"]
        passed = {"timestamps": "true", "tailLines": "3"}
        assert agents.requests == [(URL, "/containerLogs/t/p/vm", passed)]
        assert agents.open == 0


async def test_a_followed_log_ends_with_its_client() -> None:
    agents = Agents(goes_on=True)
    async with a_placed_pod(agents) as world:
        async with world.watching(f"{LOG}?follow=true") as reading:
            # Longer than any request and any silence may last.
            await asyncio.sleep(7200)
            assert (reading.ended.is_set(), agents.open) == (False, 1)
        assert agents.open == 0


async def test_a_silent_agent_ends_a_log_without_follow() -> None:
    agents = Agents(goes_on=True)
    async with a_placed_pod(agents) as world:
        async with world.watching(LOG) as reading:
            await asyncio.sleep(node_agents.SILENCE.total_seconds() + 1)
            assert reading.ended.is_set()
        assert agents.open == 0


async def test_log_ends_when_its_agent_disconnects() -> None:
    agents = Agents(breaks=True)
    async with a_placed_pod(agents) as world:
        async with world.watching(f"{LOG}?follow=true") as reading:
            await reading.ended.wait()
        assert (reading.code, reading.chunks) == (200, [b"one\n", b"two\n"])


async def test_client_that_reads_nothing_is_disconnected() -> None:
    agents = Agents(goes_on=True, pause_seconds=1)
    settings = Settings(send_deadline=timedelta(seconds=20))
    async with (
        a_placed_pod(agents, settings) as world,
        world.watching(f"{LOG}?follow=true") as reading,
    ):
        reading.paused = asyncio.Event()
        await asyncio.sleep(30)
        assert (reading.ended.is_set(), agents.open) == (True, 0)


async def test_log_ends_when_the_client_loses_its_permission() -> None:
    agents = Agents(goes_on=True)
    async with a_placed_pod(agents) as world, world.watching(f"{LOG}?follow=true") as reading:
        world.is_admin_known = False
        await asyncio.sleep(60)
        assert (reading.ended.is_set(), agents.open) == (True, 0)


async def test_unauthorized_user_reaches_no_agent() -> None:
    agents = Agents()
    async with a_world(nodes=agents.nodes) as world:
        world.users["their-token"] = "bob"
        await place(world, "n", "192.0.2.7")
        await bind(world, "p", "n")

        assert (await world.request("GET", LOG, token="their-token")).code == 403
        assert agents.requests == []


@pytest.mark.parametrize(
    ("code", "answered", "reason", "message"),
    [
        (400, 400, "BadRequest", "it says why"),
        (500, 500, "InternalError", "Internal error occurred: it says why"),
        (403, 403, "Forbidden", "it says why ( pods/log p)"),
        (404, 404, "NotFound", "the server could not find the requested resource ( pods/log p)"),
        (
            401,
            401,
            "Unauthorized",
            "the server has asked for the client to provide credentials ( pods/log p)",
        ),
        (
            502,
            502,
            "InternalError",
            'an error on the server ("it says why") has prevented the request from succeeding ( pods/log p)',
        ),
    ],
)
async def test_an_agents_refusal_is_returned_as_in_kube_apiserver(
    code: int, answered: int, reason: str, message: str
) -> None:
    agents = Agents(status=code, chunks=[b"it says why\n"])
    async with a_placed_pod(agents) as world:
        refused = await world.get(LOG)

        assert (refused.code, refused.json["reason"]) == (answered, reason)
        assert refused.message == message
        assert agents.open == 0


async def test_endless_error_response_is_truncated() -> None:
    agents = Agents(status=400, chunks=[b"x" * 10_000] * 50, goes_on=True)
    async with a_placed_pod(agents) as world:
        assert len((await world.get(LOG)).message) == 16 * 1024


async def test_an_unreachable_node_is_an_error_with_its_address() -> None:
    agents = Agents(status=0)
    async with a_placed_pod(agents) as world:
        refused = await world.get(f"{LOG}?tailLines=1")

        where = f"{URL}/containerLogs/t/p/vm?tailLines=1"
        assert refused.message == f'Get "{where}": Cannot connect to host'
        assert (refused.code, "reason" in refused.json) == (500, False)
