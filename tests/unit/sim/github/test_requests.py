"""Requests that GitHub would refuse or correct."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from bramley.kube.in_process import InProcessTransport
from bramley.kube.transport import Request, Response
from bramley.sim.github.application import application
from bramley.sim.github.github import SimulatedGitHub
from tests import github_keys, virtual_time
from tests.github_peer import simulated_github


async def answered(
    github: SimulatedGitHub, method: str, path: str, token: str = "", body: bytes | None = None
) -> Response:
    headers = (("Authorization", f"Bearer {token}"),)
    path, _, query = path.partition("?")
    parameters = dict(each.split("=") for each in query.split("&") if each)
    request = Request(method, path, query=parameters, body=body, headers=headers)
    return await InProcessTransport(application(github)).send(request)


@pytest.mark.parametrize("query", ["page=x", "page=0", "page=-1", "per_page=-1", "per_page=%3"])
async def test_invalid_page_is_the_first_one(query: str) -> None:
    github = simulated_github(virtual_time.clock())
    github.actions.register("/orgs/acme", "r-1", ["macos"], 1)
    token, _ = github.access.create_token(github.accounts["acme"])

    response = await answered(github, "GET", f"/orgs/acme/actions/runners?{query}", token)

    assert (response.status, b'"r-1"' in response.body) == (200, True)


async def test_invalid_cursor_is_the_first_page() -> None:
    github = simulated_github(virtual_time.clock())
    token = github_keys.credentials().token(github.clock.now()).reveal()

    response = await answered(github, "GET", "/app/hook/deliveries?cursor=v1_x", token)

    assert (response.status, response.body) == (200, b"[]")


@pytest.mark.parametrize("body", [b"\xff", b"{}", b'{"name": ' + b"[" * 200_000])
async def test_invalid_runner_is_refused(body: bytes) -> None:
    github = simulated_github(virtual_time.clock())
    token, _ = github.access.create_token(github.accounts["acme"])
    path = "/orgs/acme/actions/runners/generate-jitconfig"

    assert (await answered(github, "POST", path, token, body)).status == 422


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/sim/jobs", b'{"repository": "acme/app", "labels": ["x"], "seconds": 1e308}'),
        ("/sim/jobs", b'{"repository": "acme/app", "labels": ["x"], "seconds": -1}'),
        ("/sim/jobs", b'{"repository": "acme/app", "labels": ["x"], "name": ""}'),
        ("/sim/jobs", b"[" * 200_000),
        ("/sim/faults", b'{"kind": "latency", "seconds": -1}'),
        ("/sim/faults", b'{"kind": "status", "times": 0}'),
        ("/sim/faults", b'{"kind": "status", "status": 1000}'),
    ],
)
async def test_impossible_job_or_fault_is_refused(path: str, body: bytes) -> None:
    github = simulated_github(virtual_time.clock())

    assert (await answered(github, "POST", path, body=body)).status == 422


async def registration_status(
    github: SimulatedGitHub, token: str, url: str = "https://github.com/acme", **fields: object
) -> int:
    body = {"token": token, "url": url, "name": "builder", "labels": ["macos"], **fields}
    return (
        await answered(github, "POST", "/sim/registrations", body=json.dumps(body).encode())
    ).status


async def test_registration_needs_a_token_of_its_owner_that_has_not_expired() -> None:
    github = simulated_github(virtual_time.clock())
    organisation, expires_at = github.access.create_registration_token("/orgs/acme")
    repository, _ = github.access.create_registration_token("/repos/acme/app")
    assert expires_at == github.clock.now() + timedelta(hours=1)

    assert await registration_status(github, "AWRONG") == 404
    assert await registration_status(github, repository) == 404
    assert await registration_status(github, organisation, "https://github.com/jane") == 404
    assert await registration_status(github, organisation, "https://github.com/nobody") == 404
    assert await registration_status(github, organisation) == 200
    assert await registration_status(github, organisation, group="macs", replace=True) == 422
    assert await registration_status(github, repository, "https://github.com/acme/app") == 200
    assert await registration_status(github, organisation) == 409
    assert await registration_status(github, organisation, replace=True) == 200
    assert [each.owner for each in github.actions.runners.values()] == [
        "/repos/acme/app",
        "/orgs/acme",
    ]
    await asyncio.sleep(3600)
    assert await registration_status(github, organisation, replace=True) == 404


async def test_restored_registration_connects_with_its_configuration() -> None:
    before, after = (simulated_github(virtual_time.clock()) for _ in range(2))
    builder = before.actions.register("/orgs/acme", "builder", ["macos"], 1, is_ephemeral=False)
    before.actions.register("/orgs/acme", "r-1", ["macos"], 1)

    after.actions.restore(before.actions.registrations())

    assert [(each.name, each.is_online) for each in after.actions.runners.values()] == [
        ("builder", False)
    ]
    assert after.actions.connect(before.actions.jit_config(builder)).is_online
