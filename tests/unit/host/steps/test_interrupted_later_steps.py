"""Updates and removals, each step interrupted after every command and run again: the result is that of an uninterrupted run.

A resumed step leaves the Mac as an uninterrupted one does, so everything after it is the same, too: interrupting each step by itself
covers every interruption of a whole run. The bootstrap of a bare Mac is interrupted in tests/scenarios/host_bootstrap.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from bramley.host import converge, removal, sequence
from bramley.host.spec import Egress, MacSpec
from bramley.host.step import Step
from tests import virtual_time
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.interruption import MacTemplate, interrupt_everywhere


def steps(spec: MacSpec) -> list[Step]:
    return sequence.steps(spec, clock=virtual_time.clock())


def newer(folder: Path, spec: MacSpec) -> MacSpec:
    """Return a specification in which every part has changed."""
    assert spec.tailnet
    return dataclasses.replace(
        spec,
        job=dataclasses.replace(spec.job, node_labels={"rack": "7"}),
        kubeconfig=fixtures.agent_kubeconfig(server="https://other.example"),
        egress=Egress(private_network="172.20.0.0/24"),
        tart=fixtures.tart(folder, "2.33.0"),
        replace_tart=True,
        interpreter=fixtures.interpreter(folder, fixtures.NEWER_PYTHON),
        agent=fixtures.agent(folder, fixtures.NEWER_AGENT, python=fixtures.NEWER_PYTHON),
        tailnet=dataclasses.replace(
            spec.tailnet, binaries=fixtures.tailscale(folder, "1.98.0"), tags=("tag:other",)
        ),
        node_exporter=fixtures.node_exporter(folder, "1.9.0"),
    )


async def interrupt_each_step(
    template: MacTemplate, planned: Sequence[Step], *, uninterrupted: Collection[str] = ()
) -> list[str]:
    """Interrupt each step after every command, except the named ones; return the names of the interrupted steps."""
    interrupted = []
    for step in planned:
        connection = template.copy(f"before-{step.name}")
        template = MacTemplate(template.root / step.name)
        template.root.mkdir()
        connection.mac.root.rename(template.root / "start")
        if (
            step.name in uninterrupted
            or (await converge.plan(template.copy("planned"), [step])).is_empty
        ):
            await converge.apply(template.copy("uninterrupted"), [step])
        else:
            await interrupt_everywhere(template, [step])
            interrupted.append(step.name)
        after = MacTemplate(template.root.parent / f"after-{step.name}")
        after.root.mkdir()
        (template.root / "uninterrupted").rename(after.root / "start")
        shutil.rmtree(template.root)
        template = after
    return interrupted


async def test_interrupted_update_of_every_part_converges(tmp_path: Path) -> None:
    before = fixtures.spec(tmp_path)
    planned = steps(newer(tmp_path, before))

    others = {step.name for step in planned} - {"tart", "kubeconfig", "agent", "agent-job"}

    template = await MacTemplate.make(tmp_path / "macs", *steps(before))

    assert len(await interrupt_each_step(template, planned, uninterrupted=others)) == 4


async def test_interrupted_removal_converges(tmp_path: Path) -> None:
    planned = removal.steps("m1", keep_tart=False)
    interrupted = {"agent-job", "node-exporter", "tailscale", "firewall", "auto-login"}
    template = await MacTemplate.make(tmp_path / "macs", *steps(fixtures.spec(tmp_path)))

    others = {step.name for step in planned} - interrupted
    assert set(await interrupt_each_step(template, planned, uninterrupted=others)) == interrupted
