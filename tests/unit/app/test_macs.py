"""Simulated Macs of earlier starts of `bramley up` are removed from the cluster, whichever kind they were."""

from __future__ import annotations

from pathlib import Path

from bramley.api.core import Node
from bramley.api.meta import ObjectMeta
from bramley.app import embedded, macs
from bramley.cli import up
from bramley.kube.client import Client
from tests import virtual_time


async def test_surplus_macs_of_either_kind_are_retired(tmp_path: Path) -> None:
    clock = virtual_time.clock()

    for bootstrap in (True, False):
        data = tmp_path / f"{bootstrap}"
        for place in ("macs/mac-1", "macs/mac-2", "bootstrapped-macs/mac-3"):
            (data / place).mkdir(parents=True)
        async with embedded.running(clock=clock) as (api, token):
            kube = Client(api.transport(token), clock=clock)
            for name in ("mac-1", "mac-2", "mac-3", "other-node"):
                await kube.create(Node(metadata=ObjectMeta(name=name)))

            await macs.retire_surplus(kube, up.mac_settings(data, 1, bootstrap=bootstrap))

            left = [node.name for node in (await kube.list(Node)).items]
        assert left == ["mac-1", "other-node"]


async def test_a_retired_mac_is_retired_once_until_it_starts_again(tmp_path: Path) -> None:
    for place in ("macs/mac-1", "bootstrapped-macs/mac-1", "bootstrapped-macs/mac-2"):
        (tmp_path / place).mkdir(parents=True)
    none = up.mac_settings(tmp_path, 0, bootstrap=False)
    one = up.mac_settings(tmp_path, 1, bootstrap=True)
    clock = virtual_time.clock()
    async with embedded.running(clock=clock) as (api, token):
        kube = Client(api.transport(token), clock=clock)
        found, has_work = [none.surplus], [none.has_work, one.has_work]
        await macs.retire_surplus(kube, none)
        found.append(none.surplus)
        has_work.append(none.has_work)
        # This Node is not of a simulated Mac.
        await kube.create(Node(metadata=ObjectMeta(name="mac-1")))
        await macs.retire_surplus(kube, none)
        left = [node.name for node in (await kube.list(Node)).items]
        await macs.retire_surplus(kube, one)
        found.append(none.surplus)

    assert found == [["mac-1", "mac-2"], [], ["mac-1"]]
    assert has_work == [True, True, False]
    assert left == ["mac-1"]


def test_both_kinds_of_macs_have_their_own_folder() -> None:
    bare = up.mac_settings(Path("/data"), 1, bootstrap=True)
    others = up.mac_settings(Path("/data"), 1, bootstrap=False)

    assert (bare.folder, bare.other_folder) == (others.other_folder, others.folder)
    assert bare.folder != others.folder
