"""Hostile guests and senders: each is refused or bounded and counted, another Pod still gets its job, and no credential is logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from bramley.api.core import Namespace, ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.names import dispatch as names
from bramley.api.names import labels as api_labels
from bramley.api.names import metrics
from bramley.api.pod import Container, Pod, PodSpec
from bramley.base import log
from bramley.base.secret import Secret
from bramley.dispatch.store.records import JobFilter
from bramley.github import webhook_signatures
from bramley.kube.transport import Response
from tests.dispatch_world import IMAGE, LONG_POLL, SECRET, DispatchWorld, a_dispatch_world
from tests.scenarios.world import NAMESPACE

ESCAPE = "\x1b[2J\u202e<script>alert(1)</script>"


def count(world: DispatchWorld, metric: metrics.Metric, *values: str) -> float:
    labels = dict(zip(metric.labels, values, strict=True))
    return world.dispatcher.registry.get_sample_value(metric.name, labels) or 0


def refusals(world: DispatchWorld, endpoint: str, reason: str) -> float:
    return count(world, metrics.REFUSED_REQUEST, endpoint, reason)


@asynccontextmanager
async def a_world(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[tuple[DispatchWorld, Secret]]:
    """Run the world with the token of a hostile Pod; afterwards another Pod gets a job, and no credential was logged."""
    caplog.set_level(logging.DEBUG)
    async with a_dispatch_world(folder) as world:
        hostile = await world.a_token(await world.a_pod())
        yield world, hostile
        honest = await world.a_token(await world.a_pod())
        world.queue_job(owner="jane", name="dotfiles")
        await asyncio.sleep(1)
        served = await world.poll(honest)
        assert served.status == 200, served.body
        jit = msgspec.json.decode(served.body)["encoded_jit_config"]
        formatter = log.JsonLines()
        lines = "\n".join(formatter.format(record) for record in caplog.records)
        assert lines, "nothing was logged, so nothing was checked"
        for canary in (hostile.reveal(), honest.reveal(), jit, SECRET.reveal()):
            assert canary not in lines


async def a_foreign_token(world: DispatchWorld, namespace: str) -> Secret:
    """Return a token with our audience that is bound to a Pod of another namespace."""
    await world.kube.create(Namespace(metadata=ObjectMeta(name=namespace)))
    metadata = ObjectMeta(name="macos-runner-0001", namespace=namespace)
    await world.kube.create(ServiceAccount(metadata=metadata))
    spec = PodSpec(
        containers=[Container(name="runner", image=IMAGE)], service_account_name=metadata.name
    )
    pod = await world.kube.create(Pod(metadata=metadata, spec=spec))
    issued = await world.kube.request_token(
        metadata.name,
        namespace,
        audiences=[names.TOKEN_AUDIENCE],
        expires=timedelta(hours=1),
        bound_to=pod,
    )
    return issued.token


async def test_token_of_another_namespace_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path, caplog) as (world, _):
        response = await world.poll(await a_foreign_token(world, "elsewhere"))

        assert response.status == 401
        assert count(world, metrics.DISPATCH_REQUEST, "", "unauthorized") == 1
        assert refusals(world, "dispatch", "Unauthorized") == 1


async def test_token_that_is_bound_to_no_pod_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path, caplog) as (world, _):
        issued = await world.kube.request_token(
            "macos-runner-0001",
            NAMESPACE,
            audiences=[names.TOKEN_AUDIENCE],
            expires=timedelta(hours=1),
        )

        assert (await world.poll(issued.token)).status == 401
        assert refusals(world, "dispatch", "Unauthorized") == 1


async def test_pod_cannot_use_the_name_of_another_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path, caplog) as (world, hostile):
        victim = await world.a_pod()
        world.queue_job()
        await asyncio.sleep(1)
        claims = ((names.POD_NAME_HEADER, victim.name), (names.POD_UID_HEADER, victim.uid))
        body = msgspec.json.encode({"pod_name": victim.name})
        response = await world.send(token=hostile, headers=claims, body=body)

        # The job is the hostile Pod's own; the named one has none.
        assert response.status == 200
        assert await world.store.find_claim(victim.uid) is None


async def test_expired_token_is_refused_although_it_was_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path, caplog) as (world, hostile):
        assert (await world.poll(hostile)).status == 204
        await asyncio.sleep(timedelta(hours=9).total_seconds())

        assert (await world.poll(hostile)).status == 401
        assert refusals(world, "dispatch", "Unauthorized") == 1


async def test_token_replayed_for_a_pod_of_the_same_name_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path, caplog) as (world, hostile):
        assert (await world.poll(hostile)).status == 204
        old = await world.kube.get(Pod, "macos-runner-0001", namespace=NAMESPACE)
        await world.kube.delete(Pod, old.name, namespace=NAMESPACE, grace=timedelta())
        metadata = ObjectMeta(name=old.name, namespace=NAMESPACE, labels=old.metadata.labels)
        await world.kube.create(Pod(metadata=metadata, spec=old.spec))
        await asyncio.sleep(1)

        assert (await world.poll(hostile)).status == 401


async def test_replayed_token_gives_the_same_job_and_no_second_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path, caplog) as (world, hostile):
        for _ in range(3):
            world.queue_job()
        await asyncio.sleep(1)
        responses = await asyncio.gather(*(world.poll(hostile) for _ in range(50)))

        assert {each.status for each in responses} == {200}
        assert len({each.body for each in responses}) == 1
        assert len(await world.store.live_claims()) == 1


async def test_invented_tokens_are_not_reviewed_again_and_displace_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path, caplog) as (world, hostile):
        assert (await world.poll(hostile)).status == 204
        tokens = [Secret(f"invented-{number}") for number in range(200)]
        responses = await asyncio.gather(*(world.poll(each) for each in tokens * 2))

        assert {each.status for each in responses} == {401}
        assert refusals(world, "dispatch", "Unauthorized") == 400
        assert (await world.poll(hostile)).status == 204


async def test_thousands_of_polls_of_one_pod_hold_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path, caplog) as (world, hostile):
        polls = [asyncio.ensure_future(world.poll(hostile, LONG_POLL)) for _ in range(3000)]
        await asyncio.sleep(5)

        assert world.dispatcher.polls.held == 1
        assert sum(each.done() for each in polls) == 2999
        assert {(await each).status for each in polls} == {204}
        assert count(world, metrics.DISPATCH_REQUEST, "macos", "empty") == 3000


async def test_invented_pools_of_pods_are_no_values_of_metrics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path, caplog) as (world, hostile):
        for number in range(3):
            patch = {"metadata": {"labels": {api_labels.RUNNER_POOL: f"invented-{number}"}}}
            await world.kube.merge_patch(Pod, "macos-runner-0001", patch, namespace=NAMESPACE)
            await asyncio.sleep(1)
            assert (await world.poll(hostile)).status == 204

        assert count(world, metrics.DISPATCH_REQUEST, "", "empty") == 3
        assert b"invented" not in generate_latest(world.dispatcher.registry)


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ((("X-Padding", "x" * 20_000),), 413, "TooLarge"),
        (tuple((f"X-{number}", "x" * 100) for number in range(200)), 413, "TooLarge"),
        ((("Authorization", "Bearer other"),), 400, "BadRequest"),
        ((("Prefer", "wait=1"), ("Prefer", "wait=2")), 400, "BadRequest"),
        ((("Content-Length", "5"),), 400, "BadRequest"),
    ],
    ids=["huge", "many", "two tokens", "two preferences", "two lengths"],
)
async def test_duplicate_and_huge_headers_are_refused(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    headers: tuple[tuple[str, str], ...],
    status: int,
    reason: str,
) -> None:
    async with a_world(tmp_path, caplog) as (world, hostile):
        assert (await world.send(token=hostile, headers=headers)).status == status
        assert refusals(world, "dispatch", reason) == 1


async def test_token_that_is_too_long_is_not_reviewed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path, caplog) as (world, _):
        response = await world.poll(Secret("x" * 9000))

        assert (response.status, response.body) == (401, b'{"error":"the token is too long"}')


@pytest.mark.parametrize(
    ("path", "limit"), [(names.DISPATCH_PATH, 4 * 1024), (names.POD_STOPPED_PATH, 16 * 1024)]
)
async def test_body_that_is_too_large_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str, limit: int
) -> None:
    async with a_world(tmp_path, caplog) as (world, hostile):
        token = hostile if path == names.DISPATCH_PATH else world.world.token
        response = await world.send(path, token=token, body=b" " * (limit + 1))

        assert response.status == 413
        endpoint = "dispatch" if path == names.DISPATCH_PATH else "pod_stopped"
        assert refusals(world, endpoint, "TooLarge") == 1


async def sent_slowly(
    world: DispatchWorld, path: str, headers: dict[str, str], pause: float
) -> tuple[int, float]:
    """Send one byte after each pause without an end and without a length; return the status and the seconds until it came."""
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(pause)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    start = world.clock.monotonic()
    await world.dispatcher.application(scope, receive, send)
    return statuses[0], world.clock.monotonic() - start


@pytest.mark.parametrize("path", [names.DISPATCH_PATH, names.WEBHOOK_PATH])
async def test_slow_body_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    async with a_world(tmp_path, caplog) as (world, hostile):
        headers = {
            "Authorization": f"Bearer {hostile.reveal()}",
            names.SIGNATURE_HEADER: "sha256=" + "0" * 64,
        }
        sent = await asyncio.gather(*(sent_slowly(world, path, headers, 0.5) for _ in range(50)))

        assert {status for status, _ in sent} == {408}
        assert max(seconds for _, seconds in sent) < 6
        endpoint = "dispatch" if path == names.DISPATCH_PATH else "receive"
        assert refusals(world, endpoint, "TooSlow") == 50


async def test_body_without_a_length_is_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path, caplog) as (world, hostile):
        headers = {"Authorization": f"Bearer {hostile.reveal()}"}
        status, _ = await sent_slowly(world, names.DISPATCH_PATH, headers, 0)

        assert status == 413


async def deliver(
    world: DispatchWorld, body: bytes, *, secret: Secret | None = SECRET, guid: str = "1"
) -> Response:
    headers = [("X-GitHub-Event", "workflow_job"), ("X-GitHub-Delivery", guid)]
    if secret is not None:
        headers.append((names.SIGNATURE_HEADER, webhook_signatures.signature(body, secret)))
    response = await world.send(names.WEBHOOK_PATH, body=body, headers=tuple(headers))
    await asyncio.sleep(1)
    return response


def an_event(*, labels: tuple[str, ...] = ("tuist-macos",), text: str = "build") -> bytes:
    job = {
        "id": 77,
        "run_id": 7,
        "labels": labels,
        "name": text,
        "workflow_name": text,
        "head_branch": text,
    }
    repository = {"full_name": "acme/app", "owner": {"login": "acme"}}
    return msgspec.json.encode({"action": "queued", "workflow_job": job, "repository": repository})


@pytest.mark.parametrize(
    ("secret", "status", "outcome"),
    [(None, 401, "unsigned"), (Secret("another secret"), 403, "bad_signature")],
    ids=["unsigned", "another secret"],
)
async def test_webhook_without_our_signature_is_refused(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    secret: Secret | None,
    status: int,
    outcome: str,
) -> None:
    async with a_world(tmp_path, caplog) as (world, _):
        response = await deliver(world, an_event(), secret=secret)

        assert response.status == status
        assert count(world, metrics.WEBHOOK, "", outcome) == 1
        assert await world.store.jobs(JobFilter()) == ()


async def test_names_of_jobs_are_cleaned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with a_world(tmp_path, caplog) as (world, _):
        assert (await deliver(world, an_event(text=ESCAPE + "x" * 10_000))).status == 200
        shown = await world.send("/api/v1/jobs/77", method="GET", token=world.world.token)
        job = msgspec.json.decode(shown.body)

        for field in ("name", "workflow", "branch"):
            assert job[field].startswith("\ufffd[2J\ufffd<script>")
            assert len(job[field]) == 512
        assert shown.headers["content-type"] == "application/json"
        await world.store.cancel(77, world.clock.now())


async def test_labels_with_control_characters_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path, caplog) as (world, _):
        assert (await deliver(world, an_event(labels=("tuist-macos", ESCAPE)))).status == 200

        assert await world.store.jobs(JobFilter()) == ()
        assert count(world, metrics.WEBHOOK, "", "invalid") == 1
        assert not any("\x1b" in record.getMessage() for record in caplog.records)


async def test_flood_of_one_account_does_not_delay_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path, caplog) as (world, hostile):
        for _ in range(500):
            world.queue_job()
        await asyncio.sleep(10)
        assert (await world.poll(hostile)).status == 200
        # The next free Pod is that of the other account's single job.
        pod = await world.a_pod()
        late = world.queue_job(owner="jane", name="dotfiles")
        await asyncio.sleep(1)
        response = await world.poll(await world.a_token(pod))

        assert msgspec.json.decode(response.body)["workflow_job_id"] == late.id
