"""A builder over real SSH: its tools, its runner with a process of its own, the same state as in process, and its removal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bramley.api.names import host
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.host import converge, removal, sequence, ssh
from bramley.host.artifacts import ArtifactStore
from bramley.host.ssh import Credentials, Target
from bramley.host.step import Step
from bramley.host.steps.auto_login import AutoLogin
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from bramley.sim.ssh.server import SimulatedHost
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.interruption import PASSWORD

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is Linux's"),
]
SETTINGS = Settings(xcode=True, homebrew=True, login_seconds=0.0, bootout_seconds=0.0)
TARGET = f"gui/501/actions.runner.tuist.{fixtures.NODE}"


def builder_steps(folder: Path) -> list[Step]:
    names = {"xcode", "builder-tools", "build-environment", "actions-runner"}
    planned = sequence.steps(fixtures.builder_spec(folder))
    chosen = [step for step in planned if step.name in names]
    assert len(chosen) == len(names)
    return [fixtures.SUDO, AutoLogin("m1", Secret(PASSWORD)), *chosen]


async def test_builder_is_set_up_over_ssh_and_removed_again(tmp_path: Path) -> None:
    steps = builder_steps(tmp_path)
    model = Mac.create(tmp_path / "model", settings=SETTINGS, clock=SystemClock())
    await converge.apply(ModelConnection(model, clock=SystemClock()), steps)
    async with SimulatedHost(tmp_path / "mac", settings=SETTINGS) as served:
        target = Target(
            host="127.0.0.1",
            port=served.port,
            user="m1",
            credentials=Credentials(password=Secret(PASSWORD)),
            name="mac",
        )
        async with ssh.open(target, clock=SystemClock(), artifacts=ArtifactStore()) as connection:
            await converge.apply(connection, steps)

            assert (await converge.plan(connection, steps)).is_empty
            state = served.mac.state
            assert state["launchd"]["jobs"][TARGET]["pid"]
            for key in ("homebrew", "xcode", "actions_runner"):
                assert state[key] == model.state[key]
            for path in ("/etc/zshenv", "/opt/actions-runner/.path", host.ACTIONS_RUNNER_NOTE):
                assert served.mac.files.read(path) == model.files.read(path)

            await converge.apply(connection, removal.steps("m1"))

        assert not [job for job in served.mac.state["launchd"]["jobs"] if "runner" in job]
        assert not served.mac.files.exists(host.ACTIONS_RUNNER)
        assert not served.mac.files.exists(host.BUILD_CACHE)
