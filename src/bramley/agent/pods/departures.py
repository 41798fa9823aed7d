"""Cuts work off when its Pod is deleted: nobody waits five minutes for a clone that is thrown away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from bramley.api.pod import Pod
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    uid: str
    cut: asyncio.Timeout


class Departures:
    """Knows the work that is under way for each Pod; hears of changes as a handler of the Pods' informer."""

    def __init__(self, pods: Cache[Pod]) -> None:
        self._pods = pods
        self._waiting: dict[Key, list[_Waiting]] = {}

    def on_change(self, key: Key, _old: Pod | None, new: Pod | None) -> None:
        """Cut off what is under way for a Pod that is to go, or has gone."""
        for waiting in self._waiting.get(key, ()):
            if _is_leaving(new, waiting.uid) and not waiting.cut.expired():
                waiting.cut.reschedule(asyncio.get_running_loop().time())

    def is_leaving(self, key: Key, uid: str) -> bool:
        """Tell whether a Pod is to go or has gone."""
        return _is_leaving(self._pods.find(key), uid)

    async def unless_leaving(self, key: Key, uid: str, work: Awaitable[None]) -> bool:
        """Do the work and return True, or False if it was cut off because its Pod is to go."""
        cut = asyncio.timeout(None)
        waiting = _Waiting(uid, cut)
        try:
            async with cut:
                self._waiting.setdefault(key, []).append(waiting)
                await work
        except TimeoutError:
            if cut.expired():
                return False
            raise
        finally:
            self._forget(key, waiting)
        return True

    def _forget(self, key: Key, waiting: _Waiting) -> None:
        left = [each for each in self._waiting.get(key, ()) if each is not waiting]
        if left:
            self._waiting[key] = left
        else:
            self._waiting.pop(key, None)


def _is_leaving(pod: Pod | None, uid: str) -> bool:
    return pod is None or pod.uid != uid or pod.deleting
