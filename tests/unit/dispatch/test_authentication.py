"""Reviews of tokens: how many a caller can cause, and what one caller's tokens change for others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from bramley.api.names import dispatch
from bramley.base import errors
from bramley.dispatch.authentication import Authentication
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response
from tests import virtual_time

NAMESPACE = "runners"


@dataclass(slots=True)
class Reviewer:
    """An API server that accepts the tokens `pod…` and `user-GROUP`, and whose group `admins` may do everything."""

    tokens: list[str] = field(default_factory=list)
    most_at_once: int = 0
    seconds: float = 1.0
    _current: int = 0

    async def send(self, request: Request) -> Response:
        body = msgspec.json.decode(request.body or b"{}")
        self._current += 1
        self.most_at_once = max(self.most_at_once, self._current)
        await asyncio.sleep(self.seconds)
        self._current -= 1
        if body["kind"] == "TokenReview":
            self.tokens.append(body["spec"]["token"])
            status = _review(body["spec"]["token"])
        else:
            status = {"allowed": "admins" in body["spec"].get("groups", [])}
        return Response(201, {}, msgspec.json.encode({**body, "status": status}))

    def stream(self, request: Request) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def _review(token: str) -> dict[str, Any]:
    if token.startswith("user-"):
        groups = [token.removeprefix("user-")]
        return {"authenticated": True, "user": {"username": "alice", "groups": groups}}
    if not token.startswith("pod"):
        return {"authenticated": False}
    extra = {
        "authentication.kubernetes.io/pod-name": ["one"],
        "authentication.kubernetes.io/pod-uid": ["uid"],
    }
    user = {"username": f"system:serviceaccount:{NAMESPACE}:one", "extra": extra}
    return {"authenticated": True, "audiences": [dispatch.TOKEN_AUDIENCE], "user": user}


def an_authentication(reviewer: Reviewer) -> Authentication:
    clock = virtual_time.clock()
    return Authentication(Client(reviewer, clock=clock), NAMESPACE, clock)


async def is_runner(authentication: Authentication, token: str) -> bool:
    try:
        await authentication.runner(f"Bearer {token}")
    except errors.Unauthorized:
        return False
    return True


async def test_requests_with_the_same_new_token_cost_a_bounded_number_of_reviews() -> None:
    reviewer = Reviewer()
    authentication = an_authentication(reviewer)
    results = await asyncio.gather(*(is_runner(authentication, "pod") for _ in range(500)))

    assert all(results)
    assert len(reviewer.tokens) == reviewer.most_at_once == 32


async def test_reviews_of_different_tokens_at_once_are_bounded_in_number_and_time() -> None:
    reviewer = Reviewer(seconds=2)
    authentication = an_authentication(reviewer)
    calls = (is_runner(authentication, f"invented-{number}") for number in range(200))
    results = await asyncio.gather(*calls, return_exceptions=True)

    assert reviewer.most_at_once == 32
    refused = [each for each in results if isinstance(each, bool)]
    assert (len(refused), any(refused)) == (32, False)
    assert all(isinstance(each, bool | errors.TimedOut) for each in results)


async def test_invented_tokens_do_not_displace_an_accepted_one() -> None:
    reviewer = Reviewer(seconds=0)
    authentication = an_authentication(reviewer)
    assert await is_runner(authentication, "pod")
    for number in range(20_001):
        assert not await is_runner(authentication, f"invented-{number}")
    assert await is_runner(authentication, "pod")

    assert reviewer.tokens.count("pod") == 1


async def test_refused_token_is_reviewed_every_ten_seconds_at_most() -> None:
    reviewer = Reviewer(seconds=0)
    authentication = an_authentication(reviewer)
    for _ in range(31):
        assert not await is_runner(authentication, "invented")
        await asyncio.sleep(1)

    assert len(reviewer.tokens) == 4


async def test_token_of_a_pod_that_vanished_is_refused_for_a_while() -> None:
    reviewer = Reviewer(seconds=0)
    authentication = an_authentication(reviewer)
    assert await is_runner(authentication, "pod")
    authentication.refuse("Bearer pod")
    assert not await is_runner(authentication, "pod")
    await asyncio.sleep(timedelta(seconds=11).total_seconds())

    assert await is_runner(authentication, "pod")


async def test_rights_of_one_token_are_not_those_of_another_of_the_same_user() -> None:
    authentication = an_authentication(Reviewer(seconds=0))
    await authentication.caller("Bearer user-admins", "get")
    with pytest.raises(errors.Forbidden, match="alice may not get runnerpools"):
        await authentication.caller("Bearer user-others", "get")
