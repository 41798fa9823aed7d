"""The SSH key of a fleet at the provider."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid

import pytest

from bramley.base import errors
from tests.contract.providers.targets import ONE_KEY, OTHER_KEY, Target


async def test_key_is_registered_once_and_its_comment_does_not_count(target: Target) -> None:
    provider = target.provider()

    first = await provider.ensure_ssh_key("fleet", f"{ONE_KEY} manager-1")
    second = await provider.ensure_ssh_key("fleet", f"{ONE_KEY} manager-2\n")

    assert first == second
    assert list(target.registered_keys()) == [("fleet", ONE_KEY)]


async def test_other_key_of_the_name_is_removed_after_the_new_one_is_registered(
    target: Target,
) -> None:
    provider = target.provider()
    await provider.ensure_ssh_key("fleet", ONE_KEY)
    await provider.ensure_ssh_key("other", OTHER_KEY.replace("DIy", "DMz"))
    target.requests.clear()

    await provider.ensure_ssh_key("fleet", OTHER_KEY)

    assert ("fleet", OTHER_KEY) in target.registered_keys()
    assert ("fleet", ONE_KEY) not in target.registered_keys()
    assert len(target.registered_keys()) == 2
    assert [each.partition(" ")[0] for each in target.writes()] == ["POST", "DELETE"]


async def test_concurrent_calls_register_one_key(target: Target) -> None:
    provider = target.provider()

    calls = (provider.ensure_ssh_key("fleet", ONE_KEY) for _ in range(5))

    assert len(set(await asyncio.gather(*calls))) == 1
    assert len(target.registered_keys()) == 1


async def test_lost_answer_of_a_registration_is_not_repeated_but_found(target: Target) -> None:
    provider = target.provider()
    target.fail("POST", "/ssh-keys", is_processed=True)
    with pytest.raises(errors.ProviderUnavailable):
        await provider.ensure_ssh_key("fleet", ONE_KEY)

    await provider.ensure_ssh_key("fleet", ONE_KEY)

    assert len(target.registered_keys()) == 1
    assert len(target.writes()) == 1


@pytest.mark.parametrize(("name", "key"), [("", ONE_KEY), ("fleet", "AAAA"), ("fleet", "")])
async def test_invalid_key_is_refused_before_any_call(target: Target, name: str, key: str) -> None:
    with pytest.raises(errors.InvalidSpec):
        await target.provider().ensure_ssh_key(name, key)

    assert target.requests == []


async def test_disabled_key_is_refused(target: Target) -> None:
    body = (
        f'{{"ssh_keys":[{{"id":"k","name":"fleet","public_key":"{ONE_KEY}","disabled":true}}],'
        '"total_count":1}'
    )
    target.fail("GET", "/ssh-keys", status=200, body=body)

    with pytest.raises(errors.Refused, match="disabled"):
        await target.provider().ensure_ssh_key("fleet", ONE_KEY)


async def test_key_without_permissions_in_the_project_is_forbidden(target: Target) -> None:
    target.account = dataclasses.replace(target.account, project_id=str(uuid.uuid4()))

    with pytest.raises(errors.Forbidden, match="insufficient permissions: list ssh_key"):
        await target.provider().ensure_ssh_key("fleet", ONE_KEY)
