"""How often the API server reviews the token of a guest that repeats its poll."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bramley.base.secret import Secret
from bramley.kube.transport import Request, Response
from tests.dispatch_world import a_dispatch_world


@dataclass(slots=True)
class CountedReviews:
    """The API server, with the times at which it reviewed tokens."""

    inner: Any
    at: list[float] = field(default_factory=list)

    async def send(self, request: Request) -> Response:
        if request.path.endswith("/tokenreviews"):
            self.at.append(asyncio.get_running_loop().time())
        response: Response = await self.inner.send(request)
        return response

    def stream(self, request: Request) -> Any:
        return self.inner.stream(request)

    async def close(self) -> None:
        await self.inner.close()


async def test_repeating_a_refused_token_neither_costs_reviews_nor_prolongs_its_refusal(
    tmp_path: Path,
) -> None:
    reviews: list[float] = []
    async with a_dispatch_world(tmp_path, start=False) as world:
        world.wrap = lambda transport: CountedReviews(transport, reviews)
        await world.start()
        for _ in range(30):
            assert (await world.poll(Secret("invented"))).status == 401
            await asyncio.sleep(1)

    assert [round(at - reviews[0]) for at in reviews] == [0, 10, 20]
