"""A part that was applied and is no longer desired: removed with its stamp, and only if it has one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from bramley.api.names import host
from bramley.host import converge, drift, sequence
from bramley.host.step import Step
from tests import virtual_time
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.interruption import MacTemplate, interrupt_everywhere


def steps(folder: Path, *, with_node_exporter: bool) -> list[Step]:
    spec = fixtures.spec(folder)
    if not with_node_exporter:
        spec = dataclasses.replace(spec, node_exporter=None)
    return sequence.steps(spec, clock=virtual_time.clock())


async def test_retired_part_is_removed_with_its_stamp(tmp_path: Path) -> None:
    before, after = (steps(tmp_path, with_node_exporter=each) for each in (True, False))
    template = await MacTemplate.make(tmp_path / "macs", *before)
    connection = template.copy("mac")
    stamps = drift.read_stamps(await connection.probe([drift.STAMPS_FILE]))
    planned = sequence.retired_part_steps(after, stamps)
    assert [step.name for step in planned] == ["without-node-exporter"]

    await interrupt_everywhere(template, planned)
    await converge.apply(connection, planned)

    assert not connection.mac.files.exists(host.NODE_EXPORTER_BINARY)
    remaining = drift.read_stamps(await connection.probe([drift.STAMPS_FILE]))
    assert remaining == drift.without_part(stamps, drift.Part.NODE_EXPORTER)
    assert sequence.retired_part_steps(after, remaining) == []
    assert (await converge.plan(connection, after)).is_empty


async def test_desired_part_is_not_retired(tmp_path: Path) -> None:
    before = steps(tmp_path, with_node_exporter=True)
    connection = (await MacTemplate.make(tmp_path / "macs", *before)).copy("mac")

    assert (
        sequence.retired_part_steps(
            before, drift.read_stamps(await connection.probe([drift.STAMPS_FILE]))
        )
        == []
    )


async def test_part_without_a_stamp_is_not_removed(tmp_path: Path) -> None:
    assert sequence.retired_part_steps(steps(tmp_path, with_node_exporter=False), {}) == []
