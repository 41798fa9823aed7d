"""Waits for the ends of VMs and rings for their Pods, so that an exit is told at once and not at the next look."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import NoReturn

from bramley.agent.runs import Runs
from bramley.api.pod import Pod
from bramley.base import errors
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key
from bramley.runtime.queue import Trigger


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


class Exits:
    """Follows the runs of VMs, whoever began them."""

    def __init__(self, runs: Runs, bell: Trigger) -> None:
        self._runs = runs
        self._bell = bell
        self._followed: set[str] = set()
        self._new: asyncio.Queue[tuple[str, Key]] = asyncio.Queue()

    def follow(self, vm: str, key: Key) -> None:
        """Ring for this Pod when the VM's run has ended; one that is followed already is followed once."""
        if vm not in self._followed and self._runs.is_begun(vm):
            self._followed.add(vm)
            self._new.put_nowait((vm, key))

    async def run(self) -> NoReturn:
        """Follow VMs until cancelled; the VMs go on."""
        async with asyncio.TaskGroup() as group:
            while True:
                vm, key = await self._new.get()
                group.create_task(self._wait(vm, key), name=vm)

    async def _wait(self, vm: str, key: Key) -> None:
        try:
            await self._runs.wait(vm)
        except (errors.BramleyError, OSError):
            # Forgotten meanwhile, or the host cannot tell: the next look finds out.
            pass
        finally:
            self._followed.discard(vm)
        self._bell.enqueue(key)
