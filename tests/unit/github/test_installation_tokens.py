from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.github.installation_tokens import InstallationTokens
from bramley.github.responses import AccessToken
from tests import virtual_time

HOUR = timedelta(hours=1)


@dataclass(slots=True)
class Creation:
    """Creates numbered tokens that live an hour, after a second."""

    count: int = 0
    error: Exception | None = None

    async def __call__(self, installation_id: int) -> AccessToken:
        self.count += 1
        number = self.count
        await asyncio.sleep(1)
        if self.error is not None:
            raise self.error
        expires_at = virtual_time.clock().now() + HOUR
        return AccessToken(token=Secret(f"{installation_id}-{number}"), expires_at=expires_at)


def the_tokens() -> tuple[InstallationTokens, Creation]:
    creation = Creation()
    return InstallationTokens(creation, virtual_time.clock()), creation


async def test_token_is_used_until_five_minutes_before_it_expires() -> None:
    tokens, creation = the_tokens()
    first = await tokens.current(7)
    await asyncio.sleep(54 * 60 + 59)
    assert await tokens.current(7) == first

    await asyncio.sleep(1)

    assert (await tokens.current(7)).reveal() == "7-2"
    assert creation.count == 2


async def test_concurrent_callers_share_one_request() -> None:
    tokens, creation = the_tokens()

    found = await asyncio.gather(*(tokens.current(7) for _ in range(50)), tokens.current(8))

    assert len(set(found)) == 2
    assert creation.count == 2


async def test_failed_request_fails_for_all_callers_and_is_not_remembered() -> None:
    tokens, creation = the_tokens()
    creation.error = errors.GitHubUnavailable("down")

    found = await asyncio.gather(*(tokens.current(7) for _ in range(9)), return_exceptions=True)

    assert found == [creation.error] * 9
    assert creation.count == 1
    creation.error = None
    assert (await tokens.current(7)).reveal() == "7-2"


async def test_cancelled_caller_does_not_fail_the_others() -> None:
    tokens, creation = the_tokens()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(tokens.current(7))
        second = group.create_task(tokens.current(7))
        third = group.create_task(tokens.current(7))
        await asyncio.sleep(0.5)

        first.cancel()

    assert (second.result(), third.result()) == (Secret("7-2"), Secret("7-2"))
    assert creation.count == 2


async def test_bug_in_the_creation_does_not_block_later_callers() -> None:
    tokens, creation = the_tokens()
    creation.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await tokens.current(7)
    creation.error = None

    assert await tokens.current(7)


async def test_only_the_refused_token_is_discarded() -> None:
    tokens, _ = the_tokens()
    first = await tokens.current(7)
    tokens.discard(7, Secret("older"))
    assert await tokens.current(7) == first

    tokens.discard(7, first)

    assert await tokens.current(7) != first
