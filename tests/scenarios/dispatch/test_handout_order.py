"""The order of a hand-out: the claim is stored and the Pod is stamped before GitHub registers a runner."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from bramley.api.names import labels
from bramley.api.names.finalizers import VM_CLEANUP
from bramley.api.pod import Pod
from bramley.dispatch.handout import HandedOut
from bramley.dispatch.pod_view import PolledPod
from bramley.kube.transport import Request, Response
from tests.dispatch_world import POOL, DispatchWorld, a_dispatch_world
from tests.scenarios.world import NAMESPACE


@dataclass(slots=True)
class Observed:
    """Requests of the server; before each registration of a runner, what is stored and stamped at that moment."""

    inner: Any
    world: DispatchWorld
    seen: list[tuple[bool, bool]] = field(default_factory=list)

    async def send(self, request: Request) -> Response:
        if request.path.endswith("/generate-jitconfig"):
            pod = (await self.world.kube.list(Pod, namespace=NAMESPACE)).items[0]
            claim = await self.world.store.find_claim(pod.uid)
            is_stored = claim is not None and claim.stamped_at is not None
            self.seen.append((is_stored, labels.RUNNER_POOL_OWNER in pod.metadata.labels))
        response: Response = await self.inner.send(request)
        return response

    def stream(self, request: Request) -> Any:
        return self.inner.stream(request)

    async def close(self) -> None:
        await self.inner.close()


async def test_runner_is_registered_after_the_claim_and_the_stamp(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:
        transports: list[Observed] = []

        def observe(transport: Any) -> Observed:
            transports.append(Observed(transport, world))
            return transports[-1]

        world.wrap = observe
        await world.start()
        token = await world.a_token(await world.a_pod())
        idle = await world.poll(token)
        world.queue_job()
        await asyncio.sleep(1)
        served = await world.poll(token)

    assert (idle.status, served.status) == (204, 200)
    assert [seen for each in transports for seen in each.seen] == [(True, True)]


@dataclass(slots=True)
class Interrupted:
    """Requests of the server; something else happens before or after the first stamp of a Pod, or before its removal."""

    inner: Any
    before_stamp: Callable[[], Awaitable[object]] | None = None
    after_stamp: Callable[[], Awaitable[object]] | None = None
    before_clear: Callable[[], Awaitable[object]] | None = None
    refused_runners: int = 0

    async def send(self, request: Request) -> Response:
        is_owner = request.method == "PATCH" and labels.RUNNER_POOL_OWNER.encode() in (
            request.body or b""
        )
        is_clear = is_owner and b"null" in (request.body or b"")
        if request.path.endswith("/generate-jitconfig") and self.refused_runners:
            self.refused_runners -= 1
            return Response(403, {}, b"{}")
        if is_clear and self.before_clear is not None:
            act, self.before_clear = self.before_clear, None
            await act()
        if is_owner and not is_clear and self.before_stamp is not None:
            act, self.before_stamp = self.before_stamp, None
            await act()
        response: Response = await self.inner.send(request)
        if is_owner and not is_clear and self.after_stamp is not None:
            act, self.after_stamp = self.after_stamp, None
            await act()
        return response

    def stream(self, request: Request) -> Any:
        return self.inner.stream(request)

    async def close(self) -> None:
        await self.inner.close()


async def test_the_label_stays_if_another_replica_continues_with_the_claim(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:

        async def stamp() -> None:
            claim = await world.store.find_claim(pod.uid)
            assert claim is not None
            assert await world.store.stamp(claim.handle, "runner-of-the-other", world.clock.now())

        world.wrap = lambda transport: Interrupted(transport, after_stamp=stamp)
        await world.start()
        pod = await world.a_pod()
        world.queue_job()
        await asyncio.sleep(1)
        polled = await world.poll(await world.a_token(pod))
        found = await world.kube.get(Pod, pod.name, namespace=NAMESPACE)

    assert polled.status == 204
    assert labels.RUNNER_POOL_OWNER in found.metadata.labels


async def test_the_label_of_a_claim_that_another_replica_made_meanwhile_stays(
    tmp_path: Path,
) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:
        served: list[HandedOut | None] = []

        async def claim_again() -> None:
            # The replica whose hand-out failed has blocked the account in its own memory only.
            other = dataclasses.replace(
                world.dispatcher.polls.handouts, kube=world.kube, blocks={}, _tasks={}, _checked={}
            )
            stamped = await world.kube.get(Pod, pod.name, namespace=NAMESPACE)
            served.append(await other.offer(PolledPod(stamped, POOL)))

        world.wrap = lambda transport: Interrupted(
            transport, before_clear=claim_again, refused_runners=1
        )
        await world.start()
        pod = await world.a_pod()
        world.queue_job()
        await asyncio.sleep(1)
        polled = await world.poll(await world.a_token(pod))
        found = await world.kube.get(Pod, pod.name, namespace=NAMESPACE)

    assert (polled.status, [job is not None for job in served]) == (204, [True])
    assert labels.RUNNER_POOL_OWNER in found.metadata.labels


async def test_a_pod_that_is_deleted_before_its_stamp_gets_no_job(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:

        async def delete() -> None:
            # Its agent's finalizer keeps the Pod while the VM stops.
            patch = {"metadata": {"finalizers": [VM_CLEANUP]}}
            await world.kube.merge_patch(Pod, pod.name, patch, namespace=NAMESPACE)
            await world.kube.delete(Pod, pod.name, namespace=NAMESPACE, grace=timedelta())

        world.wrap = lambda transport: Interrupted(transport, before_stamp=delete)
        await world.start()
        pod = await world.a_pod()
        job = world.queue_job()
        await asyncio.sleep(1)
        polled = await world.poll(await world.a_token(pod))
        again = await world.poll(await world.a_token(await world.a_pod()))

    assert (polled.status, again.status) == (204, 200)
    assert msgspec.json.decode(again.body)["workflow_job_id"] == job.id
