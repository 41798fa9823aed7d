"""The overview of a Mac: for any user id, and without sudo."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.api.names import host
from bramley.api.names import launchd as names
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
from tests import virtual_time
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.interruption import PASSWORD


def mac(folder: Path, settings: Settings) -> ModelConnection:
    created = Mac.create(folder / "mac", settings=settings, clock=virtual_time.clock())
    return ModelConnection(created, clock=virtual_time.clock(), user=settings.user)


@pytest.mark.parametrize("uid", [501, 502])
async def test_session_and_automatic_login_of_any_uid(tmp_path: Path, uid: int) -> None:
    connection = mac(tmp_path, Settings(uid=uid))

    bare = await report.read_overview(connection, "m1")
    await converge.apply(connection, [Sudo("m1", Secret(PASSWORD))])
    readable = await report.read_overview(connection, "m1")
    await converge.apply(connection, [AutoLogin("m1", Secret(PASSWORD))])
    prepared = await report.read_overview(connection, "m1")

    # Only root can see them.
    assert (bare.graphical_session, bare.automatic_login) == (None, None)
    assert bare.password_sealed is None
    assert (readable.graphical_session, readable.automatic_login) == (False, False)
    assert (prepared.graphical_session, prepared.automatic_login) == (True, True)
    assert prepared.password_sealed is False
    assert (prepared.macos, prepared.chip, prepared.cpus, prepared.memory_gib) == (
        "26.3",
        "arm64",
        8,
        16,
    )
    assert prepared.free_gib == 380


async def test_applied_parts_have_the_names_of_steps(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, *sequence.steps(fixtures.spec(tmp_path))[1:])

    applied = (await report.read_overview(connection, "m1")).applied

    assert {"agent-job", "local-network", "firewall", "agent"} <= {*applied} <= {*sequence.NAMES}


async def test_running_agent_is_found_without_sudo(tmp_path: Path) -> None:
    daemon = LaunchDaemon(names.AGENT, agent_daemon.render_plist(fixtures.JOB))
    connection = await fixtures.mac(tmp_path)
    connection.mac.files.make_folder("/usr/local/bin")
    connection.mac.files.write(host.AGENT_BINARY, stand_ins.daemon("tart-kubelet", "1"), mode=0o755)
    connection.mac.files.write(daemon.path, daemon.plist)
    assert (
        connection.mac.run(Call(("launchctl", "bootstrap", "system", daemon.path), "root")).code
        == 0
    )
    connection.mac.files.remove(host.sudoers("m1"))

    overview = await report.read_overview(connection, "m1")

    assert not overview.sudo_without_password
    assert overview.agent_pid == launchd.pid_of(connection.mac.state, names.AGENT)
    assert overview.agent_pid is not None
