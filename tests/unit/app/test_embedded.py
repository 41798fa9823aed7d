"""The embedded cluster in memory, under virtual time, as tests and scenarios use it."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import yaml

from bramley.api import crds as our_kinds
from bramley.apiserver.auth.bearer_tokens import ADMIN, ADMIN_GROUPS, Tokens
from bramley.app import embedded
from bramley.app.embedded import Api
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.kube.transport import Request, Response
from tests import virtual_time
from tests.meta.documents import ROOT
from tests.unit.apiserver.store.doubles import stepped_store

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def request(
    api: Api, token: Secret, method: str, path: str, body: Any = None
) -> tuple[int, dict[str, Any]]:
    payload = None if body is None else msgspec.json.encode(body)
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    response: Response = await api.transport(token).send(
        Request(method, path, body=payload, content_type=kind if payload else None)
    )
    # Where no group is served any more, the answer is plain text, as a real server's.
    is_json = response.body.startswith(b"{")
    return response.status, msgspec.json.decode(response.body) if is_json else {}


async def test_system_namespaces_exist_from_the_start() -> None:
    async with embedded.running(clock=virtual_time.clock()) as (api, token):
        _, listed = await request(api, token, "GET", "/api/v1/namespaces")

    names = [one["metadata"]["name"] for one in listed["items"]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_a_full_disk_at_the_start_is_reported_with_advice() -> None:
    store, journal = stepped_store()
    tokens = Tokens.in_memory()
    api = embedded.build(store, tokens, clock=virtual_time.clock(), rng=random.Random(0)).api
    preparation = asyncio.ensure_future(embedded.prepare(api, tokens.issue(ADMIN, ADMIN_GROUPS)))
    async with asyncio.timeout(60):
        while not journal.waiting:
            await asyncio.sleep(0.01)
        journal.fail()

    with pytest.raises(BadConfiguration, match=r"the disk is full; free some disk space"):
        await preparation


async def test_a_request_without_a_valid_token_is_unauthorized() -> None:
    async with embedded.running(clock=virtual_time.clock()) as (api, _):
        code, response = await request(api, Secret("guess"), "GET", "/api/v1/namespaces")

    assert (code, response["reason"]) == (401, "Unauthorized")


async def test_installed_kind_is_defaulted_validated_and_served_at_once() -> None:
    async with embedded.running(clock=virtual_time.clock()) as (api, token):
        for manifest in our_kinds.manifests():
            code, response = await request(api, token, "POST", DEFINITIONS, manifest)
            assert code == 201, response
        pool = yaml.safe_load((ROOT / "examples/runnerpool.yaml").read_text())
        pool["spec"]["unknown"] = 1
        del pool["spec"]["rollout"]
        pools = "/apis/tuist.dev/v1alpha1/namespaces/default/runnerpools"
        broken = {**pool, "spec": {"image": 3}}

        code, made = await request(api, token, "POST", pools, pool)
        refused, error = await request(api, token, "POST", pools, broken)

    assert code == 201, made
    assert "unknown" not in made["spec"]
    assert made["spec"]["rollout"]["maxConcurrentPercent"] == 5
    assert refused == 422
    assert "spec.image" in {cause["field"] for cause in error["details"]["causes"]}


async def test_times_in_a_definition_come_from_the_given_clock() -> None:
    async with embedded.running(clock=virtual_time.clock()) as (api, token):
        await asyncio.sleep(timedelta(hours=5).total_seconds())
        _, made = await request(api, token, "POST", DEFINITIONS, our_kinds.manifests()[0])

    times = {one["lastTransitionTime"] for one in made["status"]["conditions"]}
    assert times == {"2026-01-01T05:00:00Z"}


async def test_kind_of_a_deleted_definition_is_no_longer_served() -> None:
    async with embedded.running(clock=virtual_time.clock()) as (api, token):
        manifest = our_kinds.manifests()[0]
        await request(api, token, "POST", DEFINITIONS, manifest)
        name = manifest["metadata"]["name"]
        path = "/apis/tuist.dev/v1alpha1/runnerpools"
        before, _ = await request(api, token, "GET", path)

        await request(api, token, "DELETE", f"{DEFINITIONS}/{name}")
        for _ in range(100):
            after, _ = await request(api, token, "GET", f"{DEFINITIONS}/{name}")
            if after == 404:
                break
            await asyncio.sleep(1)

        gone, _ = await request(api, token, "GET", path)

    assert (before, after, gone) == (200, 404, 404)


def test_same_seed_gives_the_same_uids() -> None:
    async def uids(seed: int) -> list[str]:
        async with embedded.running(clock=virtual_time.clock(), seed=seed) as (api, token):
            _, listed = await request(api, token, "GET", "/api/v1/namespaces")
        return [one["metadata"]["uid"] for one in listed["items"]]

    assert virtual_time.run(uids(1)) == virtual_time.run(uids(1))
    assert virtual_time.run(uids(1)) != virtual_time.run(uids(2))
