"""The rows of the contract with guests: what precedes a poll, and its exact answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from bramley.api.core import ServiceAccount
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.kube.transport import Response
from tests.dispatch_world import IMAGE, POOL, DispatchWorld
from tests.scenarios.world import NAMESPACE

OLD_IMAGE = "ghcr.io/example/runner:0"
JOB = '{"encoded_jit_config":"<jit>","owner":"acme","workflow_job_id":<job>}'
NO_TOKEN = '{"error":"the request has no bearer token"}'
NOT_A_RUNNER = '{"error":"the token is not one of a runner Pod"}'

Ask = Callable[[DispatchWorld], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Row:
    """A request with what precedes it, and its answer; `headers` are those beside the two of a JSON body."""

    name: str
    ask: Ask
    status: int
    body: str = ""
    headers: Mapping[str, str] | None = None


def poll(
    *,
    image: str = IMAGE,
    extra: Mapping[str, str] | None = None,
    jobs: int = 0,
    polls: int = 1,
    **request: Any,
) -> Ask:
    """Poll with the token of a new Pod, several times; the last answer counts."""

    async def ask(world: DispatchWorld) -> Response:
        token = await world.a_token(await world.a_pod(image=image, extra=extra))
        for _ in range(jobs):
            world.queue_job()
        await asyncio.sleep(1)
        for _ in range(polls - 1):
            await world.send(token=token, **request)
        return await world.send(token=token, **request)

    return ask


def poll_with(authorization: str) -> Ask:
    async def ask(world: DispatchWorld) -> Response:
        token = await world.a_token(await world.a_pod())
        header = authorization.replace("TOKEN", token.reveal())
        return await world.send(headers=(("Authorization", header),))

    return ask


async def poll_without_a_token(world: DispatchWorld) -> Response:
    return await world.send()


async def poll_with_the_audience_of_the_api(world: DispatchWorld) -> Response:
    audience = "https://kubernetes.default.svc"
    return await world.send(token=await world.a_token(await world.a_pod(), audience=audience))


async def poll_as_a_person(world: DispatchWorld) -> Response:
    return await world.send(token=world.world.token)


def poll_after_deletion(kind: type[Pod | ServiceAccount]) -> Ask:
    async def ask(world: DispatchWorld) -> Response:
        pod = await world.a_pod()
        token = await world.a_token(pod)
        await world.send(token=token)
        await world.kube.delete(kind, pod.name, namespace=NAMESPACE, grace=timedelta())
        await asyncio.sleep(1)
        return await world.send(token=token)

    return ask


async def poll_while_the_pod_is_deleted(world: DispatchWorld) -> Response:
    pod = await world.a_pod()
    # The agent keeps the Pod until its VM has stopped; the guest polls meanwhile.
    patch = {"metadata": {"finalizers": ["example.com/agent"]}}
    await world.kube.merge_patch(Pod, pod.name, patch, namespace=NAMESPACE)
    await world.kube.delete(Pod, pod.name, namespace=NAMESPACE)
    world.queue_job()
    await asyncio.sleep(1)
    return await world.send(token=await world.a_token(pod))


async def poll_of_no_pool(world: DispatchWorld) -> Response:
    pod = await world.a_pod()
    patch = {"metadata": {"labels": {labels.RUNNER_POOL: None}}}
    await world.kube.merge_patch(ServiceAccount, pod.name, patch, namespace=NAMESPACE)
    await asyncio.sleep(1)
    return await world.send(token=await world.a_token(pod))


async def poll_without_a_pool_object(world: DispatchWorld) -> Response:
    token = await world.a_token(await world.a_pod(extra={labels.DRAIN_ELIGIBLE: labels.TRUE}))
    await world.kube.delete(RunnerPool, POOL, namespace=NAMESPACE)
    await asyncio.sleep(1)
    return await world.send(token=token)


async def poll_after_the_runner_was_online(world: DispatchWorld) -> Response:
    token = await world.a_token(await world.a_pod())
    world.queue_job(seconds=600)
    await asyncio.sleep(1)
    response = await world.send(token=token)
    jit = msgspec.json.decode(response.body)["encoded_jit_config"]
    world.guests["guest"] = world.group.create_task(run_job(world, jit))
    await asyncio.sleep(30)
    return await world.send(token=token)


async def run_job(world: DispatchWorld, jit: str) -> None:
    await world.github.actions.run_runner(jit)


POLLS = (
    Row("an idle Pod", poll(), 204),
    Row("a body is ignored", poll(body=b'{"job":1}'), 204),
    Row("no body", poll(body=b""), 204),
    Row("a queued job", poll(jobs=1), 200, JOB),
    Row("lower-case scheme", poll_with("bearer TOKEN"), 204),
    Row("the same job until the runner is online", poll(jobs=2, polls=3), 200, JOB),
    Row("a stale image alone", poll(image=OLD_IMAGE), 204),
    Row("a stale image with a queued job", poll(image=OLD_IMAGE, jobs=1), 200, JOB),
    Row(
        "a stale image that is drain-eligible",
        poll(image=OLD_IMAGE, extra={labels.DRAIN_ELIGIBLE: labels.TRUE}, jobs=1),
        410,
        '{"error":"drain","reason":"image stale"}',
    ),
    Row("drain-eligible alone", poll(extra={labels.DRAIN_ELIGIBLE: labels.TRUE}), 204),
    Row(
        "an operator drain",
        poll(extra={labels.OPERATOR_DRAIN: labels.TRUE}, jobs=1),
        410,
        '{"error":"drain","reason":"operator drain"}',
    ),
    Row("a drain label that is not true", poll(extra={labels.OPERATOR_DRAIN: "false"}), 204),
    Row(
        "a Pod whose runner was online",
        poll_after_the_runner_was_online,
        410,
        '{"error":"drain","reason":"pod already committed"}',
    ),
    Row(
        "a Pod that is being deleted",
        poll_while_the_pod_is_deleted,
        410,
        '{"error":"drain","reason":"pod ended"}',
    ),
    Row("an unknown pool", poll_without_a_pool_object, 204),
    Row("no token", poll_without_a_token, 401, NO_TOKEN),
    Row("an empty token", poll_with("Bearer "), 401, NO_TOKEN),
    Row("another scheme", poll_with("Basic TOKEN"), 401, NO_TOKEN),
    Row("an invalid token", poll_with("Bearer TOKENx"), 401, NOT_A_RUNNER),
    Row("another audience", poll_with_the_audience_of_the_api, 401, NOT_A_RUNNER),
    Row("the token of a person", poll_as_a_person, 401, NOT_A_RUNNER),
    Row(
        "a deleted Pod",
        poll_after_deletion(Pod),
        401,
        '{"error":"Pod macos-runner-0001 does not exist"}',
    ),
    Row(
        "a deleted ServiceAccount",
        poll_after_deletion(ServiceAccount),
        401,
        '{"error":"ServiceAccount macos-runner-0001 does not exist"}',
    ),
    Row(
        "a ServiceAccount without a pool",
        poll_of_no_pool,
        401,
        '{"error":"the ServiceAccount macos-runner-0001 belongs to no pool"}',
    ),
    Row("another method", poll(method="GET"), 405, "Method Not Allowed", {"allow": "POST"}),
    Row(
        "a long poll",
        poll(headers=(("Prefer", "wait=20"),)),
        204,
        headers={"preference-applied": "wait=20"},
    ),
    Row(
        "a long poll beyond the limit",
        poll(headers=(("Prefer", "respond-async, wait=999"),)),
        204,
        headers={"preference-applied": "wait=50"},
    ),
    Row("a long poll with a job", poll(jobs=1, headers=(("Prefer", "wait=20"),)), 200, JOB),
    Row("an unknown preference", poll(headers=(("Prefer", "wait=soon"),)), 204),
)
