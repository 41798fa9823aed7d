"""Authentication by token or certificate, or as anonymous; an invalid credential never counts as none."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.apimachinery.users import User, authenticated, split_account
from bramley.apiserver.http import exchange
from bramley.apiserver.http.exchange import PEER, Message, Peer
from tests import virtual_time
from tests.unit.apiserver.world import CONFIG_MAPS, TOKEN, World, a_world

CERTIFICATE = {
    "subject": (
        (("organizationName", "team"),),
        (("organizationName", "ops"),),
        (("commonName", "eve"),),
    ),
    "notAfter": "Jan  2 03:04:05 2030 GMT",
}


def test_the_common_name_is_the_user_and_organisations_are_groups() -> None:
    peer = exchange.peer_of_certificate(CERTIFICATE)

    assert peer is not None
    assert peer.user == User("eve", ("team", "ops"))
    assert peer.not_after.isoformat() == "2030-01-02T03:04:05+00:00"


@pytest.mark.parametrize(
    "certificate", [None, {}, {"subject": ((("organizationName", "team"),),), "notAfter": "x"}]
)
def test_certificate_without_a_common_name_identifies_no_user(
    certificate: dict[str, Any] | None,
) -> None:
    assert exchange.peer_of_certificate(certificate) is None


async def code(world: World, header: str | None = None, peer: Peer | None = None) -> int:
    scope = world.scope("GET", CONFIG_MAPS, token=None)
    if header is not None:
        scope["headers"].append((b"authorization", header.encode()))
    if peer is not None:
        scope[PEER] = peer
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await world.app(scope, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN} ", 200),
        (None, 403),
        ("", 403),
        ("Bearer wrong", 401),
        ("Bearer ", 401),
        ("Bearer", 401),
        (f"Basic {TOKEN}", 401),
        (TOKEN, 401),
        ("Bearer a.b.c", 401),
    ],
)
async def test_valid_credentials_authenticate_and_others_are_refused(
    world: World, header: str | None, expected: int
) -> None:
    assert await code(world, header) == expected


@pytest.mark.parametrize("second", [TOKEN, "wrong"])
async def test_two_authorization_headers_are_refused(world: World, second: str) -> None:
    further = (("authorization", f"Bearer {second}"),)

    assert (await world.request("GET", CONFIG_MAPS, headers=further)).code == 401


async def test_repeated_headers_count_towards_the_limit() -> None:
    async with a_world(Settings(header_limit_bytes=1000)) as world:
        once, often = (("x-a", "a" * 100),), (("x-a", "a" * 100),) * 10

        assert (await world.request("GET", CONFIG_MAPS, headers=once)).code == 200
        assert (await world.request("GET", CONFIG_MAPS, headers=often)).code == 431


async def test_certificate_that_expired_on_an_open_connection_is_refused(world: World) -> None:
    until = virtual_time.clock().now() + timedelta(seconds=10)
    peer = Peer(User("root", ("system:masters",)), until)

    before = await code(world, peer=peer)
    await asyncio.sleep(11)

    assert (before, await code(world, peer=peer)) == (200, 401)


async def test_invalid_token_is_refused_despite_a_valid_certificate(world: World) -> None:
    until = virtual_time.clock().now() + timedelta(days=1)
    peer = Peer(User("root", ("system:masters",)), until)

    assert await code(world, "Bearer wrong", peer) == 401


def test_authenticated_users_are_in_the_group_system_authenticated() -> None:
    assert authenticated(User("bob", ("a",))).groups == ("a", "system:authenticated")
    assert authenticated(User("bob", ("system:authenticated",))).groups == ("system:authenticated",)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("system:serviceaccount:a:b", ("a", "b")),
        ("system:serviceaccount:a:b.c", ("a", "b.c")),
        ("system:serviceaccount:A:b", None),
        ("system:serviceaccount:a", None),
        ("system:serviceaccount:a:b:c", None),
        ("system:serviceaccount:a:", None),
        ("a:b", None),
    ],
)
def test_service_account_names_are_split(name: str, expected: tuple[str, str] | None) -> None:
    assert split_account(name) == expected
