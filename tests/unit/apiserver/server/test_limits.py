"""Too much at once is refused with 429, too long ends with 504, and a flood does not stop heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.http.exchange import Message
from bramley.app.https_server import ConnectionBounds
from tests.unit.apiserver.world import CONFIG_MAPS, PODS, TOKEN, World, a_config_map, a_world

LEASES = "/apis/coordination.k8s.io/v1/namespaces/t/leases"
GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
RULES = [
    {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
]
A_LEASE = {"metadata": {"name": "mac-1"}, "spec": {"holderIdentity": "mac-1"}}
FEW = Settings(
    requests_in_flight=3,
    requests_per_user=2,
    watches=3,
    watches_per_user=2,
    request_deadline=timedelta(seconds=30),
)


@asynccontextmanager
async def slow_writers(
    world: World, count: int, *, token: str = TOKEN, acting: str = ""
) -> AsyncIterator[list[list[Message]]]:
    """Keep requests under way whose bodies do not come; give what each of them was answered."""
    answers: list[list[Message]] = []
    gone = asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def one(sent: list[Message]) -> None:
        async def send(message: Message) -> None:
            sent.append(message)

        scope = world.scope("POST", CONFIG_MAPS, content_type="application/json", token=token)
        scope["headers"] += [(b"impersonate-user", acting.encode())] if acting else []
        await world.app(scope, receive, send)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            answers.append([])
            group.create_task(one(answers[-1]))
        await asyncio.sleep(0.01)
        try:
            yield answers
        finally:
            gone.set()


async def test_user_with_too_many_requests_gets_429_with_retry_after() -> None:
    async with a_world(FEW) as world:
        async with slow_writers(world, 2):
            refused = await world.get(f"{PODS}/x")

            assert refused.code == 429
            assert refused.header("retry-after") == ["1"]
            assert refused.json["reason"] == "TooManyRequests"
            assert refused.json["details"] == {"retryAfterSeconds": 1}

        # Disconnected clients are no longer counted, however often this is repeated.
        for _ in range(5):
            async with slow_writers(world, 2):
                pass
        assert (await world.get(f"{PODS}/x")).code == 404


async def test_flood_of_requests_stops_neither_heartbeats_nor_deletions_nor_probes() -> None:
    async with a_world(FEW) as world:
        await world.create(CONFIG_MAPS, a_config_map("x"))
        async with slow_writers(world, 2):
            assert (await world.get(CONFIG_MAPS)).code == 429
            assert (await world.request("POST", LEASES, A_LEASE)).code == 201
            assert (
                await world.merge(f"{LEASES}/mac-1", {"spec": {"leaseTransitions": 1}})
            ).code == 200
            assert (await world.delete(f"{CONFIG_MAPS}/x")).code == 200
            assert (await world.get("/readyz")).code == 200


async def test_watches_are_counted_apart_from_requests() -> None:
    async with a_world(FEW) as world:
        async with world.watching(f"{PODS}?watch=true"), world.watching(f"{PODS}?watch=true"):
            async with world.watching(f"{PODS}?watch=true") as third:
                assert third.code == 429
            assert (await world.get(PODS)).code == 200
        async with world.watching(f"{PODS}?watch=true") as again:
            assert again.code == 200


async def test_request_that_takes_too_long_ends_with_a_timeout() -> None:
    async with a_world(FEW) as world, slow_writers(world, 1) as (sent,):
        await asyncio.sleep(29)
        assert sent == []

        await asyncio.sleep(5)

        assert sent[0]["status"] == 504
        assert b'"reason":"Timeout"' in sent[1]["body"]
        assert b"whether it was carried out is unknown" in sent[1]["body"]


async def test_watch_has_no_time_limit() -> None:
    async with a_world(FEW) as world, world.watching(f"{PODS}?watch=true") as watcher:
        await asyncio.sleep(120)

        assert not watcher.ended.is_set()


async def test_external_cancellation_is_propagated() -> None:
    async with a_world(FEW) as world:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), slow_writers(world, 1):
                await asyncio.sleep(5)


class Connection:
    """The attributes of a connection that the limits read."""

    def __init__(self, since: float, *, has_requested: bool = True) -> None:
        self.waiting_since = since
        self.has_requested = has_requested
        self.is_open = True

    def abort(self) -> None:
        self.is_open = False


def open_after(bounds: ConnectionBounds, now: float, *connections: Any) -> list[bool]:
    bounds.close_surplus(connections, now)
    return [one.is_open for one in connections]


def test_connection_that_sends_its_request_too_slowly_is_closed() -> None:
    bounds = ConnectionBounds(head_deadline=timedelta(seconds=20))

    assert open_after(bounds, 121.0, Connection(100.0), Connection(102.0), Connection(0.0)) == [
        False,
        True,
        True,
    ]


def test_full_server_closes_idle_connections_first_and_never_active_ones() -> None:
    bounds = ConnectionBounds(2, timedelta(seconds=20))
    answered, idle, silent = (
        Connection(0.0),
        Connection(90.0),
        Connection(95.0, has_requested=False),
    )

    assert open_after(bounds, 100.0, answered, idle, silent) == [True, True, False]


async def test_impersonation_does_not_raise_the_limit_of_the_sender() -> None:
    async with a_world(FEW) as world:
        world.users["t"] = "bob"
        await world.create(f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": RULES})
        subject = {"kind": "Group", "name": "system:authenticated", "apiGroup": GROUP}
        reference = {"kind": "ClusterRole", "name": "r", "apiGroup": GROUP}
        given = {"metadata": {"name": "r"}, "roleRef": reference, "subjects": [subject]}
        await world.create(f"{RBAC}/clusterrolebindings", given)

        async with slow_writers(world, 2, token="t", acting="one"):
            codes = [
                (await world.request("GET", CONFIG_MAPS, token="t", acting=name)).code
                for name in ("one", "two")
            ]
            # An administrator who acts for another stays within the other's limits.
            others = (await world.request("GET", CONFIG_MAPS, acting="two")).code

        assert (codes, others) == ([429, 429], 200)
