"""The first steps on the model of a Mac: cut after every command and run again, they make the Mac what an uncut run makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.base import virtual_time
from bramley.base.secret import Secret
from bramley.host import ensuring
from bramley.host.step import Step
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.hostname import Hostname
from bramley.host.steps.local_network import LocalNetwork
from bramley.host.steps.preconditions import Preconditions
from bramley.host.steps.sleep import Sleep
from bramley.host.steps.ssh_keys import SshKeys
from bramley.host.steps.sudo import Sudo
from bramley.host.steps.updates import Updates
from tests.unit.host.steps.cutting import PASSWORD, Scene, cut_everywhere

SUDO = Sudo("m1", Secret(PASSWORD))
AUTO_LOGIN = AutoLogin("m1", Secret(PASSWORD))
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFleet fleet"
STEPS: list[Step] = [
    SUDO,
    SshKeys("m1", (KEY,)),
    Hostname("mac-01"),
    Sleep(),
    Updates(),
    AUTO_LOGIN,
    LocalNetwork("m1"),
]
# What must have been done before; where it is done again with the step, it repairs what the step leaves to it.
BEFORE: dict[str, list[Step]] = {"sudo": [], "local-network": [SUDO, AUTO_LOGIN]}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
async def test_a_step_that_was_cut_becomes_what_it_should(step: Step, tmp_path: Path) -> None:
    before = BEFORE.get(step.name, [SUDO])
    scene = await Scene.make(tmp_path, *before)

    await cut_everywhere(scene, [*before, step])


async def test_all_of_them_leave_nothing_to_do(tmp_path: Path) -> None:
    steps: list[Step] = [Preconditions("m1", virtual_time.clock()), *STEPS]
    line = (await Scene.make(tmp_path)).copy("all")

    await ensuring.apply(line, steps)
    done = len(line.done)
    again = await ensuring.apply(line, steps)

    assert not again.is_changed
    assert len(line.done) == done
    assert (await ensuring.plan(line, steps)).is_empty
