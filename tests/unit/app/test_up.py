from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from bramley.app.https_server import Stop
from bramley.app.up import Clients


@dataclass(slots=True)
class Component:
    """Runs until it is stopped, and some seconds longer."""

    name: str
    seconds: float
    ended: list[str]
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        self._stop.set()

    async def run(self, *_: object) -> None:
        await self._stop.wait()
        await asyncio.sleep(self.seconds)
        self.ended.append(self.name)


async def test_dispatch_serves_until_the_macs_have_stopped() -> None:
    ended: list[str] = []
    pools, dispatch = Component("pools", 1, ended), Component("dispatch", 0, ended)
    macs, rented = Component("macs", 1, ended), Component("rented", 2, ended)
    stop = Stop()
    stop.request()

    every: Any = pools, dispatch, [macs, rented]
    await Clients(*every).run(stop, print)

    assert ended == ["pools", "macs", "rented", "dispatch"]
