"""Webhooks of jobs: signed, listed by the App and delivered again on request."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from bramley.base import errors
from tests.github_peer import Peer
from tests.hook_receiver import HookReceiver


async def test_deliveries_are_listed_by_pages_and_delivered_again(peer: Peer) -> None:
    receiver = HookReceiver(status=500)
    peer.github.webhooks.hook = receiver.hook()
    repository = peer.github.accounts["acme"].repositories["app"]
    began = peer.github.clock.now() - timedelta(minutes=1)
    async with peer.github.running():
        for _ in range(230):
            peer.github.actions.queue_job(repository, labels=["macos"])
        await receiver.wait_for(230)
        receiver.status = 200
        app = peer.app()
        listed = [each async for each in app.hook_deliveries(since=began)]

        await app.redeliver(listed[-1].id)
        await receiver.wait_for(231)
        await asyncio.sleep(0)

        newest = await anext(app.hook_deliveries(since=began))
    assert len({each.guid for each in listed}) == 230
    assert {each.is_delivered for each in listed} == {False}
    assert (newest.guid, newest.redelivery) == (listed[-1].guid, True)
    assert newest.is_delivered
    assert receiver.received[-1].body == receiver.received[0].body


async def test_deliveries_before_a_time_are_not_read(peer: Peer) -> None:
    receiver = HookReceiver()
    peer.github.webhooks.hook = receiver.hook()
    repository = peer.github.accounts["acme"].repositories["app"]
    async with peer.github.running():
        peer.github.actions.queue_job(repository, labels=["macos"])
        await receiver.wait_for(1)
    later = peer.github.clock.now() + timedelta(minutes=1)

    assert [each async for each in peer.app().hook_deliveries(since=later)] == []


async def test_unknown_delivery_is_not_found(peer: Peer) -> None:
    with pytest.raises(errors.NotFound):
        await peer.app().redeliver(1)
