"""Making our server forget old versions: it remembers few changes of Leases, so a few hundred renewals will do."""

from __future__ import annotations

import asyncio

from bramley.api.coordination import Lease
from tests.contract.kube_client.targets import World


async def forget_leases(world: World) -> None:
    """Write more Leases than our server remembers changes of."""
    async with asyncio.TaskGroup() as group:
        for worker in range(16):
            group.create_task(renew(world, worker))


async def renew(world: World, worker: int) -> None:
    for number in range(40):
        await world.kube.merge_patch(
            Lease,
            "c",
            {"spec": {"holderIdentity": f"{worker}-{number}"}},
            namespace=world.namespace,
        )
