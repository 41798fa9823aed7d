"""A manager with one controller over the fake API server, for tests of what happens to a key."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from prometheus_client import CollectorRegistry

from bramley.runtime.client import Kube
from bramley.runtime.controller import Controller, ControllerSettings
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.outcome import Outcome, Settled
from tests import virtual_time
from tests.unit.runtime.fake_api import Thing
from tests.unit.runtime.informer_harness import value

Act = Callable[[Thing], Awaitable[Outcome]]


async def settle(_thing: Thing) -> Outcome:
    return Settled()


@dataclass
class RecordingReconciler:
    """A reconciler that does what the test defines and records its calls."""

    act: Act = settle
    calls: list[tuple[float, str]] = field(default_factory=list)
    forgotten: list[Key] = field(default_factory=list)

    async def reconcile(self, obj: Thing) -> Outcome:
        self.calls.append((asyncio.get_running_loop().time(), obj.name))
        return await self.act(obj)

    def forget(self, key: Key) -> None:
        self.forgotten.append(key)

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.calls]

    @property
    def times(self) -> list[float]:
        return [when for when, _ in self.calls]


SETTINGS = ControllerSettings(workers=4, resync=timedelta(days=100))


def a_manager(kube: Kube, settings: ManagerSettings | None = None) -> Manager:
    return Manager(
        kube,
        clock=virtual_time.clock(),
        rng=random.Random(3),
        registry=CollectorRegistry(),
        # The garbage collector belongs to the whole test session.
        settings=dataclasses.replace(settings or ManagerSettings(), tune_gc=False),
    )


@asynccontextmanager
async def managed(manager: Manager) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run())
        yield
        manager.stop()


@asynccontextmanager
async def controlled(
    kube: Kube, reconciler: RecordingReconciler, settings: ControllerSettings = SETTINGS
) -> AsyncIterator[Manager]:
    manager = a_manager(kube)
    manager.add(Controller(reconciler, settings).for_kind(Thing))
    async with managed(manager):
        yield manager


def outcomes(manager: Manager, outcome: str, reason: str = "") -> float:
    labels = {"controller": "thing", "outcome": outcome, "reason": reason}
    return value(manager.metrics, "bramley_reconcile_outcomes_total", **labels)
