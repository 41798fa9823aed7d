"""What a builder needs beside its runner: Xcode, tools in a fixed version, and the environment of builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.api.names import host
from bramley.base.errors import UnsupportedHost
from bramley.host import converge, removal
from bramley.host.step import Step
from bramley.host.steps import builder_tools
from bramley.host.steps.build_environment import LINE, BuildEnvironment
from bramley.host.steps.builder_tools import BuilderTools
from bramley.host.steps.xcode import Xcode
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.faults import Fail
from tests.unit.host.steps import cases, fixtures
from tests.unit.host.steps.cases import Case
from tests.unit.host.steps.interruption import MacTemplate, interrupt_everywhere

STEPS: list[Step] = [Xcode(), BuilderTools(), BuildEnvironment("m1")]
CASES = [
    pytest.param(step, case, id=f"{step.name}: {case}")
    for step in STEPS
    for case in cases.load(step.name.replace("-", "_"))
]


async def builder(folder: Path) -> ModelConnection:
    return await fixtures.mac(folder, settings=fixtures.BUILDER_SETTINGS)


@pytest.mark.parametrize(("step", "case"), CASES)
def test_plan_matches_case(step: Step, case: Case) -> None:
    case.check(step)


async def test_interrupted_steps_converge(tmp_path: Path) -> None:
    template = await MacTemplate.make(tmp_path, fixtures.SUDO, settings=fixtures.BUILDER_SETTINGS)

    state = (await interrupt_everywhere(template, STEPS))["state"]

    assert state["homebrew"]["pinned"] == ["packer"]
    assert state["homebrew"]["taps"] == ["hashicorp/tap"]
    assert state["xcode"] == {"selected": host.XCODE, "is_accepted": True}


async def test_versions_of_tools_are_facts(tmp_path: Path) -> None:
    connection = await builder(tmp_path)
    step = BuilderTools()
    assert builder_tools.versions(await connection.probe(step.probes())) == {}

    await converge.apply(connection, [Xcode(), step])

    assert builder_tools.versions(await connection.probe(step.probes())) == {
        "packer": "1.14.2",
        "crane": "0.20.6",
    }


async def test_xcode_without_compiler_is_reported_after_its_selection(tmp_path: Path) -> None:
    connection = await builder(tmp_path)
    connection.mac.files.remove(f"{host.XCODE}/Toolchains")

    with pytest.raises(UnsupportedHost, match="has no swift; order or reinstall this Mac"):
        await converge.apply(connection, [Xcode()])


async def test_packer_whose_pin_failed_is_not_left_unpinned(tmp_path: Path) -> None:
    connection = await builder(tmp_path)
    connection.faults.at(lambda one: "pin" in getattr(one, "argv", ()), Fail(1, "no"))
    with pytest.raises(Exception, match="keep packer in its version"):
        await converge.apply(connection, [Xcode(), BuilderTools()])

    await converge.apply(connection, [Xcode(), BuilderTools()])

    assert connection.mac.state["homebrew"]["pinned"] == ["packer"]


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, None), (b"export A=b\n", b"export A=b\n"), (b"export A=b", b"export A=b\n")],
)
async def test_removal_keeps_other_lines(
    before: bytes | None, after: bytes | None, tmp_path: Path
) -> None:
    connection = await builder(tmp_path)
    if before:
        connection.mac.files.write(host.ZSHENV, before)
    await converge.apply(connection, [BuildEnvironment("m1")])
    assert connection.mac.files.read(host.ZSHENV) == (after or b"") + LINE + b"\n"
    steps = [step for step in removal.steps("m1") if step.name == "build-environment"]

    await converge.apply(connection, steps)

    assert connection.mac.files.read(host.ZSHENV) == after
    assert not connection.mac.files.exists(host.BUILD_CACHE)
    assert not (await converge.apply(connection, steps)).is_changed
