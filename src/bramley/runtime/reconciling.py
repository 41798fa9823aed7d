"""One pass over one key: mind the guards, read the object, keep its finalizer, and call the reconciler.

It decides nothing about retries; it returns an outcome or raises. A primary that is not there any more is no error.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic

from bramley.api.meta import K
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.runtime import finalizers
from bramley.runtime.controller import Controller, Forgetting, Releasing
from bramley.runtime.fresh import Desk, Freshness
from bramley.runtime.informer import Informer
from bramley.runtime.keys import Key
from bramley.runtime.metrics import RuntimeMetrics
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from bramley.runtime.writes import FencedKube

Owner = tuple[str, Key]

_BEHIND = CheckAgain(timedelta(seconds=1), "the cache has not seen what was written for this key")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all controllers of one process share; `check` raises LeaseLost when this process must not act."""

    kube: FencedKube
    freshness: Freshness
    check: Callable[[], None]
    clock: Clock
    rng: random.Random
    metrics: RuntimeMetrics


class Reconciling(Generic[K]):
    """Makes passes for one controller."""

    def __init__(
        self, controller: Controller[K], informer: Informer[K], around: Surroundings
    ) -> None:
        self._name = controller.name
        self._reconcile = controller.reconciler.reconcile
        self._releasing = _as_releasing(controller)
        self._forgetting = _as_forgetting(controller)
        self._kind = controller.kind
        self._cache = informer.cache
        self._kube = around.kube
        self._freshness = around.freshness
        self._check = around.check
        self._doubted: set[Key] = set()

    def doubt(self, key: Key) -> None:
        """Read the object from the server for the next pass, because the cache led to a conflict."""
        self._doubted.add(key)

    def once(self, key: Key, desk: Desk) -> Coroutine[Any, Any, Outcome]:
        """Return the pass that reconciles or releases the object of this key; what it writes is noted at the desk."""
        self._check()
        owner = desk.owner = (self._name, key)
        # Nearly every pass is only the reconciler's own, and then no other coroutine stands around it.
        if self._releasing is None and key not in self._doubted:
            thing = self._cache.find(key)
            if thing is not None and not self._freshness.has_written(owner):
                return self._reconcile(thing)
        return self._guarded(key, owner)

    async def _guarded(self, key: Key, owner: Owner) -> Outcome:
        if self._freshness.has_written(owner) and not await self._freshness.caught_up(owner):
            return _BEHIND
        thing = await self._reread(key) if key in self._doubted else self._cache.find(key)
        if thing is None:
            return self._forget(key)
        if self._releasing is None:
            return await self._reconcile(thing)
        return await self._hold_or_release(self._releasing, thing)

    async def _reread(self, key: Key) -> K | None:
        self._doubted.discard(key)
        # An object that left our selection is none of ours, whatever the server knows of it.
        if self._cache.find(key) is None:
            return None
        try:
            live = await self._kube.get(self._kind, key.name, namespace=key.namespace or None)
        except errors.NotFound:
            return None
        self._freshness.wrote(live)
        return live

    async def _hold_or_release(self, releasing: Releasing, thing: K) -> Outcome:
        if thing.deleting:
            return await self._release(releasing, thing)
        try:
            held = await finalizers.add(self._kube, thing, releasing.finalizer)
        except errors.NotFound:
            # It went while we looked; its deletion is on the way to the cache and wakes the key.
            return Settled()
        return await self._reconcile(held)

    async def _release(self, releasing: Releasing, thing: K) -> Outcome:
        if releasing.finalizer not in thing.metadata.finalizers:
            return Settled()
        outcome = await releasing.release(thing)
        if isinstance(outcome, Settled):
            try:
                await finalizers.remove(self._kube, thing, releasing.finalizer)
            except errors.NotFound:
                return outcome
        return outcome

    def _forget(self, key: Key) -> Outcome:
        self._doubted.discard(key)
        self._freshness.forget((self._name, key))
        if self._forgetting is not None:
            self._forgetting.forget(key)
        return Settled()


def _as_releasing(controller: Controller[K]) -> Releasing | None:
    reconciler = controller.reconciler
    return reconciler if isinstance(reconciler, Releasing) else None


def _as_forgetting(controller: Controller[K]) -> Forgetting | None:
    reconciler = controller.reconciler
    return reconciler if isinstance(reconciler, Forgetting) else None
