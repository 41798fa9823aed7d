"""The verification: what is not so is told by its name, and a Mac that filters nothing is restarted unless VMs run."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from bramley.base.errors import NotConverged, TimedOut, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import converge, kcpassword, shared_probes
from bramley.host.commands import Command, Probe, Run
from bramley.host.facts import Facts, RunResult
from bramley.host.spec import Egress
from bramley.host.step import Step
from bramley.host.steps import agent_job
from bramley.host.steps.agent import Agent
from bramley.host.steps.agent_job import Job
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.firewall import Firewall
from bramley.host.steps.interpreter import Interpreter
from bramley.host.steps.kubeconfig import Kubeconfig
from bramley.host.steps.local_network import LocalNetwork
from bramley.host.steps.verification import Verification
from bramley.sim.macos import faults, launchd
from bramley.sim.macos.call import Call
from bramley.sim.macos.connection import ModelConnection
from tests.unit.host.steps import cases, wanted
from tests.unit.host.steps.cutting import PASSWORD
from tests.unit.host.steps.wanted import JOB, PYTHON

STEP = Verification(JOB)
LABEL = "dev.tuist.tart-kubelet"


async def made(folder: Path, *, restarts: bool = True) -> ModelConnection:
    """Return a Mac with all that is verified; without a restart its filter is not heeded yet."""
    local: list[Step] = [LocalNetwork("m1")] if restarts else []
    return await wanted.mac(
        folder,
        AutoLogin("m1", Secret(PASSWORD)),
        Firewall(Egress()),
        *local,
        Kubeconfig(wanted.identity(), wanted.NODE, "m1"),
        Interpreter(wanted.interpreter(folder)),
        Agent(wanted.agent(folder), PYTHON),
        Job(JOB),
    )


async def test_a_mac_that_is_ready_needs_nothing(tmp_path: Path) -> None:
    line = await made(tmp_path)

    report = await converge.apply(line, [STEP])

    assert line.done == []
    assert report.pending == ()


async def test_a_mac_that_filters_nothing_is_restarted(tmp_path: Path) -> None:
    line = await made(tmp_path, restarts=False)

    await converge.apply(line, [STEP])

    assert "reboot" in wanted.done(line)
    assert 'anchor "tuist.runners" all' in line.mac.state["pf"]["rulesets"][""]["rules"]
    assert (await converge.plan(line, [STEP])).is_empty


async def test_not_under_running_vms_which_is_told(tmp_path: Path) -> None:
    line = await made(tmp_path, restarts=False)
    wanted.run_vms(line.mac)

    report = await converge.apply(line, [STEP])

    assert line.done == []
    assert report.pending[0].startswith("RebootPending: the packet filter does not heed our rules")
    planned = await converge.plan(line, [STEP])
    assert (planned.is_empty, planned.is_converged) == (True, False)


@pytest.mark.parametrize("change", [{"filevault": True}, {"filevault_after": "restart"}])
async def test_a_mac_that_would_not_come_back_by_itself_is_not_restarted(
    change: dict[str, Any], tmp_path: Path
) -> None:
    line = await made(tmp_path, restarts=False)
    with line.mac.change() as state:
        state.update(change)

    report = await converge.apply(line, [STEP])

    assert (line.done, line.mac.is_up) == ([], True)
    assert "FileVault asks for a password at each start" in report.pending[0]


class Late(ModelConnection):
    """A line to a Mac whose agent starts a VM in its last moment."""

    async def do(self, command: Command) -> None:
        if isinstance(command, Run) and "bootout" in command.argv:
            wanted.run_vms(self.mac)
        await super().do(command)


async def test_a_vm_that_starts_meanwhile_is_not_ended_and_keeps_its_agent(tmp_path: Path) -> None:
    mac = (await made(tmp_path, restarts=False)).mac
    boot = mac.state["boot"]["boot_id"]

    with pytest.raises(TimedOut, match="see that no VM has started meanwhile"):
        await converge.apply(Late(mac, clock=mac._clock), [STEP])

    assert mac.state["boot"]["boot_id"] == boot
    assert launchd.pid_of(mac.state, LABEL)


async def test_an_agent_that_is_about_to_go_down_with_its_mac_starts_no_vm(tmp_path: Path) -> None:
    line = await made(tmp_path, restarts=False)

    await converge.apply(line, [STEP])

    told = wanted.done(line)
    assert told[0] == f"sudo launchctl bootout system/{LABEL}"
    assert told.index(cases.shown(shared_probes.require_no_vms())) < told.index("reboot")
    assert launchd.pid_of(line.mac.state, LABEL)


@pytest.mark.parametrize("headless", [True, False])
async def test_loginwindow_is_restarted_only_if_the_start_has_logged_nobody_in(
    headless: bool, tmp_path: Path
) -> None:
    line = await made(tmp_path, restarts=False)
    with line.mac.change() as state:
        state["settings"].update(headless=headless, login_seconds=20)

    await converge.apply(line, [STEP])

    assert line.mac.state["console"]["user"] == "m1"
    kick = "sudo launchctl kickstart -k system/com.apple.loginwindow"
    assert (kick in wanted.done(line)) is headless


async def test_a_sealed_password_is_found_at_any_later_look(tmp_path: Path) -> None:
    line = await made(tmp_path)
    sealed = bytes(one ^ key for one, key in zip(b"<sealed>\0\0\0", kcpassword.KEY, strict=True))
    line.mac.files.write("/etc/kcpassword", sealed, mode=0o600)

    with pytest.raises(UnsupportedHost, match="the password is wrong"):
        await converge.apply(line, [STEP])


async def test_rules_that_are_not_in_force_are_found(tmp_path: Path) -> None:
    line = await made(tmp_path)
    line.mac.run(Call(("pfctl", "-a", "tuist.runners", "-F", "all"), "root"))

    with pytest.raises(NotConverged, match="rules of the packet filter are not in force"):
        await converge.apply(line, [STEP])


class Apart(ModelConnection):
    """A line to a Mac whose agent lives and does not get to its API server."""

    async def probe(self, probes: Collection[Probe]) -> Facts:
        facts = await super().probe(probes)
        ready = agent_job.readiness(JOB)
        return facts.merged(Facts({ready: RunResult(22)})) if ready in facts.answers else facts


async def test_an_agent_that_does_not_reach_its_api_server_is_found(tmp_path: Path) -> None:
    mac = (await made(tmp_path)).mac
    mac.files.write("/var/log/tart-kubelet.log", b"Lease not renewed: connection refused\n")
    line = Apart(mac, clock=mac._clock)

    planned = await converge.plan(line, [STEP])
    with pytest.raises(NotConverged, match="does not come to terms with its API server") as caught:
        await converge.apply(line, [STEP])

    (waits,) = planned.steps[0].commands
    assert not planned.is_converged
    for told in (waits.purpose, str(caught.value)):
        assert "--server" in told
        assert "ends with: Lease not renewed: connection refused" in told


async def test_a_mac_that_is_ready_is_asked_once(tmp_path: Path) -> None:
    line = await made(tmp_path)
    line.probes = 0

    assert (await converge.plan(line, [Job(JOB), STEP])).is_converged
    assert line.probes == 1


async def test_an_agent_that_died_since_and_a_user_who_is_logged_out_are_found(
    tmp_path: Path,
) -> None:
    line = await made(tmp_path)
    faults.crash(line.mac, LABEL)
    line.mac.run(Call(("launchctl", "kickstart", "-k", f"system/{LABEL}"), "root"))
    line.mac.run(Call(("killall", "-HUP", "loginwindow"), "root"))
    faults.protect(line.mac, launchd.LOGINWINDOW)

    with pytest.raises(NotConverged) as caught:
        await converge.apply(line, [STEP])

    assert "the agent does not answer on this Mac" in str(caught.value)
    assert "m1 is not logged in at the Mac" in str(caught.value)
    assert "besides, restart loginwindow: failed with code 1" in str(caught.value)
