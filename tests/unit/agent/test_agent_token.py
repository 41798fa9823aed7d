"""The agent's own token on the embedded API: renewed in time, and discarded when it is refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bramley.access import identity
from bramley.agent.agent_token import AgentToken, AgentTokenRenewal, claims
from bramley.api.core import Node
from bramley.api.meta import ObjectMeta
from bramley.apiserver.auth.signing_keys import SigningKeys
from bramley.app import embedded
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.kube.client import Client
from bramley.kube.credentials import Credential, StaticCredentials
from tests import virtual_time
from tests.credential_transport import CredentialTransport

NODE = "mac-1"
HOUR = timedelta(hours=1)


@dataclass
class World:
    """An agent that is enrolled and has its Node."""

    admin: Client
    own: AgentToken
    kube: Client
    renewal: AgentTokenRenewal
    node: Node
    first: Credential
    file: Path


@asynccontextmanager
async def a_world(tmp_path: Path, given: Credential | None = None) -> AsyncIterator[World]:
    clock = virtual_time.clock()
    async with embedded.running(clock=clock, keys=SigningKeys.in_memory()) as (api, token):
        admin = Client(api.transport(token), clock=clock)
        made = await identity.create(admin, NODE, expires=HOUR)
        first = given or Credential(Secret(f"Bearer {made.token.reveal()}"))
        own = AgentToken(StaticCredentials(first), tmp_path / "token")
        kube = Client(CredentialTransport(api.transport, own), clock=clock)
        node = await admin.create(Node(metadata=ObjectMeta(name=NODE)))
        renewal = AgentTokenRenewal(own, kube, node=NODE, clock=clock, rng=random.Random(1))
        yield World(admin, own, kube, renewal, node, first, tmp_path / "token")


async def test_fresh_token_is_not_renewed(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        assert not await world.renewal.renew_if_due()
        assert await world.own.current() == world.first


async def test_token_is_renewed_before_it_ends_and_outlives_the_first(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await asyncio.sleep(0.85 * HOUR.total_seconds())

        assert await world.renewal.renew_if_due()

        await asyncio.sleep(0.5 * HOUR.total_seconds())
        assert (await world.kube.get(Node, NODE)).uid == world.node.uid
        assert world.file.stat().st_mode & 0o777 == 0o600


async def test_agent_that_starts_again_uses_the_renewed_token(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await asyncio.sleep(0.85 * HOUR.total_seconds())
        await world.renewal.renew_if_due()

        again = AgentToken(StaticCredentials(world.first), world.file)

        assert await again.current() == await world.own.current() != world.first


async def test_expired_token_is_discarded_when_the_server_refuses_it(tmp_path: Path) -> None:
    """A host whose clock is ahead must not discard its only valid token."""
    async with a_world(tmp_path) as world:
        await asyncio.sleep(0.85 * HOUR.total_seconds())
        await world.renewal.renew_if_due()
        await asyncio.sleep(2 * HOUR.total_seconds())
        late = AgentToken(StaticCredentials(world.first), world.file)

        shown = await late.current()

        assert shown != world.first
        assert await late.refused(shown)
        assert await late.current() == world.first


async def test_renewed_token_outlives_the_node_and_registers_it_again(tmp_path: Path) -> None:
    """The first token has expired by then."""
    async with a_world(tmp_path) as world:
        for _ in range(3):
            await asyncio.sleep(0.85 * HOUR.total_seconds())
            await world.renewal.renew_if_due()
        await world.admin.delete(Node, NODE)

        again = await world.kube.create(Node(metadata=ObjectMeta(name=NODE)))

        assert again.uid != world.node.uid
        assert await world.own.current() != world.first


async def test_spurious_refusal_keeps_the_renewed_token(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await asyncio.sleep(0.85 * HOUR.total_seconds())
        await world.renewal.renew_if_due()
        renewed = await world.own.current()
        await asyncio.sleep(0.5 * HOUR.total_seconds())

        await world.own.refused(renewed)
        with suppress(errors.Unauthorized):
            await world.kube.get(Node, NODE)

        assert await world.own.current() == renewed
        assert (await world.kube.get(Node, NODE)).uid == world.node.uid


async def test_other_credentials_are_used_unchanged(tmp_path: Path) -> None:
    other = Credential(Secret("Bearer an-opaque-token"))
    async with a_world(tmp_path, given=other) as world:
        assert claims(other) is None
        assert not await world.renewal.renew_if_due()
        assert not world.file.exists()
