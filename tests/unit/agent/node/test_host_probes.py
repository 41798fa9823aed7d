"""The facts of a Node come from independent probes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from bramley.agent.host import Space, SystemInfo
from bramley.agent.node.host_probes import HostProbes
from bramley.agent.slots import TakenSlots


class Tart:
    """A tart without VMs."""

    async def version(self) -> str:
        return "2.32.1"

    async def list(self) -> Sequence[object]:
        return []

    async def exec(self, *_: object, **__: object) -> Any:
        raise AssertionError("no guest runs")


class Host:
    """A host with free disk space."""

    def space(self, _: Path) -> Space:
        return Space(total=100, free=50)

    def boot_id(self) -> str:
        return "boot"

    def system_info(self) -> SystemInfo:
        return SystemInfo(os_image="macOS 26.3 (25D125)")


class LivenessSink:
    """Ignore all results."""

    def expected_to_respond(self, vms: Iterable[str]) -> list[str]:
        return list(vms)

    def record(self, **_: object) -> None:
        return


class Metrics:
    """Metrics that record nothing."""

    def set_guest_disks(self, percents: Mapping[str, float]) -> None:
        assert not percents


async def test_bug_in_one_probe_stops_neither_it_nor_the_others(tmp_path: Path) -> None:
    calls: list[int] = []

    def slots() -> TakenSlots:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError("what a process of a stranger says")
        return TakenSlots(leaks=("evidence",))

    probes = HostProbes(
        tart=Tart(),
        host=cast("Any", Host()),
        session=None,
        disk=tmp_path,
        running_vms=list,
        slots=slots,
        images=list,
        liveness=LivenessSink(),
        metrics=Metrics(),
        on_change=lambda: None,
    )
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(job) for job in probes.runnables()]
        await asyncio.sleep(60)
        facts = probes.facts()
        for task in tasks:
            task.cancel()

    assert facts.slots.leaks == ("evidence",)
    assert facts.tart.error == ""
    assert (facts.tart_version, facts.system.os_image) == ("2.32.1", "macOS 26.3 (25D125)")
