"""The first step that reboots the Mac, on a Mac with all earlier steps applied, interrupted after every command.

The others, and this one on a bare Mac, are interrupted with the whole bootstrap in tests/scenarios/host_bootstrap.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.base.secret import Secret
from bramley.host.step import Step
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.local_network import LocalNetwork
from bramley.host.steps.sudo import Sudo
from tests.unit.host.steps.interruption import PASSWORD, MacTemplate, interrupt_everywhere

SUDO = Sudo("m1", Secret(PASSWORD))
AUTO_LOGIN = AutoLogin("m1", Secret(PASSWORD))
# The earlier steps; applied again with the step, they repair what it leaves to them.
BEFORE: list[Step] = [SUDO, AUTO_LOGIN]


@pytest.mark.parametrize("step", [LocalNetwork("m1")], ids=lambda step: step.name)
async def test_interrupted_step_converges(step: Step, tmp_path: Path) -> None:
    template = await MacTemplate.make(tmp_path, *BEFORE)

    await interrupt_everywhere(template, [*BEFORE, step])
