"""Keeps the graph true: one informer for each kind that can be deleted, and a look at what is served from time to time.

While a kind is not yet followed to its end the view is incomplete, and nobody may decide anything; `complete` says so.
Definitions that come and go are noticed at once, since their own objects are followed too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NoReturn

from bramley.api.meta import Resource
from bramley.apiserver.controllers.discovery import Discovery, Kinds, Thin, discover
from bramley.apiserver.controllers.following import sparing
from bramley.apiserver.controllers.garbage.graph import Graph, Wakes
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.informer import Informer
from bramley.runtime.keys import Key
from bramley.runtime.metrics import RuntimeMetrics

logger = log.get(__name__)

# Events come by the thousand, end by themselves, and own nothing.
IGNORED = frozenset({("", "events"), ("events.k8s.io", "events")})
_DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
_NEEDED = {"delete", "list", "watch"}
# A new definition is served a moment after it is written, and often comes with others.
_BREATH = timedelta(milliseconds=100)
_AGAIN = timedelta(seconds=1)


@dataclass(slots=True)
class _Followed:
    informer: Informer[Thin]
    task: asyncio.Task[NoReturn]


def _nobody(_wakes: Wakes) -> None:
    """Wake nobody, until somebody wants to know."""


@dataclass(slots=True)
class Following:
    """The informers of all kinds, and the graph that they fill."""

    client: Client
    clock: Clock
    rng: random.Random
    metrics: RuntimeMetrics
    period: timedelta
    wake: Callable[[Wakes], None] = _nobody
    graph: Graph = field(default_factory=Graph)
    kinds: Kinds = field(default_factory=Kinds)
    found: Discovery = field(default_factory=Discovery)
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    _followed: dict[Resource, _Followed] = field(default_factory=dict)
    _stirred: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> NoReturn:
        """Follow every kind until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._stirred.clear()
                pause = await self._compare(group)
                await self._until_stirred(pause)
        raise AssertionError

    def resource_of(self, api_version: str, kind: str) -> Resource:
        """Return where owners of this kind are found; raise NotFound when they are not served."""
        resource = self.found.find(api_version, kind)
        if resource is None:
            # Served since we last looked, or never; either way nobody can tell whether the owner is there.
            self._stirred.set()
            raise errors.ApiUnavailable(f"{kind} of {api_version} is not served")
        return resource

    async def _compare(self, group: asyncio.TaskGroup) -> timedelta:
        try:
            found = await discover(self.client)
        except errors.BramleyError as error:
            logger.warning("Cannot learn what is served", reason=error.reason, error=str(error))
            return _AGAIN
        wanted = {
            each.resource
            for each in found.kinds
            if each.verbs >= _NEEDED and (each.resource.group, each.resource.plural) not in IGNORED
        }
        self.found = found
        missing = wanted - set(self._followed)
        if missing:
            self.complete.clear()
        for resource in missing:
            self._follow(resource, group)
        if not found.failures:
            for resource in set(self._followed) - wanted:
                self._drop(resource)
        await self._synced()
        return _AGAIN if found.failures else self.period

    async def _synced(self) -> None:
        for each in list(self._followed.values()):
            # A kind that went away while its list was awaited will never be there; look at what is served again.
            try:
                async with asyncio.timeout(_AGAIN.total_seconds() * 30):
                    await each.informer.synced.wait()
            except TimeoutError:
                self._stirred.set()
                return
        self.complete.set()

    def _follow(self, resource: Resource, group: asyncio.TaskGroup) -> None:
        informer = Informer(
            self.kinds.of(resource),
            self.client,
            clock=self.clock,
            rng=self.rng,
            metrics=self.metrics,
        )
        is_definition = (resource.group, resource.plural) == _DEFINITIONS

        def changed(_key: Key, old: Thin | None, new: Thin | None) -> None:
            if new is not None:
                self.wake(self.graph.put(new))
            elif old is not None:
                self.wake(self.graph.remove(old.uid))
            if is_definition:
                self._stirred.set()

        informer.on_change(sparing(changed))
        self._followed[resource] = _Followed(informer, group.create_task(informer.run()))

    def _drop(self, resource: Resource) -> None:
        dropped = self._followed.pop(resource)
        dropped.task.cancel()
        for key in list(dropped.informer.cache):
            thing = dropped.informer.cache.find(key)
            if thing is not None:
                self.wake(self.graph.remove(thing.uid))
        self.kinds.known.pop(resource, None)

    async def _until_stirred(self, pause: timedelta) -> None:
        try:
            async with asyncio.timeout(pause.total_seconds()):
                await self._stirred.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_BREATH.total_seconds())
