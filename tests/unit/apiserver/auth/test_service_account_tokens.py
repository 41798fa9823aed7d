"""A ServiceAccount's token is valid for its audiences, for its lifetime, and while its bound objects exist."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from bramley.apiserver.auth.service_account_tokens import ISSUER
from tests.unit.apiserver.world import PODS, World, a_pod

ACCOUNTS = "/api/v1/namespaces/t/serviceaccounts"
SECRETS = "/api/v1/namespaces/t/secrets"
NODES = "/api/v1/nodes"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def minted(world: World, account: str = "robot", **spec: Any) -> str:
    if (await world.get(f"{ACCOUNTS}/{account}")).code == 404:
        await world.create(ACCOUNTS, {"metadata": {"name": account}})
    reply = await world.request("POST", f"{ACCOUNTS}/{account}/token", {"spec": spec})
    assert reply.code == 201, reply.body
    return str(reply.json["status"]["token"])


async def owner(world: World, token: str) -> str:
    """Return whom the API takes the token's bearer for, or the code of its refusal."""
    reply = await world.request("POST", SELF, {}, token=token)
    return str(reply.json["status"]["userInfo"]["username"] if reply.code == 201 else reply.code)


async def review_error(world: World, token: str, *audiences: str) -> str:
    body = {"spec": {"token": token, "audiences": list(audiences)}}
    status = (await world.request("POST", REVIEWS, body)).json["status"]
    assert status.get("authenticated", False) is ("error" not in status)
    assert token not in status.get("error", "")
    return str(status.get("error", ""))


def bound_to(kind: str, name: str, uid: str = "") -> dict[str, Any]:
    reference = {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}
    return {"boundObjectRef": reference}


ROBOT = "system:serviceaccount:t:robot"


async def test_a_token_identifies_its_account_pod_and_node(world: World) -> None:
    node = (await world.create(NODES, {"metadata": {"name": "mac"}})).json["metadata"]["uid"]
    pod = a_pod("p", serviceAccountName="robot", nodeName="mac")
    uid = (await world.create(PODS, pod)).json["metadata"]["uid"]
    token = await minted(world, **bound_to("Pod", "p", uid))

    status = (await world.request("POST", SELF, {}, token=token)).json["status"]["userInfo"]

    credential = status["extra"].pop("authentication.kubernetes.io/credential-id")
    assert credential[0].startswith("JTI=")
    assert status["username"] == ROBOT
    assert status["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:t",
        "system:authenticated",
    ]
    assert status["extra"] == {
        "authentication.kubernetes.io/pod-name": ["p"],
        "authentication.kubernetes.io/pod-uid": [uid],
        "authentication.kubernetes.io/node-name": ["mac"],
        "authentication.kubernetes.io/node-uid": [node],
    }


async def test_the_claims_are_those_of_a_real_server(world: World) -> None:
    token = await minted(world, audiences=["vault"], expirationSeconds=700)

    claims = jwt.decode(token, options={"verify_signature": False})

    assert set(claims) == {"iss", "sub", "aud", "exp", "iat", "nbf", "jti", "kubernetes.io"}
    assert (claims["iss"], claims["sub"], claims["aud"]) == (ISSUER, ROBOT, ["vault"])
    assert claims["exp"] - claims["iat"] == 700
    account = claims["kubernetes.io"]["serviceaccount"]
    assert (claims["kubernetes.io"]["namespace"], account["name"]) == ("t", "robot")


async def test_token_expires_after_its_lifetime_and_a_minute_of_leeway(world: World) -> None:
    token = await minted(world, expirationSeconds=600)

    await asyncio.sleep(659)
    before = await owner(world, token)
    await asyncio.sleep(3)

    assert (before, await owner(world, token)) == (ROBOT, "401")
    assert (await review_error(world, token)).endswith("service account token has expired]")


async def test_token_for_another_audience_is_refused(world: World) -> None:
    token = await minted(world, audiences=["vault"])

    assert await owner(world, token) == "401"
    assert await review_error(world, token, "vault") == ""
    wrong = await review_error(world, token)
    assert f'token audiences ["vault"] is invalid for the target audiences ["{ISSUER}"]' in wrong


@pytest.mark.parametrize("kind", ["Pod", "Secret", "Node"])
async def test_token_is_invalid_once_its_bound_object_is_deleted(world: World, kind: str) -> None:
    place, body = {
        "Pod": (PODS, a_pod("x", serviceAccountName="robot")),
        "Secret": (SECRETS, {"metadata": {"name": "x"}}),
        "Node": (NODES, {"metadata": {"name": "x"}}),
    }[kind]
    await world.create(place, body)
    token = await minted(world, **bound_to(kind, "x"))
    alive = await owner(world, token)

    await world.delete(f"{place}/x")
    gone = await review_error(world, token)
    await world.create(place, body)
    again = await review_error(world, token)

    assert alive == ROBOT
    assert gone.endswith("service account token has been invalidated]")
    assert f"{kind.lower()} UID (" in again
    assert await owner(world, token) == "401"


async def test_token_is_invalid_once_its_account_is_deleted_or_recreated(world: World) -> None:
    token = await minted(world)
    alive = await owner(world, token)

    await world.delete(f"{ACCOUNTS}/robot")
    gone = await owner(world, token)
    await world.create(ACCOUNTS, {"metadata": {"name": "robot"}})

    assert (alive, gone, await owner(world, token)) == (ROBOT, "401", "401")
    assert "service account UID (" in await review_error(world, token)


