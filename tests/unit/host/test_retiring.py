"""A part that a Mac was given once and that is wanted no more: taken away with its stamp, and only then."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from bramley.api.names import host
from bramley.base import virtual_time
from bramley.host import drift, ensuring, retiring, sequence
from bramley.host.step import Step
from tests.unit.host.steps import wanted
from tests.unit.host.steps.cutting import Scene, cut_everywhere


def steps(folder: Path, *, with_node_exporter: bool) -> list[Step]:
    spec = wanted.spec(folder)
    if not with_node_exporter:
        spec = dataclasses.replace(spec, node_exporter=None)
    return sequence.steps(spec, clock=virtual_time.clock())


async def test_a_part_that_is_left_out_goes_with_its_stamp_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    before, after = (steps(tmp_path, with_node_exporter=each) for each in (True, False))
    scene = await Scene.make(tmp_path / "macs", *before)
    line = scene.copy("asked")
    stamps = await ensuring.stamps_of(line)
    planned = retiring.steps(after, stamps)
    assert [step.name for step in planned] == ["without-node-exporter"]

    await cut_everywhere(scene, planned)
    await ensuring.apply(line, planned)

    assert not line.mac.files.exists(host.NODE_EXPORTER_BINARY)
    left = await ensuring.stamps_of(line)
    assert left == drift.removed(stamps, drift.Part.NODE_EXPORTER)
    assert retiring.steps(after, left) == []
    assert (await ensuring.plan(line, after)).is_empty


async def test_what_all_steps_want_is_not_retired(tmp_path: Path) -> None:
    before = steps(tmp_path, with_node_exporter=True)
    line = (await Scene.make(tmp_path / "macs", *before)).copy("asked")

    assert retiring.steps(before, await ensuring.stamps_of(line)) == []


async def test_what_has_no_stamp_of_ours_is_left_alone(tmp_path: Path) -> None:
    assert retiring.steps(steps(tmp_path, with_node_exporter=False), {}) == []
