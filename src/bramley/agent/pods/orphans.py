"""Clears away what Pods that are gone have left: records whose Pod nobody knows any more.

It begins after the first complete list of Pods, and believes no list alone: the server is asked for each Pod by name. A VM
that still runs is left for a while longer, in case the server itself has forgotten too much.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NoReturn

from bramley.agent.pods import context
from bramley.agent.pods.context import Means, PodRef
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
PATIENCE = timedelta(seconds=20)


@dataclass(frozen=True, slots=True)
class Orphans:
    """Looks for orphans while `run` runs; start it when the Pods are known."""

    means: Means
    reconciler: PodReconciler
    _under_way: set[str] = field(default_factory=set)

    async def run(self) -> NoReturn:
        """Clear away orphans until cancelled; each by itself, so that one that resists holds up no other."""
        async with asyncio.TaskGroup() as group:
            while True:
                for orphan in self.found():
                    if orphan.vm not in self._under_way:
                        self._under_way.add(orphan.vm)
                        group.create_task(self._attend(orphan), name=orphan.vm)
                await asyncio.sleep(PERIOD.total_seconds())

    def found(self) -> list[PodRef]:
        """Return what belongs to no Pod that we know."""
        pods = self.means.pods.all()
        uids = {pod.uid for pod in pods}
        known = [each for each in self.means.ledger.vms().values() if each.uid not in uids]
        orphans = [*map(context.record_ref, known), *self._unreadable(pods)]
        self._forget_all_but(uids | {orphan.uid for orphan in orphans})
        return orphans

    def _forget_all_but(self, uids: set[str]) -> None:
        """Keep the memory of Pods that are gone from growing."""
        for uid in self.means.memory.uids() - uids - self.reconciler.busy:
            self.means.memory.forget(uid)

    def _unreadable(self, pods: list[Pod]) -> list[PodRef]:
        """Return the VMs of which only the name of an unreadable record is known, and that no Pod here can have."""
        names = {context.pod_ref(pod, self.means.ledger).vm for pod in pods}
        return [
            PodRef(Key("", ""), f"unreadable:{each.name}", each.name)
            for each in self.means.ledger.unreadable()
            if each.path.parent.name == "vms" and each.name not in names
        ]

    async def _attend(self, orphan: PodRef) -> None:
        try:
            with Captured() as caught:
                if await self._is_certain(orphan):
                    await self._clear(orphan)
            if caught.error is not None:
                logger.warning("Orphan not cleared", vm=orphan.vm, error=str(caught.error))
        finally:
            self._under_way.discard(orphan.vm)

    async def _clear(self, orphan: PodRef) -> None:
        outcome = await self.reconciler.take_turn(orphan)
        if isinstance(outcome, CheckAgain):
            logger.info("Orphan not cleared yet", vm=orphan.vm, reason=outcome.why)
        else:
            logger.info("Cleared away what a Pod has left", vm=orphan.vm, pod=str(orphan.key))

    async def _is_certain(self, orphan: PodRef) -> bool:
        """Tell whether the Pod is gone beyond doubt."""
        if orphan.key.name and not await self._is_gone(orphan):
            return False
        notes, now = self.means.memory.of(orphan.uid), self.means.clock.monotonic()
        if notes.gone_since is None:
            notes.gone_since = now
        runs = process_of(orphan.vm, None, self.means) is Process.ALIVE
        return not runs or now - notes.gone_since >= PATIENCE.total_seconds()

    async def _is_gone(self, orphan: PodRef) -> bool:
        key = orphan.key
        try:
            live = await self.means.kube.get(Pod, key.name, namespace=key.namespace)
        except (errors.NotFound, errors.Forbidden):
            # An agent may not look at a Pod of another Node, and a Pod does not change its Node: ours is gone.
            return True
        return live.uid != orphan.uid
