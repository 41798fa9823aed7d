"""The one of the first steps that restarts the Mac, on a Mac where all before it was done already: cut after every command.

The others, and this one on a bare Mac, are cut with the whole bootstrap in tests/scenarios/host_bootstrap.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.base.secret import Secret
from bramley.host.step import Step
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.local_network import LocalNetwork
from bramley.host.steps.sudo import Sudo
from tests.unit.host.steps.cutting import PASSWORD, Scene, cut_everywhere

SUDO = Sudo("m1", Secret(PASSWORD))
AUTO_LOGIN = AutoLogin("m1", Secret(PASSWORD))
# What must have been done before; done again with the step, it repairs what the step leaves to it.
BEFORE: list[Step] = [SUDO, AUTO_LOGIN]


@pytest.mark.parametrize("step", [LocalNetwork("m1")], ids=lambda step: step.name)
async def test_a_step_that_was_cut_becomes_what_it_should(step: Step, tmp_path: Path) -> None:
    scene = await Scene.make(tmp_path, *BEFORE)

    await cut_everywhere(scene, [*BEFORE, step])
