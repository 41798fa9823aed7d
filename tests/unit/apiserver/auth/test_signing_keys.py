"""The keys of ServiceAccounts' tokens: created once, rotated without invalidating tokens, retired in time; only masters rotate them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest

from bramley.apiserver.admin.endpoints import ROTATE_KEYS_PATH as ROTATE
from bramley.apiserver.auth.signing_keys import FILE, SigningKeys
from bramley.base.errors import BadConfiguration
from tests import virtual_time
from tests.unit.apiserver.auth.test_service_account_tokens import ROBOT, minted, owner
from tests.unit.apiserver.world import World

LATER = datetime(9999, 1, 1, tzinfo=UTC)


def test_keys_are_created_once_and_are_private(tmp_path: Path) -> None:
    assert not (tmp_path / FILE).exists()
    first = SigningKeys.open(tmp_path).json_web_keys()

    assert SigningKeys.open(tmp_path).json_web_keys() == first
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_a_new_key_signs_and_the_old_one_verifies_until_it_retires(tmp_path: Path) -> None:
    keys = SigningKeys.open(tmp_path)
    old = jwt.get_unverified_header(keys.sign({}))["kid"]
    keys.rotate(until=LATER)
    new = jwt.get_unverified_header(keys.sign({}))["kid"]

    assert new != old
    assert [key["kid"] for key in SigningKeys.open(tmp_path).json_web_keys()] == [new, old]
    keys.retire()
    assert keys.find(old) is None
    assert [key["kid"] for key in SigningKeys.open(tmp_path).json_web_keys()] == [new]


async def test_tokens_of_a_retired_key_are_invalid_at_once(world: World) -> None:
    token = await minted(world)
    keys = world.app.api._server.authenticator.accounts.keys
    found = [await owner(world, token)]
    keys.rotate(until=LATER)
    found.append(await owner(world, token))
    keys.retire()
    found.append(await owner(world, token))

    assert found == [ROBOT, ROBOT, "401"]


def key_of(token: str) -> str:
    return str(jwt.get_unverified_header(token)["kid"])


async def published(world: World) -> list[str]:
    return [key["kid"] for key in (await world.get("/openid/v1/jwks")).json["keys"]]


async def test_rotation_keeps_existing_tokens_valid_until_they_expire(world: World) -> None:
    old = await minted(world)

    rotated = (await world.request("POST", ROTATE)).json["keys"]
    new = await minted(world)

    assert [await owner(world, old), await owner(world, new)] == [ROBOT, ROBOT]
    assert [key["name"] for key in rotated] == [key_of(new), key_of(old)]
    longest = timedelta(days=365, minutes=1)
    assert datetime.fromisoformat(rotated[1]["until"]) == virtual_time.EPOCH + longest


async def test_expired_key_is_discarded(world: World) -> None:
    keys = world.app.api._server.authenticator.accounts.keys
    old = await minted(world)
    keys.rotate(until=virtual_time.EPOCH + timedelta(minutes=1))
    assert await owner(world, old) == ROBOT

    await asyncio.sleep(60)

    assert await published(world) == [key_of(await minted(world))]
    assert await owner(world, old) == "401"


async def test_rotation_can_invalidate_existing_tokens(world: World) -> None:
    old = await minted(world)

    rotated = (await world.request("POST", f"{ROTATE}?voidOld=true")).json["keys"]

    assert await owner(world, old) == "401"
    assert await owner(world, await minted(world)) == ROBOT
    assert len(rotated) == 1


async def test_only_masters_rotate_keys(world: World) -> None:
    token = await minted(world)
    group = "rbac.authorization.k8s.io"
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "t"}
    all_rights = {"metadata": {"name": "all"}, "roleRef": role, "subjects": [subject]}
    await world.create(f"/apis/{group}/v1/clusterrolebindings", all_rights)
    before = await published(world)

    codes = [
        (await world.request("POST", ROTATE, token=token)).code,
        (await world.request("GET", ROTATE)).code,
        (await world.request("POST", ROTATE, token="wrong")).code,
    ]

    assert codes == [403, 405, 401]
    assert await published(world) == before


def test_expired_key_is_removed_from_the_file(tmp_path: Path) -> None:
    keys = SigningKeys.open(tmp_path)
    keys.rotate(until=LATER)
    keys.rotate(until=datetime.now(UTC))

    left = SigningKeys.open(tmp_path).key_ids()

    assert [until for _, until in left] == [None, LATER]
    assert (tmp_path / FILE).read_bytes().count(b"BEGIN") == 2


@pytest.mark.parametrize("content", [b"", b"nonsense", b"-----BEGIN PRIVATE KEY-----\nAAAA\n"])
def test_damaged_keys_are_an_error_and_not_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)

    with pytest.raises(BadConfiguration, match="restore it from a backup") as rotated:
        SigningKeys.open(tmp_path).json_web_keys()

    assert b"nonsense".decode() not in str(rotated.value)
    assert (tmp_path / FILE).read_bytes() == content
