"""The lifetime of an agent's tokens: which ones are refused, and when they become invalid."""

from __future__ import annotations

import base64
import json
import time
from datetime import timedelta
from typing import Any

import pytest

from bramley.access import identity
from bramley.api.core import Node, Pod, ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.names import access, agent
from bramley.base.secret import Secret
from bramley.kube.client import Client
from tests.contract.agent_rule import scene as scenes
from tests.contract.agent_rule.scene import HOUR, Scene
from tests.contract.agent_rule.table import MERGE, Row, a_token, to_pod
from tests.contract.agent_rule.targets import Server, Target

Json = dict[str, Any]

LABEL = {"metadata": {"labels": {"tuist.dev/fleet": "x"}}}


def labelling(node: str, code: int) -> Row:
    return Row("", "PATCH", f"/api/v1/nodes/{node}", code, {"dryRun": "All"}, LABEL, MERGE)


def reading(node: str, code: int = 200) -> Row:
    return Row("", "GET", f"/api/v1/nodes/{node}", code)


def minting(scene: Scene, account: str, bound: Json) -> Row:
    path = f"/api/v1/namespaces/{scene.namespace}/serviceaccounts/{account}/token"
    return Row("", "POST", path, 201, body=a_token(bound))


async def code(server: Server, token: Secret, row: Row) -> int:
    return (await server.send(token, row)).status


async def minted(server: Server, token: Secret, row: Row) -> Secret:
    answer = await server.send(token, row)
    assert answer.status == 201, answer.body
    return Secret(json.loads(answer.body)["status"]["token"])


def claims(token: Secret) -> Json:
    payload = token.reveal().split(".")[1]
    decoded: Json = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return decoded


async def agents_token(kube: Client, scene: Scene, node: str, **options: Any) -> Secret:
    """Return a token of the first agent, made by an administrator, bound to a Node of choice."""
    bound_to = await kube.get(Node, node)
    account = agent.service_account(scene.node)
    request: Json = {"audiences": (), "expires": HOUR, "bound_to": bound_to, **options}
    return (await kube.request_token(account, access.NAMESPACE, **request)).token


async def test_token_of_one_agent_grants_nothing_on_another_node(target: Target) -> None:
    async with target.scene() as (server, scene):
        assert await code(server, scene.token, reading(scene.node)) == 200
        assert await code(server, scene.others_token, reading(scene.node)) == 403
        assert await code(server, scene.others_token, labelling(scene.node, 403)) == 403
        assert await code(server, scene.others_token, labelling(scene.other, 200)) == 200


async def test_token_bound_to_another_node_writes_nothing(target: Target) -> None:
    async with target.scene() as (server, scene):
        misbound = await agents_token(server.kube, scene, scene.other)

        for node in (scene.node, scene.other):
            assert await code(server, misbound, labelling(node, 403)) == 403


async def test_expired_token_is_refused_and_a_new_one_with_the_same_claims_is_not(
    target: Target,
) -> None:
    async with target.scene() as (server, scene):
        old_claims = claims(scene.token)
        now = int(time.time())
        old = {**old_claims, "iat": now - 7200, "nbf": now - 7200, "exp": now - 3600}

        assert await code(server, Secret(server.sign(old_claims)), reading(scene.node)) == 200
        assert await code(server, Secret(server.sign(old)), reading(scene.node)) == 401


async def test_token_for_another_audience_is_refused(target: Target) -> None:
    async with target.scene() as (server, scene):
        foreign = await agents_token(server.kube, scene, scene.node, audiences=("dispatch",))

        assert await code(server, foreign, reading(scene.node)) == 401


async def test_token_with_a_foreign_signature_is_refused(target: Target) -> None:
    async with target.scene() as (server, scene):
        text = scene.token.reveal()
        flipped = text[:-5] + ("A" if text[-5] != "A" else "B") + text[-4:]

        assert await code(server, Secret(flipped), reading(scene.node)) == 401


async def test_agent_renews_its_token_and_the_new_one_grants_the_same(target: Target) -> None:
    async with target.scene() as (server, scene):
        account = agent.service_account(scene.node)
        path = f"/api/v1/namespaces/{access.NAMESPACE}/serviceaccounts/{account}/token"

        renewed = await minted(server, scene.token, Row("", "POST", path, 201, body=a_token(None)))

        assert "node" not in claims(renewed)["kubernetes.io"]
        assert await code(server, renewed, labelling(scene.node, 200)) == 200
        assert await code(server, renewed, labelling(scene.other, 403)) == 403


@pytest.mark.side_by_side
async def test_tokens_of_a_revoked_agent_are_invalid_at_once(target: Target) -> None:
    async with target.scene() as (server, scene):
        earlier = await agents_token(server.kube, scene, scene.node)
        assert await code(server, earlier, reading(scene.node)) == 200

        assert await identity.revoke(server.kube, scene.node)

        await server.refused(scene.token, reading(scene.node))
        await server.refused(earlier, reading(scene.node))
        await server.unknown(scene.token, reading(scene.node))
        assert await code(server, scene.others_token, reading(scene.other)) == 200
        assert not await identity.revoke(server.kube, scene.node)


