"""What the simulated GitHub accepts as authentication."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import jwt
import pytest

from bramley.sim.github.access import Access
from bramley.sim.github.records import Refusal
from tests import github_keys, virtual_time

NOW = int(virtual_time.EPOCH.timestamp())
VALID = {"iss": "1", "iat": NOW - 60, "exp": NOW + 540}


def access() -> Access:
    found = Access("1", virtual_time.clock(), 5000, random.Random(1))
    found.keys["first"] = github_keys.rsa_key().public_key()
    return found


def signed(key: str = "first", algorithm: str = "RS256", **changes: Any) -> str:
    claims = {name: value for name, value in (VALID | changes).items() if value is not None}
    return jwt.encode(claims, github_keys.rsa_key(key), algorithm=algorithm)


def authenticated(token: str, scheme: str = "Bearer") -> None:
    caller = access().authenticate({"authorization": f"{scheme} {token}"})
    assert caller.account is None


@pytest.mark.parametrize(
    "changes",
    [{}, {"iat": NOW}, {"exp": NOW + 600}, {"exp": NOW + 1}, {"iat": NOW - 9999}],
)
async def test_jwt_within_the_limits_is_accepted(changes: dict[str, Any]) -> None:
    authenticated(signed(**changes))


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        (401, {"iat": NOW + 1}),
        (401, {"iat": None}),
        (401, {"iat": str(NOW)}),
        (401, {"exp": NOW}),
        (401, {"exp": NOW + 601}),
        (401, {"exp": None}),
        (404, {"iss": "2"}),
        (401, {"key": "second"}),
        (401, {"algorithm": "RS512"}),
    ],
)
async def test_forged_or_expired_jwt_is_refused(status: int, changes: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as raised:
        authenticated(signed(**changes))

    assert raised.value.status == status


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic x", "Bearer a.b.c", "Bearer ghs_unknown"]
)
async def test_other_credentials_are_refused(header: str) -> None:
    with pytest.raises(Refusal) as raised:
        access().authenticate({"authorization": header})

    assert raised.value.status == 401


async def test_unsigned_jwt_is_refused() -> None:
    unsigned = jwt.encode(VALID, "", algorithm="none")

    with pytest.raises(Refusal):
        authenticated(unsigned)


async def test_budget_is_renewed_after_an_hour() -> None:
    budget = access().budget(7)
    now = virtual_time.EPOCH
    budget.check(now, "installation ID 7")
    budget.used = budget.limit

    with pytest.raises(Refusal) as raised:
        budget.check(now + timedelta(minutes=59), "installation ID 7")
    budget.check(now + timedelta(minutes=60), "installation ID 7")

    assert raised.value.headers["x-ratelimit-remaining"] == "0"
    assert budget.used == 0
