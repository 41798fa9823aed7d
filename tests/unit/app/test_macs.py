"""Simulated Macs of earlier starts of `bramley up` are removed from the cluster."""

from __future__ import annotations

from pathlib import Path

from bramley.api.core import Node
from bramley.api.meta import ObjectMeta
from bramley.app import embedded, macs
from bramley.app.up import MacSettings
from bramley.kube.client import Client
from tests import virtual_time


async def test_a_surplus_mac_is_retired_once_until_it_starts_again(tmp_path: Path) -> None:
    for name in ("mac-1", "mac-2"):
        (tmp_path / name).mkdir()
    none, one = MacSettings(tmp_path, 0), MacSettings(tmp_path, 1)
    clock = virtual_time.clock()
    async with embedded.running(clock=clock) as (api, token):
        kube = Client(api.transport(token), clock=clock)
        for name in ("mac-1", "mac-2", "other-node"):
            await kube.create(Node(metadata=ObjectMeta(name=name)))
        found, has_work = [one.surplus, none.surplus], [none.has_work, one.has_work]
        await macs.retire_surplus(kube, one)
        await macs.retire_surplus(kube, none)
        found.append(none.surplus)
        has_work.append(none.has_work)
        # This Node is not of a simulated Mac.
        await kube.create(Node(metadata=ObjectMeta(name="mac-1")))
        await macs.retire_surplus(kube, none)
        left = [node.name for node in (await kube.list(Node)).items]
        await macs.retire_surplus(kube, one)
        found.append(none.surplus)

    assert found == [["mac-2"], ["mac-1", "mac-2"], [], ["mac-1"]]
    assert has_work == [True, True, False]
    assert left == ["mac-1", "other-node"]
