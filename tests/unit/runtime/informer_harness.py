"""Runs parts of the runtime inside a test and ends them with it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.runtime.cache import Handler
from bramley.runtime.informer import Informer, InformerSettings
from bramley.runtime.keys import Key
from bramley.runtime.metrics import RuntimeMetrics
from tests import virtual_time
from tests.unit.runtime.fake_api import FakeApi, Thing, a_thing


def some_metrics() -> RuntimeMetrics:
    return RuntimeMetrics(CollectorRegistry())


def value(metrics: RuntimeMetrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in coroutines]
        yield
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def following(
    server: FakeApi,
    *,
    metrics: RuntimeMetrics | None = None,
    settings: InformerSettings | None = None,
) -> AsyncIterator[Informer[Thing]]:
    informer = Informer(
        Thing,
        server,
        clock=virtual_time.clock(),
        rng=random.Random(1),
        metrics=metrics or some_metrics(),
        settings=settings,
    )
    async with running(informer.run()):
        yield informer


@asynccontextmanager
async def synced(server: FakeApi, **options: Any) -> AsyncIterator[Informer[Thing]]:
    async with following(server, **options) as informer:
        await informer.synced.wait()
        yield informer


async def until(fact: Callable[[], object], *, within: float = 3600.0, every: float = 0.01) -> None:
    """Wait until the condition holds; fail when it does not in time."""
    async with asyncio.timeout(within):
        while not fact():
            await asyncio.sleep(every)


Seen = list[tuple[str, int | None, int | None]]


def a_server(*names: str) -> FakeApi:
    server = FakeApi()
    for name in names:
        server.put(a_thing(name))
    return server


def recorder(seen: Seen) -> Handler[Thing]:
    def changed(key: Key, old: Thing | None, new: Thing | None) -> None:
        values = [obj.spec.value if obj else None for obj in (old, new)]
        seen.append((key.name, values[0], values[1]))

    return changed
