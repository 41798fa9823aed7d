"""The order of a hand-out: the claim is stored and the Pod is stamped before GitHub registers a runner."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.kube.transport import Request, Response
from tests.dispatch_world import DispatchWorld, a_dispatch_world
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