@pytest.mark.side_by_side
async def test_recreated_agent_gets_its_rights_and_the_old_tokens_stay_invalid(
    target: Target,
) -> None:
    async with target.scene() as (server, scene):
        await identity.revoke(server.kube, scene.node)

        made = await identity.create(server.kube, scene.node, expires=HOUR)

        secret = f"/api/v1/namespaces/{scene.namespace}/secrets/s-env"
        await server.eventually(made.token, Row("", "GET", secret, 200), 200)
        await server.eventually(made.token, labelling(scene.node, 200), 200)
        await server.unknown(scene.token, reading(scene.node))


@pytest.mark.side_by_side
async def test_agent_registers_its_node_again_that_was_deleted(target: Target) -> None:
    async with target.scene() as (server, scene):
        await server.kube.delete(Node, scene.node)

        body = {"metadata": {"name": scene.node}}
        create = Row("", "POST", "/api/v1/nodes", 201, body=body)
        await server.eventually(scene.token, create, 201)


@pytest.mark.side_by_side
async def test_token_that_is_bound_to_its_node_is_invalid_once_that_is_deleted(
    target: Target,
) -> None:
    async with target.scene() as (server, scene):
        bound = await agents_token(server.kube, scene, scene.node)
        await server.kube.delete(Node, scene.node)

        await server.unknown(bound, reading(scene.node))


async def test_agent_registers_its_node_with_its_first_token(target: Target) -> None:
    async with target.scene() as (server, scene):
        node = f"{scene.node}-new"

        made = await identity.create(server.kube, node, expires=timedelta(minutes=10))

        body = {"metadata": {"name": node}}
        create = Row("", "POST", "/api/v1/nodes", 201, body=body)
        await server.eventually(made.token, reading(node), 404)
        await server.eventually(made.token, create, 201)
        assert await code(server, made.token, reading(node)) == 200


@pytest.mark.side_by_side
async def test_token_of_a_pod_is_invalid_once_the_pod_is_deleted(target: Target) -> None:
    async with target.scene() as (server, scene):
        pod = to_pod("mine", scene.words["pod_uid"])
        token = await minted(server, scene.token, minting(scene, "shared", pod))
        itself = Row("", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", 201, body={})
        assert await code(server, token, itself) == 201

        await removed(server.kube, scene, "mine")

        await server.unknown(token, itself)


async def test_pod_recreated_on_another_node_is_out_of_reach(target: Target) -> None:
    async with target.scene() as (server, scene):
        kube, place = server.kube, f"/api/v1/namespaces/{scene.namespace}"
        secret = Row("", "GET", f"{place}/secrets/s-env", 200)
        status = {"status": {"phase": "Running"}}
        status_patch = Row("", "PATCH", f"{place}/pods/mine/status", 200, {}, status, MERGE)
        assert await code(server, scene.token, status_patch) == 200

        await removed(kube, scene, "mine")
        again = await scenes.pod(
            kube, scene.namespace, "mine", spec=scenes.a_spec_with_references(scene.other)
        )

        # Writes of the agent are bound to its node at once, reads when the Roles are updated.
        assert await code(server, scene.token, status_patch) == 403
        await server.eventually(scene.token, secret, 403)
        await server.eventually(scene.others_token, secret, 200)
        mint = minting(scene, "shared", to_pod("mine", again.uid))
        assert await code(server, scene.token, mint) == 403
        assert await code(server, scene.others_token, mint) == 201
        assert await code(server, scene.others_token, status_patch) == 200


async def test_secret_is_readable_only_while_a_pod_refers_to_it(target: Target) -> None:
    async with target.scene() as (server, scene):
        secret = Row("", "GET", f"/api/v1/namespaces/{scene.namespace}/secrets/s-unused", 200)
        assert await code(server, scene.token, secret) == 403
        env_from = [{"secretRef": {"name": "s-unused"}}]
        spec = {"nodeName": scene.node, **scenes.a_plain_spec(envFrom=env_from)}

        await scenes.pod(server.kube, scene.namespace, "more", spec=spec)
        await server.eventually(scene.token, secret, 200)
        await removed(server.kube, scene, "more")

        await server.eventually(scene.token, secret, 403)


async def removed(kube: Client, scene: Scene, name: str) -> None:
    where = {"namespace": scene.namespace}
    await kube.merge_patch(Pod, name, {"metadata": {"finalizers": None}}, **where)
    await kube.delete(Pod, name, grace=timedelta(0), **where)


async def test_user_with_only_an_agents_name_gets_no_rights(target: Target) -> None:
    """A ServiceAccount of the right name in the right namespace is no agent without its binding."""
    async with target.scene() as (server, scene):
        node = f"{scene.node}-false"
        place = ObjectMeta(name=agent.service_account(node), namespace=access.NAMESPACE)
        await server.kube.create(ServiceAccount(metadata=place))
        issued = await server.kube.request_token(
            place.name, access.NAMESPACE, audiences=(), expires=HOUR
        )

        body = {"metadata": {"name": node}}
        create = Row("", "POST", "/api/v1/nodes", 403, {"dryRun": "All"}, body)
        assert await code(server, issued.token, create) == 403
        assert await code(server, issued.token, reading(node)) == 403
