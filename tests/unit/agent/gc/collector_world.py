"""A simulated Mac with a collector on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from bramley.agent.gc.collector import GarbageCollector
from bramley.agent.host_clock import HostClock
from bramley.agent.ledger import VmRecord, VmState
from bramley.api.core import Pod, PodSpec
from bramley.api.meta import ObjectMeta
from bramley.api.pod import Container
from bramley.base import errors
from bramley.base.clock import Clock
from tests.unit.agent.images.image_world import ImageWorld, image_world, pinned

A, B, C = pinned("b"), pinned("c"), pinned("d")
DAY = 24 * 3600


def a_pod(uid: str, image: str = "ghcr.io/none/none:1") -> Pod:
    return Pod(
        metadata=ObjectMeta(name=uid, namespace="n", uid=uid),
        spec=PodSpec(containers=[Container(name="c", image=image)]),
    )


@dataclass
class CollectorWorld:
    image_world: ImageWorld
    collector: GarbageCollector
    leases: Path
    pods: list[Pod] | errors.BramleyError = field(default_factory=lambda: [a_pod("other")])
    removed: list[str] = field(default_factory=list)

    async def list_pods(self) -> Sequence[Pod]:
        if isinstance(self.pods, errors.BramleyError):
            raise self.pods
        return self.pods

    async def remove_vm(self, vm: str) -> None:
        self.removed.append(vm)
        await self.image_world.tart.delete(vm)
        self.image_world.ledger.drop(vm)

    async def a_vm(self, vm: str, golden: str, *, of: str = "gone") -> None:
        """Create an own VM that ended long ago."""
        await self.image_world.images.clone(golden, vm)
        now = self.image_world.mac.clock.now()
        record = next(each for each in self.image_world.store.records() if each.golden == golden)
        self.image_world.ledger.put(
            VmRecord(
                vm=vm,
                namespace="n",
                pod=vm,
                uid=of,
                image=A,
                digest=record.digest,
                golden=golden,
                state=VmState.ENDED,
                created_at=now - timedelta(hours=1),
            )
        )


@asynccontextmanager
async def collector_world(
    tmp_path: Path, clock: Clock | None = None
) -> AsyncIterator[CollectorWorld]:
    async with image_world(tmp_path) as world:
        folder = world.mac.folders.leases
        made: list[CollectorWorld] = []
        collector = GarbageCollector(
            tart=world.tart,
            store=world.store,
            ledger=world.ledger,
            host=world.side.host,
            clock=HostClock(
                clock or world.mac.clock, world.mac.folders.clock, boot_id=world.side.host.boot_id
            ),
            list_pods=lambda: made[0].list_pods(),
            remove_vm=lambda vm: made[0].remove_vm(vm),
            leases=folder,
            binary="tart",
        )
        made.append(CollectorWorld(world, collector, folder))
        yield made[0]
