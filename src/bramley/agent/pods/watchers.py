"""Watchers that react at once: to the exit of a VM, and to the deletion of a Pod whose work is in progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import NoReturn

from bramley.agent.runs import Runs
from bramley.api.pod import Pod
from bramley.base import errors
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key
from bramley.runtime.queue import Trigger


@dataclass(frozen=True, slots=True)
class VmExitWatcher:
    """Enqueues a Pod when the run of its VM has ended, whichever agent started the run."""

    runs: Runs
    trigger: Trigger
    _watched: set[str] = field(default_factory=set)
    _new: asyncio.Queue[tuple[str, Key]] = field(default_factory=asyncio.Queue)

    def watch(self, vm: str, key: Key) -> None:
        """Enqueue this Pod when the VM's run has ended; a VM is watched only once at a time."""
        if vm not in self._watched and self.runs.exists(vm):
            self._watched.add(vm)
            self._new.put_nowait((vm, key))

    async def run(self) -> NoReturn:
        """Watch VMs until cancelled; the VMs keep running."""
        async with asyncio.TaskGroup() as group:
            while True:
                vm, key = await self._new.get()
                group.create_task(self._wait(vm, key), name=vm)

    async def _wait(self, vm: str, key: Key) -> None:
        try:
            await self.runs.wait(vm)
        except (errors.BramleyError, OSError):
            # The run was removed meanwhile, or its state is not readable: the next observation finds out.
            pass
        finally:
            # Before the Pod is enqueued: its sync may watch a new run of this VM.
            self._watched.discard(vm)
        self.trigger.enqueue(key)


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    uid: str
    cancel: asyncio.Timeout


@dataclass(frozen=True, slots=True)
class PodDeletionWatcher:
    """Cancels work that is in progress for a Pod, such as a clone, when the Pod is deleted."""

    pods: Cache[Pod]
    _in_progress: dict[Key, list[_Work]] = field(default_factory=dict)

    def on_change(self, key: Key, _old: Pod | None, new: Pod | None) -> None:
        """Cancel the work for a Pod that is being deleted or is gone; registered with the Pods' informer."""
        for work in self._in_progress.get(key, ()):
            if _is_deleted(new, work.uid) and not work.cancel.expired():
                work.cancel.reschedule(asyncio.get_running_loop().time())

    def is_deleted(self, key: Key, uid: str) -> bool:
        """Return whether a Pod is being deleted or is gone."""
        return _is_deleted(self.pods.find(key), uid)

    async def run_unless_deleted(self, key: Key, uid: str, awaitable: Awaitable[None]) -> bool:
        """Await and return True, or return False if that was cancelled because the Pod is deleted."""
        cancel = asyncio.timeout(None)
        work = _Work(uid, cancel)
        try:
            async with cancel:
                # Inside of the timeout: asyncio reschedules only one that has been entered.
                self._in_progress.setdefault(key, []).append(work)
                await awaitable
        except TimeoutError:
            # The work itself may raise a TimeoutError, too.
            if cancel.expired():
                return False
            raise
        finally:
            self._remove(key, work)
        return True

    def _remove(self, key: Key, work: _Work) -> None:
        remaining = [each for each in self._in_progress.get(key, ()) if each is not work]
        if remaining:
            self._in_progress[key] = remaining
        else:
            self._in_progress.pop(key, None)


def _is_deleted(pod: Pod | None, uid: str) -> bool:
    return pod is None or pod.uid != uid or pod.deleting
