from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

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
    macs, stop = Component("macs", 1, ended), Stop()
    stop.request()

    await Clients(cast("Any", pools), cast("Any", dispatch), cast("Any", macs)).run(stop, print)

    assert ended == ["pools", "macs", "dispatch"]
