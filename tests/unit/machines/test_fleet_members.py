"""A host counts as being updated until the result of its update was written to its status."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from bramley.api.meta import ObjectMeta
from bramley.api.names import annotations as annotation_names
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachineSpec as Spec
from bramley.host.progress import Report
from bramley.machines.host_operations import HostOperations, Kind, OnStep, Operation
from bramley.machines.mac_draft import Settings
from bramley.machines.macs import Macs
from bramley.machines.metrics import MachineMetrics
from tests import virtual_time


async def succeed(_: OnStep) -> Report:
    """Return at once."""
    return Report("a")


@pytest.mark.parametrize("is_paused", [False, True])
async def test_host_is_updating_until_its_result_is_acknowledged(*, is_paused: bool) -> None:
    operations = HostOperations(1, virtual_time.clock(), MachineMetrics(CollectorRegistry()))
    marks = {annotation_names.PAUSED: "true"} if is_paused else {}
    machine = Machine(metadata=ObjectMeta(name="a", uid="1", annotations=marks), spec=Spec())
    macs = macs_with(operations)
    running = asyncio.ensure_future(operations.run())
    await asyncio.sleep(0)
    operations.start("1", Operation(Kind.UPDATE), succeed, lambda: None)
    assert macs.member(machine, machine.status).is_updating
    await asyncio.sleep(1)
    state = operations.find("1")
    assert state is not None
    assert state.result is not None

    # A paused machine is not reconciled, so that its result would keep the fleet waiting.
    assert macs.member(machine, machine.status).is_updating is not is_paused
    operations.acknowledge("1", state.result)
    assert not macs.member(machine, machine.status).is_updating
    running.cancel()


def macs_with(operations: HostOperations) -> Macs:
    """Return the part that tells what a member of a fleet does; nothing else is used."""
    unused: Any = None
    caches = SimpleNamespace(node=lambda _: None, is_busy=lambda _: False)
    return Macs(
        unused, unused, cast("Any", caches), operations, unused, unused, unused, Settings(), "", unused, virtual_time.clock(),
    )  # fmt: skip
