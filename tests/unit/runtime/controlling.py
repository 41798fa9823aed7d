"""A manager with one controller over the scripted server, for tests of what happens to a key."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from prometheus_client import CollectorRegistry

from bramley.base import virtual_time
from bramley.runtime.controller import Controller, ControllerSettings
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.source import Kube
from tests.unit.runtime.running import value
from tests.unit.runtime.scripted import Thing

Act = Callable[[Thing], Awaitable[Outcome]]


async def settle(_thing: Thing) -> Outcome:
    return Settled()


@dataclass
class Scribe:
    """A reconciler that does what the test says and writes down its calls."""

    act: Act = settle
    calls: list[tuple[float, str]] = field(default_factory=list)
    forgotten: list[Key] = field(default_factory=list)

    async def reconcile(self, thing: Thing) -> Outcome:
        self.calls.append((asyncio.get_running_loop().time(), thing.name))
        return await self.act(thing)

    def forget(self, key: Key) -> None:
        self.forgotten.append(key)

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.calls]

    @property
    def times(self) -> list[float]:
        return [when for when, _ in self.calls]


@dataclass
class Releaser(Scribe):
    """A reconciler that holds something outside until it is released."""

    finalizer: str = "test.bramley.dev/hold"
    on_release: Act = settle
    released: list[str] = field(default_factory=list)

    async def release(self, thing: Thing) -> Outcome:
        self.released.append(thing.name)
        return await self.on_release(thing)


SETTINGS = ControllerSettings(workers=4, resync=timedelta(days=100))


def a_manager(kube: Kube, settings: ManagerSettings | None = None) -> Manager:
    return Manager(
        kube,
        clock=virtual_time.clock(),
        rng=random.Random(3),
        registry=CollectorRegistry(),
        # The collector is the test session's, not ours.
        settings=dataclasses.replace(settings or ManagerSettings(), calm_collector=False),
    )


@asynccontextmanager
async def managed(manager: Manager) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run())
        yield
        manager.stop()


@asynccontextmanager
async def controlled(
    kube: Kube, reconciler: Scribe, settings: ControllerSettings = SETTINGS
) -> AsyncIterator[Manager]:
    manager = a_manager(kube)
    manager.add(Controller(reconciler, settings).watching(Thing))
    async with managed(manager):
        yield manager


def outcomes(manager: Manager, outcome: str, reason: str = "") -> float:
    labels = {"controller": "thing", "outcome": outcome, "reason": reason}
    return value(manager.metrics, "bramley_reconcile_outcomes_total", **labels)
