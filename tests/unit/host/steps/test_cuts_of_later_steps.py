"""Updates and removals, each of their steps cut after every command and run again: the Mac becomes what an uncut run makes of it.

A step that was resumed leaves the Mac as an uncut one does, so all that follows is the same, too: a walk from step to step stands
for every cut of a whole run. A bare Mac's whole bootstrap is cut everywhere in tests/scenarios/host_bootstrap.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from bramley.base import virtual_time
from bramley.host import ensuring, removing, sequence
from bramley.host.spec import Egress, MacSpec
from bramley.host.step import Step
from tests.unit.host.steps import wanted
from tests.unit.host.steps.cutting import Scene, cut_everywhere


def steps(spec: MacSpec) -> list[Step]:
    return sequence.steps(spec, clock=virtual_time.clock())


def newer(folder: Path, spec: MacSpec) -> MacSpec:
    """Return a Mac of which every part has changed."""
    assert spec.tailnet
    return dataclasses.replace(
        spec,
        job=dataclasses.replace(spec.job, node_labels={"rack": "7"}),
        kubeconfig=wanted.identity(server="https://other.example"),
        egress=Egress(private_network="172.20.0.0/24"),
        tart=wanted.tart(folder, "2.33.0"),
        replace_tart=True,
        interpreter=wanted.interpreter(folder, wanted.NEWER_PYTHON),
        agent=wanted.agent(folder, wanted.NEWER_AGENT, python=wanted.NEWER_PYTHON),
        tailnet=dataclasses.replace(
            spec.tailnet, binaries=wanted.tailscale(folder, "1.98.0"), tags=("tag:other",)
        ),
        node_exporter=wanted.node_exporter(folder, "1.9.0"),
    )


async def walk(scene: Scene, planned: Sequence[Step], *, but: Collection[str] = ()) -> list[str]:
    """Go from step to step and cut each one everywhere, but those; returns the ones that were cut."""
    cut = []
    for step in planned:
        line = scene.copy(f"before-{step.name}")
        scene = Scene(scene.root / step.name)
        scene.root.mkdir()
        line.mac.root.rename(scene.root / "begin")
        if step.name in but or (await ensuring.plan(scene.copy("asked"), [step])).is_empty:
            await ensuring.apply(scene.copy("whole"), [step])
        else:
            await cut_everywhere(scene, [step])
            cut.append(step.name)
        after = Scene(scene.root.parent / f"after-{step.name}")
        after.root.mkdir()
        (scene.root / "whole").rename(after.root / "begin")
        shutil.rmtree(scene.root)
        scene = after
    return cut


async def test_a_mac_of_which_every_part_has_changed(tmp_path: Path) -> None:
    before = wanted.spec(tmp_path)
    planned = steps(newer(tmp_path, before))

    others = {step.name for step in planned} - {"tart", "kubeconfig", "agent", "agent-job"}

    scene = await Scene.make(tmp_path / "macs", *steps(before))

    assert len(await walk(scene, planned, but=others)) == 4


async def test_a_mac_that_is_given_back(tmp_path: Path) -> None:
    planned = removing.steps("m1", keep_tart=False)
    cut = {"agent-job", "node-exporter", "tailscale", "firewall", "auto-login"}
    scene = await Scene.make(tmp_path / "macs", *steps(wanted.spec(tmp_path)))

    others = {step.name for step in planned} - cut
    assert set(await walk(scene, planned, but=others)) == cut
