"""A guest of existing images exits at 401 and 403: only its own token or Pod may cause them, never trouble between dispatch and the API server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bramley.api.names import dispatch as names
from bramley.api.pod import Pod
from bramley.kube.transport import Request, Response
from tests.dispatch_world import POOL, DispatchWorld, a_dispatch_world
from tests.scenarios.world import NAMESPACE


@dataclass(slots=True)
class Outage:
    """The API server; while `status` is set, it answers so to requests of paths with this part."""

    inner: Any
    control: Control

    async def send(self, request: Request) -> Response:
        if self.control.status and self.control.part in request.path:
            return Response(self.control.status, {}, b"{}")
        response: Response = await self.inner.send(request)
        return response

    def stream(self, request: Request) -> Any:
        return self.inner.stream(request)

    async def close(self) -> None:
        await self.inner.close()


@dataclass(slots=True)
class Control:
    part: str
    status: int = 0


async def a_broken_world(world: DispatchWorld, part: str) -> Control:
    control = Control(part)
    world.wrap = lambda transport: Outage(transport, control)
    await world.start()
    return control


STATUSES = pytest.mark.parametrize("status", [400, 401, 403, 409, 422, 429, 500, 503])


@STATUSES
async def test_failed_review_is_no_refusal_of_the_guest(tmp_path: Path, status: int) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:
        control = await a_broken_world(world, "/tokenreviews")
        token = await world.a_token(await world.a_pod())
        control.status = status
        assert (await world.poll(token)).status == 503

        control.status = 0
        assert (await world.poll(token)).status == 204


@STATUSES
async def test_failed_review_is_no_refusal_of_the_controller(tmp_path: Path, status: int) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:
        control = await a_broken_world(world, "accessreviews")
        control.status = status
        response = await world.send(
            names.DESIRED_REPLICAS_PATH,
            method="GET",
            token=world.world.token,
            query={"fleet": POOL},
        )

        assert response.status == 503


@STATUSES
async def test_failed_lookup_of_a_pod_is_no_refusal_of_the_guest(
    tmp_path: Path, status: int
) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:
        control = await a_broken_world(world, "/pods/")
        pod = await world.a_pod()
        token = await world.a_token(pod)
        assert (await world.poll(token)).status == 204
        # Now only the API server knows whether the Pod exists.
        await world.kube.delete(Pod, pod.name, namespace=NAMESPACE, grace=timedelta())
        await asyncio.sleep(1)
        control.status = status

        assert (await world.poll(token)).status == 503
