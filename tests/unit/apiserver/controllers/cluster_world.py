"""A cluster for tests: the embedded API in memory with all its controllers, and a client, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bramley.api.core import ConfigMap, Namespace
from bramley.api.meta import Object, ObjectMeta, OwnerReference
from bramley.apiserver.controllers.timings import Timings
from bramley.app import embedded
from bramley.base import errors
from bramley.kube.client import Client
from tests import virtual_time


@asynccontextmanager
async def a_cluster(*, seed: int = 0, timings: Timings | None = None) -> AsyncIterator[Client]:
    """Run a cluster and give an administrator's client of it; it has the namespace `t`."""
    clock = virtual_time.clock()
    async with (
        embedded.running(clock=clock, seed=seed, controllers=True, timings=timings) as (api, token),
        Client(api.transport(token), clock=clock) as client,
    ):
        await client.create(Namespace(metadata=ObjectMeta(name="t")))
        await settled()
        yield client


async def settled(seconds: float = 1) -> None:
    """Give the controllers this much virtual time."""
    await asyncio.sleep(seconds)


async def is_there(client: Client, kind: type[Object], name: str, namespace: str = "t") -> bool:
    """Return whether an object exists."""
    place = namespace if kind.resource.namespaced else None
    try:
        await client.get(kind, name, namespace=place)
    except errors.NotFound:
        return False
    return True


def a_config_map(
    name: str, *owners: OwnerReference, finalizers: tuple[str, ...] = (), namespace: str = "t"
) -> ConfigMap:
    """Return a ConfigMap with these owners and finalizers."""
    return ConfigMap(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            finalizers=list(finalizers),
            owner_references=list(owners),
        )
    )


def owned_by(
    obj: Object, *, block: bool | None = None, uid: str = "", controller: bool | None = None
) -> OwnerReference:
    """Return a reference to this owner."""
    return OwnerReference(
        api_version=obj.resource.api_version,
        kind=obj.resource.kind,
        name=obj.name,
        uid=uid or obj.uid,
        block_owner_deletion=block,
        controller=controller,
    )
