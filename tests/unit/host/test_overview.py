"""What a Mac is like, for people: told of any user, and to those who may not use sudo."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.api.names import host
from bramley.api.names import launchd as names
from bramley.base import virtual_time
from bramley.base.secret import Secret
from bramley.host import agent_daemon, converge, report, sequence
from bramley.host.launch_daemon import LaunchDaemon
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.sudo import Sudo
from bramley.sim.macos import launchd, stand_ins
from bramley.sim.macos.call import Call
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from tests.unit.host.steps import wanted
from tests.unit.host.steps.cutting import PASSWORD


def mac(folder: Path, settings: Settings) -> ModelConnection:
    made = Mac.make(folder / "mac", settings=settings, clock=virtual_time.clock())
    return ModelConnection(made, clock=virtual_time.clock(), user=settings.user)


@pytest.mark.parametrize("uid", [501, 502])
async def test_any_user_is_told_whether_somebody_is_logged_in(tmp_path: Path, uid: int) -> None:
    line = mac(tmp_path, Settings(uid=uid))

    bare = await report.read_overview(line, "m1")
    await converge.apply(line, [Sudo("m1", Secret(PASSWORD)), AutoLogin("m1", Secret(PASSWORD))])
    made = await report.read_overview(line, "m1")

    assert (bare.graphical_session, bare.automatic_login) == (False, False)
    assert bare.password_sealed is None
    assert (made.graphical_session, made.automatic_login) == (True, True)
    assert made.password_sealed is False
    assert (made.macos, made.chip, made.cpus, made.memory_gib) == ("26.3", "arm64", 8, 16)
    assert made.free_gib == 380


async def test_what_was_applied_is_told_by_the_names_of_the_steps(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, *sequence.steps(wanted.spec(tmp_path))[1:])

    applied = (await report.read_overview(line, "m1")).applied

    assert {"agent-job", "local-network", "firewall", "agent"} <= {*applied} <= {*sequence.NAMES}


async def test_an_agent_that_runs_is_told_without_sudo(tmp_path: Path) -> None:
    daemon = LaunchDaemon(names.AGENT, agent_daemon.render_plist(wanted.JOB))
    line = await wanted.mac(tmp_path)
    line.mac.files.make_folder("/usr/local/bin")
    line.mac.files.write(host.AGENT_BINARY, stand_ins.daemon("tart-kubelet", "1"), mode=0o755)
    line.mac.files.write(daemon.path, daemon.plist)
    assert line.mac.run(Call(("launchctl", "bootstrap", "system", daemon.path), "root")).code == 0
    line.mac.files.remove(host.sudoers("m1"))

    found = await report.read_overview(line, "m1")

    assert not found.sudo_without_password
    assert found.agent_pid == launchd.pid_of(line.mac.state, names.AGENT)
    assert found.agent_pid is not None
