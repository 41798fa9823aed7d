from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from itertools import pairwise

from bramley.agent.node.lease import LeaseController
from bramley.api.coordination import Lease
from bramley.api.meta import moment
from bramley.kube.client import Client
from tests import virtual_time
from tests.unit.agent.node.worlds import NAME, HangingTransport, an_api, running

NAMESPACE = "kube-node-lease"


def a_heartbeat(kube: Client, uid: str = "uid-1") -> LeaseController:
    clock = virtual_time.clock()
    return LeaseController(NAME, kube, uid=lambda: uid, clock=clock, rng=random.Random(1))


async def lease(kube: Client) -> Lease:
    return await kube.get(Lease, NAME, namespace=NAMESPACE)


async def test_lease_is_renewed_every_10_seconds() -> None:
    async with an_api() as kube, running(a_heartbeat(kube).run):
        renewed = []
        await asyncio.sleep(1)
        for _ in range(6):
            logged = (await lease(kube)).spec.renew_time
            assert logged
            renewed.append(moment(logged))
            await asyncio.sleep(10)

    pauses = {later - sooner for sooner, later in pairwise(renewed)}
    assert pauses == {timedelta(seconds=10)}


async def test_lease_has_holder_and_duration() -> None:
    async with an_api() as kube:
        await a_heartbeat(kube).renew()

        made = await lease(kube)

    assert (made.spec.holder_identity, made.spec.lease_duration_seconds) == (NAME, 40)
    assert [owner.uid for owner in made.metadata.owner_references] == ["uid-1"]


async def test_deleted_lease_is_created_again() -> None:
    async with an_api() as kube:
        heartbeat = a_heartbeat(kube)
        await heartbeat.renew()
        await kube.delete(Lease, NAME, namespace=NAMESPACE)

        await heartbeat.renew()

        assert (await lease(kube)).spec.holder_identity == NAME


async def test_lease_gets_the_owner_of_a_re_registered_node() -> None:
    async with an_api() as kube:
        await a_heartbeat(kube).renew()

        await a_heartbeat(kube, uid="uid-2").renew()

        assert [owner.uid for owner in (await lease(kube)).metadata.owner_references] == ["uid-2"]


async def test_lease_that_is_not_renewed_fails_the_probe() -> None:
    hanging = a_heartbeat(Client(HangingTransport(), clock=virtual_time.clock()))
    async with running(hanging.run):
        await asyncio.sleep(10)
        assert hanging.expired_reason() == "the Node's Lease was not renewed since the start"

    async with an_api() as kube:
        heartbeat = a_heartbeat(kube)
        async with running(heartbeat.run):
            await asyncio.sleep(300)
            assert heartbeat.expired_reason() == ""
        await asyncio.sleep(60)
        assert heartbeat.expired_reason().startswith("the Node's Lease was not renewed for 6")


async def test_hanging_server_is_retried_well_within_the_lease() -> None:
    server = HangingTransport()
    kube = Client(server, clock=virtual_time.clock())
    async with running(a_heartbeat(kube).run):
        await asyncio.sleep(300)

    assert max(server.pauses()) <= 12
