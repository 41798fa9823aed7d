"""The Macs of `bramley up` from start to start: of whichever kind they were, those that are wanted no more go."""

from __future__ import annotations

from pathlib import Path

from bramley.api.core import Node
from bramley.api.meta import ObjectMeta
from bramley.app import embedded, macs
from bramley.base import virtual_time
from bramley.cli import up
from bramley.kube.client import Client


async def test_macs_of_an_earlier_start_go_whichever_kind_they_were(tmp_path: Path) -> None:
    clock = virtual_time.clock()

    for bootstrap in (True, False):
        data = tmp_path / f"{bootstrap}"
        for place in ("macs/mac-1", "macs/mac-2", "bootstrapped-macs/mac-3"):
            (data / place).mkdir(parents=True)
        async with embedded.running(clock=clock) as (api, token):
            kube = Client(api.transport(token), clock=clock)
            for name in ("mac-1", "mac-2", "mac-3", "somebody-s"):
                await kube.create(Node(metadata=ObjectMeta(name=name)))

            await macs.retire_others(kube, up.mac_settings(data, 1, bootstrap=bootstrap))

            left = [node.name for node in (await kube.list(Node)).items]
        assert left == ["mac-1", "somebody-s"]


async def test_macs_that_were_taken_away_are_not_looked_for_again_until_they_are_wanted(
    tmp_path: Path,
) -> None:
    for place in ("macs/mac-1", "bootstrapped-macs/mac-1", "bootstrapped-macs/mac-2"):
        (tmp_path / place).mkdir(parents=True)
    none = up.mac_settings(tmp_path, 0, bootstrap=False)
    one = up.mac_settings(tmp_path, 1, bootstrap=True)
    clock = virtual_time.clock()
    async with embedded.running(clock=clock) as (api, token):
        kube = Client(api.transport(token), clock=clock)
        found, concern = [none.unwanted], [none.are_of_concern, one.are_of_concern]
        await macs.retire_others(kube, none)
        found.append(none.unwanted)
        concern.append(none.are_of_concern)
        # By hand, from now on.
        await kube.create(Node(metadata=ObjectMeta(name="mac-1")))
        await macs.retire_others(kube, none)
        left = [node.name for node in (await kube.list(Node)).items]
        await macs.retire_others(kube, one)
        found.append(none.unwanted)

    assert found == [["mac-1", "mac-2"], [], ["mac-1"]]
    assert concern == [True, True, False]
    assert left == ["mac-1"]


def test_macs_of_both_kinds_are_kept_apart() -> None:
    bare = up.mac_settings(Path("/data"), 1, bootstrap=True)
    others = up.mac_settings(Path("/data"), 1, bootstrap=False)

    assert (bare.folder, bare.elsewhere) == (others.elsewhere, others.folder)
    assert bare.folder != others.folder
