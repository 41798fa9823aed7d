"""The endpoints of people: who may read and change jobs, what is refused, and what the answers contain."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bramley.api.meta import ObjectMeta
from bramley.api.rbac import GROUP, PolicyRule, Role, RoleBinding, RoleRef, Subject
from bramley.api.runner_pool import RunnerPool
from bramley.base.secret import Secret
from bramley.dispatch.accounts import Accounts, AccountsFile
from bramley.kube.transport import Response
from tests.dispatch_world import DispatchWorld, a_dispatch_world
from tests.scenarios.world import NAMESPACE

JOBS = "/api/v1/jobs"


async def a_person(world: DispatchWorld, *verbs: str) -> Secret:
    """Return the token of a user with these rights on the pools of the namespace."""
    name = "-".join(("user", *verbs))
    metadata = ObjectMeta(name=name, namespace=NAMESPACE)
    resource = RunnerPool.resource
    rule = PolicyRule(verbs=list(verbs), api_groups=[resource.group], resources=[resource.plural])
    await world.kube.create(Role(metadata=metadata, rules=[rule]))
    binding = RoleBinding(
        metadata=metadata,
        role_ref=RoleRef(api_group=GROUP, kind="Role", name=name),
        subjects=[Subject(kind="User", name=name, api_group=GROUP)],
    )
    await world.kube.create(binding)
    return world.world.api.tokens.issue(name)


async def ask(
    world: DispatchWorld,
    path: str,
    query: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    token: Secret | None = None,
) -> Response:
    """Send a request as an administrator, or with another token."""
    token = token or world.world.token
    return await world.send(path, method=method, token=token, query=query, body=b"")


async def get(world: DispatchWorld, path: str, **query: str) -> Any:
    response = await ask(world, path, query)
    assert response.status == 200, response.body
    return msgspec.json.decode(response.body)


async def a_claimed_job(world: DispatchWorld) -> int:
    token = await world.a_token(await world.a_pod())
    job = world.queue_job()
    await asyncio.sleep(1)
    assert (await world.poll(token)).status == 200
    return job.id


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", JOBS),
        ("GET", f"{JOBS}/export"),
        ("GET", f"{JOBS}/JOB"),
        ("GET", f"{JOBS}/JOB/explanation"),
        ("GET", f"{JOBS}/JOB/log"),
        ("POST", f"{JOBS}/JOB/cancel"),
        ("POST", f"{JOBS}/JOB/requeue"),
    ],
)
async def test_rights_on_pools_decide(tmp_path: Path, method: str, path: str) -> None:
    async with a_dispatch_world(tmp_path) as world:
        job = await a_claimed_job(world)
        path = path.replace("JOB", str(job))
        guest = await world.a_token(await world.a_pod())
        statuses = [
            (await world.send(path, method=method, body=b"")).status,
            (await ask(world, path, method=method, token=guest)).status,
            (await ask(world, path, method=method, token=await a_person(world, "list"))).status,
            (await ask(world, path, method=method, token=await a_person(world, "get"))).status,
        ]

        # No log is kept of this job.
        readable = 404 if path.endswith("/log") else 200
        assert statuses == [401, 401, 403, readable if method == "GET" else 403]
        if method == "POST":
            assert (await world.store.timeline(job)).job.state == "claimed"
            updater = await a_person(world, "update")
            assert (await ask(world, path, method=method, token=updater)).status == 200


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            {"state": "lost"},
            "the parameter state must be one of waiting, queued, claimed, running, completed, cancelled",
        ),
        ({"limit": "-1"}, "the parameter limit is no number"),
        ({"pool": "mac\0os"}, "the parameter pool has control characters"),
        ({"limit": "٣"}, "the parameter limit is no number"),
        ({"before": "9" * 5000}, "the parameter before is no number"),
    ],
    ids=["state", "negative", "control character", "other digits", "huge"],
)
async def test_bad_parameter_of_a_list_is_named(
    tmp_path: Path, query: dict[str, str], message: str
) -> None:
    async with a_dispatch_world(tmp_path) as world:
        response = await ask(world, JOBS, query)

        assert (response.status, msgspec.json.decode(response.body)) == (400, {"error": message})


@pytest.mark.parametrize("name", ["1", "abc", "-1", "9" * 30, "1%00", "1;drop"])
async def test_unknown_job_is_not_found(tmp_path: Path, name: str) -> None:
    async with a_dispatch_world(tmp_path) as world:
        for method, suffix in (("GET", ""), ("GET", "/explanation"), ("POST", "/cancel")):
            response = await ask(world, f"{JOBS}/{name}{suffix}", method=method)
            assert response.status == 404
            assert "error" in msgspec.json.decode(response.body)


async def test_list_is_filtered_and_paged(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path) as world:
        mine = [world.queue_job().id for _ in range(3)]
        other = world.queue_job(owner="jane", name="dotfiles").id
        await asyncio.sleep(1)

        async def ids(**query: str) -> list[int]:
            return [job["id"] for job in (await get(world, JOBS, **query))["jobs"]]

        assert await ids() == sorted([*mine, other], reverse=True)
        assert await ids(account="JANE") == [other]
        assert await ids(pool="macos", limit="2", before=str(other)) == [mine[2], mine[1]]
        assert await ids(state="running") == []
        assert await ids(limit="0") == []


async def test_cancelled_job_is_not_handed_out_and_cannot_be_cancelled_again(
    tmp_path: Path,
) -> None:
    async with a_dispatch_world(tmp_path) as world:
        job = world.queue_job().id
        await asyncio.sleep(1)
        response = await ask(world, f"{JOBS}/{job}/cancel", method="POST")
        again = await ask(world, f"{JOBS}/{job}/cancel", method="POST")
        token = await world.a_token(await world.a_pod())

        assert msgspec.json.decode(response.body)["state"] == "cancelled"
        assert (again.status, again.body.decode()) == (
            409,
            f'{{"error":"job {job} has ended: cancelled"}}',
        )
        assert (await world.poll(token)).status == 204


async def test_requeued_job_goes_to_another_pod(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path) as world:
        job = await a_claimed_job(world)
        response = await ask(world, f"{JOBS}/{job}/requeue", method="POST")
        again = await ask(world, f"{JOBS}/{job}/requeue", method="POST")
        token = await world.a_token(await world.a_pod())
        served = await world.poll(token)

        assert msgspec.json.decode(response.body)["state"] == "queued"
        assert again.status == 409
        assert msgspec.json.decode(served.body)["workflow_job_id"] == job


async def test_running_job_is_not_requeued(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path) as world:
        job = world.queue_job(seconds=600)
        world.boot(await world.a_pod())
        await asyncio.sleep(60)

        response = await ask(world, f"{JOBS}/{job.id}/requeue", method="POST")

        assert response.status == 409
        assert "cancel its run at GitHub" in response.body.decode()
        assert (await world.store.timeline(job.id)).job.state == "running"


async def test_export_has_every_job_in_both_forms(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path) as world:
        jobs = [world.queue_job().id for _ in range(3)]
        await asyncio.sleep(1)
        table = await ask(world, f"{JOBS}/export", {"format": "csv"})
        lines = await ask(world, f"{JOBS}/export", {"format": "json"})
        later = await ask(
            world, f"{JOBS}/export", {"format": "json", "since": "2027-01-01T00:00:00Z"}
        )

        rows = list(csv.DictReader(io.StringIO(table.body.decode())))
        assert [int(row["id"]) for row in rows] == jobs
        assert table.headers["content-type"] == "text/csv; charset=utf-8"
        assert [msgspec.json.decode(line)["id"] for line in lines.body.splitlines()] == jobs
        assert lines.headers["content-type"] == "application/x-ndjson"
        assert later.body == b""


@pytest.mark.parametrize("query", [{"format": "xml"}, {"since": "yesterday"}, {"since": ""}])
async def test_bad_parameter_of_an_export_is_refused(tmp_path: Path, query: dict[str, str]) -> None:
    async with a_dispatch_world(tmp_path) as world:
        assert (await ask(world, f"{JOBS}/export", query)).status == 400


async def test_explanation_names_both_pools_that_match(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path) as world:
        await world.a_pool("twin")
        await asyncio.sleep(1)
        job = world.queue_job().id
        await asyncio.sleep(1)
        explained = await get(world, f"{JOBS}/{job}/explanation")

        assert "the pools macos and twin both match" in explained["message"]


async def test_alias_selects_its_pool(tmp_path: Path) -> None:
    aliases = AccountsFile(aliases={"Xcode-26": "macos"})
    async with a_dispatch_world(tmp_path, accounts=aliases) as world:
        job = world.queue_job(labels=("xcode-26", "ARM64")).id
        await asyncio.sleep(1)

        assert (await get(world, f"{JOBS}/{job}"))["pool"] == "macos"


async def test_job_gets_its_pool_when_the_accounts_file_gets_its_alias(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:
        file = tmp_path / "accounts.yaml"
        file.write_text("{}")
        world.accounts = Accounts.open(file)
        await world.start()
        job = world.queue_job(labels=("xcode-26",)).id
        await asyncio.sleep(1)
        assert (await get(world, f"{JOBS}/{job}"))["pool"] == ""

        file.write_text("aliases: {xcode-26: macos}")
        await asyncio.sleep(10)
        assert (await get(world, f"{JOBS}/{job}"))["pool"] == "macos"
