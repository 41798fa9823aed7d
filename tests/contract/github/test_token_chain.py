"""App key, JWT, installation token, registration token: what GitHub accepts and what it refuses."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from bramley.base import errors
from bramley.github.owners import Organisation
from bramley.sim.github.faults import Fault
from tests.github_keys import app_key, rsa_key
from tests.github_peer import ACME, APP, DOTFILES, Peer


@pytest.mark.parametrize("form", ["pkcs1", "pkcs8"])
@pytest.mark.parametrize("skew", [-60, 0, 60])
async def test_registration_token_with_both_key_formats_and_skewed_clocks(
    peer: Peer, form: str, skew: int
) -> None:
    peer.clock.offset = timedelta(seconds=skew)
    app = peer.app(form=form)

    found = await app.installation_of(ACME)
    token = await app.installation(found.id).registration_token(ACME)

    assert found.account.login == "acme"
    assert token.expires_at > datetime.now(UTC) + timedelta(minutes=50)
    assert token.token.reveal() not in repr(token)


@pytest.mark.parametrize(("skew", "sign"), [(-900, "-"), (120, "+")])
async def test_wrong_clock_is_named(peer: Peer, skew: int, sign: str) -> None:
    peer.clock.offset = timedelta(seconds=skew)

    with pytest.raises(errors.Unauthorized, match=rf"clock differs from GitHub's by \{sign}\d+ s"):
        await peer.installation().registration_token(ACME)


async def test_repository_and_user_have_installations_and_tokens(peer: Peer) -> None:
    app = peer.app()

    assert (await app.installation_of(APP)).id == (await app.installation_of(ACME)).id
    of_user = await app.installation_of(DOTFILES)
    assert (of_user.account.login, of_user.account.type) == ("jane", "User")
    assert (await app.installation(of_user.id).registration_token(DOTFILES)).token


async def test_unknown_app_installation_and_owner_are_not_found(peer: Peer) -> None:
    with pytest.raises(errors.NotFound, match="Integration not found"):
        await peer.app(app_id="2").installation_of(ACME)
    with pytest.raises(errors.Forbidden, match="not installed any more"):
        await peer.app().installation(999).registration_token(ACME)
    with pytest.raises(errors.NotFound):
        await peer.app().installation_of(Organisation("nobody"))
    with pytest.raises(errors.NotFound):
        await peer.installation("jane").registration_token(ACME)


async def test_revoked_key_is_unauthorized_and_its_successor_works(peer: Peer) -> None:
    peer.github.access.keys["second"] = rsa_key("second").public_key()
    assert (await peer.app("second").installation_of(ACME)).id

    del peer.github.access.keys["first"]

    with pytest.raises(errors.Unauthorized, match="could not be decoded") as raised:
        await peer.app("first").installation_of(ACME)
    assert app_key("first").fingerprint in str(raised.value)
    assert (await peer.app("second").installation_of(ACME)).id


async def test_token_that_github_refuses_is_replaced_once(peer: Peer) -> None:
    installation = peer.installation()
    await installation.registration_token(ACME)
    peer.github.access.revoke_tokens()

    assert (await installation.registration_token(ACME)).token
    assert await installation.runners(ACME) == []


async def test_second_refusal_is_an_error(peer: Peer) -> None:
    installation = peer.installation()
    await installation.registration_token(ACME)
    peer.github.faults.add(_refusal(times=2))

    with pytest.raises(errors.Unauthorized):
        await installation.registration_token(ACME)

    assert (await installation.registration_token(ACME)).token


async def test_many_calls_share_one_token(peer: Peer) -> None:
    installation = peer.installation()

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(installation.runner_groups(ACME))

    app_budget = peer.client.rate_limits.budget("app")
    budget = peer.client.rate_limits.budget(installation.scope)
    assert app_budget is not None
    assert app_budget.remaining == app_budget.limit - 1
    assert budget is not None
    assert budget.limit == 5000


async def test_missing_permission_and_suspension_are_forbidden(peer: Peer) -> None:
    account = peer.github.accounts["acme"]
    account.permissions.clear()
    with pytest.raises(errors.Forbidden, match="not accessible by integration"):
        await peer.installation().registration_token(ACME)

    account.is_suspended = True

    with pytest.raises(errors.Forbidden, match="suspended"):
        await peer.installation().registration_token(ACME)


def _refusal(times: int) -> Fault:
    return Fault(kind="status", status=401, path="*/registration-token", times=times)
