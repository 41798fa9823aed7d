"""Expires old resource versions: our server keeps a short watch history of Leases, so a few hundred renewals suffice."""

from __future__ import annotations

import asyncio

from bramley.api.coordination import Lease
from tests.contract.kube_client.targets import World


async def expire_lease_history(world: World) -> None:
    """Write more changes of Leases than our server keeps."""
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