async def test_token_of_a_terminating_pod_is_valid_for_its_grace_period_and_a_minute(
    world: World,
) -> None:
    pod = a_pod("p", serviceAccountName="robot", nodeName="mac", terminationGracePeriodSeconds=30)
    await world.create(PODS, pod)
    token = await minted(world, **bound_to("Pod", "p"))
    await world.delete(f"{PODS}/p")

    found = [await owner(world, token)]
    await asyncio.sleep(89)
    found.append(await owner(world, token))
    await asyncio.sleep(2)
    found.append(await owner(world, token))

    assert found == [ROBOT, ROBOT, "401"]


def parts_of(token: str) -> list[Any]:
    return [json.loads(base64.urlsafe_b64decode(part + "==")) for part in token.split(".")[:2]]


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def with_other_claims(token: str) -> str:
    head, claims = parts_of(token)
    return ".".join([part(head), part({**claims, "sub": "system:admin"}), token.split(".")[2]])


def without_signature(token: str) -> str:
    head, claims = parts_of(token)
    return f"{part({**head, 'alg': 'none'})}.{part(claims)}."


def by_the_public_key(token: str) -> str:
    # The trick of old libraries: a public key taken for a shared secret.
    head, claims = parts_of(token)
    return jwt.encode(claims, "s" * 64, "HS256", headers={"kid": head["kid"]})


def by_another_key(token: str) -> str:
    head, claims = parts_of(token)
    own = ec.generate_private_key(ec.SECP256R1())
    return jwt.encode(claims, own, "ES256", headers={"kid": head["kid"]})


def by_a_key_of_another_name(token: str) -> str:
    own = ec.generate_private_key(ec.SECP256R1())
    return jwt.encode(parts_of(token)[1], own, "ES256", headers={"kid": "mine"})


def cut(token: str) -> str:
    return token[:-5]


@pytest.mark.parametrize(
    "forge",
    [
        with_other_claims,
        without_signature,
        by_the_public_key,
        by_another_key,
        by_a_key_of_another_name,
        cut,
    ],
)
async def test_a_forged_token_is_refused(world: World, forge: Callable[[str], str]) -> None:
    token = await minted(world)

    forged = forge(token)

    assert (await owner(world, token), await owner(world, forged)) == (ROBOT, "401")
    assert "invalid" in await review_error(world, forged)


async def test_a_token_of_another_issuer_is_refused_whatever_its_key(world: World) -> None:
    accounts = world.app.api._server.authenticator.accounts
    foreign = accounts.keys.sign({**parts_of(await minted(world))[1], "iss": "https://else"})

    assert await owner(world, foreign) == "401"


@pytest.mark.parametrize("text", ["a.b.c", "..", "eyJ9.e30.x", "a.b", "\udcff.b.c"])
async def test_malformed_token_is_refused(world: World, text: str) -> None:
    accounts = world.app.api._server.authenticator.accounts

    assert accounts.owner(text) is None


@pytest.mark.parametrize(
    ("seconds", "code"), [(599, 422), (600, 201), (None, 201), (1 << 32, 201), ((1 << 32) + 1, 422)]
)
async def test_requested_lifetime_of_a_token(world: World, seconds: int | None, code: int) -> None:
    await world.create(ACCOUNTS, {"metadata": {"name": "robot"}})

    body = {"spec": {"expirationSeconds": seconds}}
    reply = await world.request("POST", f"{ACCOUNTS}/robot/token", body)

    assert reply.code == code


async def test_a_lifetime_over_the_limit_is_shortened_with_a_warning(world: World) -> None:
    await world.create(ACCOUNTS, {"metadata": {"name": "robot"}})

    body = {"spec": {"expirationSeconds": 1 << 31}}
    reply = await world.request("POST", f"{ACCOUNTS}/robot/token", body)

    year = int(timedelta(days=365).total_seconds())
    assert reply.json["spec"]["expirationSeconds"] == year
    assert f"shortened to {year} seconds" in reply.header("warning")[0]


async def test_a_token_is_not_bound_to_a_pod_of_another_account(world: World) -> None:
    await world.create(PODS, a_pod("p", serviceAccountName="other"))
    await world.create(ACCOUNTS, {"metadata": {"name": "robot"}})

    body = {"spec": bound_to("Pod", "p")}
    reply = await world.request("POST", f"{ACCOUNTS}/robot/token", body)

    assert (reply.code, "different serviceaccount name" in reply.message) == (400, True)


async def test_a_known_signature_is_not_verified_again_and_little_is_kept(world: World) -> None:
    accounts = world.app.api._server.authenticator.accounts
    tokens = [await minted(world) for _ in range(5)]

    for token in tokens:
        accounts.owner(token)
    first = accounts._verified(tokens[0])

    assert accounts._verified(tokens[0]) is first
    assert not any(token in repr(accounts._verified_tokens) for token in tokens)


async def test_static_tokens_are_reviewed_for_this_api_only(world: World) -> None:
    body = {"spec": {"token": "let-me-in"}}
    status = (await world.request("POST", REVIEWS, body)).json["status"]

    assert (status["authenticated"], status["user"]["username"]) == (True, "admin")
    assert await review_error(world, "let-me-in", "vault") == "invalid bearer token"


async def test_only_service_accounts_may_read_the_issuer_discovery(world: World) -> None:
    token = await minted(world)

    document = (await world.request("GET", "/.well-known/openid-configuration", token=token)).json
    keys = (await world.request("GET", "/openid/v1/jwks", token=token)).json["keys"]

    assert document["issuer"] == ISSUER
    assert document["jwks_uri"].endswith("/openid/v1/jwks")
    assert document["id_token_signing_alg_values_supported"] == ["ES256"]
    key = jwt.PyJWK(keys[0])
    # The library looks at the real clock.
    claims = jwt.decode(token, key, ["ES256"], audience=ISSUER, options={"verify_exp": False})
    assert claims["sub"] == ROBOT
    assert "d" not in keys[0]
    assert (await world.request("GET", "/openid/v1/jwks", acting="bob")).code == 403
