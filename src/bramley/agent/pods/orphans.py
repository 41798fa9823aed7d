"""Removes what Pods that are gone have left: records without a Pod.

It starts after the first complete list of Pods, and does not rely on that list alone: each Pod is read from the server by name. A
VM that still runs is kept for a while longer, in case the server has lost objects.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NoReturn

from bramley.agent.pods.context import PodDeps, PodRef, pod_ref, record_ref
from bramley.agent.pods.decision import Process
from bramley.agent.pods.observation import process_of
from bramley.agent.pods.reconciler import PodReconciler
from bramley.api.pod import Pod
from bramley.base import errors, log
from bramley.base.errors import Captured
from bramley.runtime.keys import Key
from bramley.runtime.outcome import CheckAgain

logger = log.get(__name__)

PERIOD = timedelta(seconds=5)
RUNNING_VM_DELAY = timedelta(seconds=20)


@dataclass(frozen=True, slots=True)
class Orphans:
    """Searches for orphans and removes them."""

    deps: PodDeps
    reconciler: PodReconciler
    _in_progress: set[str] = field(default_factory=set)

    async def run(self) -> NoReturn:
        """Remove orphans until cancelled, each in its own task, so that one that fails blocks no other."""
        async with asyncio.TaskGroup() as group:
            while True:
                for orphan in self.find():
                    if orphan.vm not in self._in_progress:
                        self._in_progress.add(orphan.vm)
                        group.create_task(self._handle(orphan), name=orphan.vm)
                await asyncio.sleep(PERIOD.total_seconds())

    def find(self) -> list[PodRef]:
        """Return the records that belong to no known Pod."""
        pods = self.deps.pods.all()
        uids = {pod.uid for pod in pods}
        records = [each for each in self.deps.ledger.vms().values() if each.uid not in uids]
        orphans = [*map(record_ref, records), *self._unreadable(pods)]
        # Drop the in-memory state of all other Pods that are gone, so that it does not grow.
        kept = uids | {orphan.uid for orphan in orphans} | self.reconciler.in_progress
        for uid in self.deps.states.uids() - kept:
            self.deps.states.forget(uid)
        return orphans

    def _unreadable(self, pods: list[Pod]) -> list[PodRef]:
        """Return the VMs of unreadable records, of which only the name is known, unless it is the name of a known Pod's VM."""
        names = {pod_ref(pod, self.deps.ledger).vm for pod in pods}
        return [
            PodRef(Key("", ""), f"unreadable:{each.name}", each.name)
            for each in self.deps.ledger.unreadable()
            if each.path.parent.name == "vms" and each.name not in names
        ]

    async def _handle(self, orphan: PodRef) -> None:
        try:
            with Captured() as captured:
                if await self._may_be_removed(orphan):
                    await self._remove(orphan)
            if captured.error is not None:
                logger.warning("Orphan not removed", vm=orphan.vm, error=str(captured.error))
        finally:
            self._in_progress.discard(orphan.vm)

    async def _remove(self, orphan: PodRef) -> None:
        outcome = await self.reconciler.sync(orphan)
        if isinstance(outcome, CheckAgain):
            logger.info("Orphan not removed yet", vm=orphan.vm, reason=outcome.why)
        else:
            logger.info("Removed orphan", vm=orphan.vm, pod=str(orphan.key))

    async def _may_be_removed(self, orphan: PodRef) -> bool:
        """Return whether the Pod is confirmed to be gone, and its VM has ended or was given time to."""
        if orphan.key.name and not await self._is_gone(orphan):
            return False
        state, now = self.deps.states.of(orphan.uid), self.deps.clock.monotonic()
        # The delay starts when the server has confirmed that the Pod is gone, not when the cache lost it.
        if state.gone_since is None:
            state.gone_since = now
        is_running = process_of(orphan.vm, None, self.deps) is Process.ALIVE
        return not is_running or now - state.gone_since >= RUNNING_VM_DELAY.total_seconds()

    async def _is_gone(self, orphan: PodRef) -> bool:
        key = orphan.key
        try:
            live = await self.deps.kube.get(Pod, key.name, namespace=key.namespace)
        except (errors.NotFound, errors.Forbidden):
            # Forbidden means that a Pod of this name is bound to another Node. A Pod never changes its Node: ours is gone.
            return True
        return live.uid != orphan.uid
