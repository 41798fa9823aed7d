"""The verification: each failed check is reported, and a Mac whose packet filter is not attached is rebooted unless VMs run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bramley.api.names import host
from bramley.base.errors import NotConverged, TimedOut, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import actions_runner_job, converge, kcpassword, sequence, shared_probes
from bramley.host.commands import Command, Probe, Run
from bramley.host.facts import Facts, RunResult
from bramley.host.spec import Egress
from bramley.host.step import Step
from bramley.host.steps import agent_job, firewall
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
from tests.unit.host.steps import cases, fixtures
from tests.unit.host.steps.fixtures import JOB, PYTHON
from tests.unit.host.steps.interruption import PASSWORD

STEP = Verification(JOB)
LABEL = "dev.tuist.tart-kubelet"


async def provisioned(folder: Path, *, reboots: bool = True) -> ModelConnection:
    """Return a Mac with everything that is verified; without a reboot its rules are not attached yet."""
    local: list[Step] = [LocalNetwork("m1")] if reboots else []
    return await fixtures.mac(
        folder,
        AutoLogin("m1", Secret(PASSWORD)),
        Firewall(Egress()),
        *local,
        Kubeconfig(fixtures.agent_kubeconfig(), fixtures.NODE, "m1"),
        Interpreter(fixtures.interpreter(folder)),
        Agent(fixtures.agent(folder), PYTHON),
        Job(JOB),
    )


async def test_ready_mac_needs_no_commands(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path)

    report = await converge.apply(connection, [STEP])

    assert connection.done == []
    assert report.pending == ()


async def test_mac_without_packet_filter_is_rebooted(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path, reboots=False)

    await converge.apply(connection, [STEP])

    assert "reboot" in fixtures.executed(connection)
    assert 'anchor "tuist.runners" all' in connection.mac.state["pf"]["rulesets"][""]["rules"]
    assert (await converge.plan(connection, [STEP])).is_empty


async def test_reboot_is_pending_while_vms_run(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path, reboots=False)
    fixtures.run_vms(connection.mac)

    report = await converge.apply(connection, [STEP])

    assert connection.done == []
    assert report.pending[0].startswith("RebootPending: the packet filter does not apply our rules")
    planned = await converge.plan(connection, [STEP])
    assert (planned.is_empty, planned.is_converged) == (True, False)


async def test_builder_is_not_rebooted_under_a_job(tmp_path: Path) -> None:
    """A job needs no VM: it may build, or push an image."""
    connection = await provisioned(tmp_path, reboots=False)
    step = Verification(replace(JOB, is_builder=True))
    boot = connection.mac.state["boot"]["boot_id"]
    fixtures.run_job(connection.mac)

    report = await converge.apply(connection, [step])
    assert (connection.done, connection.mac.state["boot"]["boot_id"]) == ([], boot)
    assert report.pending[0].startswith("RebootPending: ")
    fixtures.run_job(connection.mac, ended=True)
    await converge.apply(connection, [step])

    executed = fixtures.executed(connection)
    check = cases.command_text(actions_runner_job.require_no_job())
    assert executed.index(check) == executed.index("reboot") - 1


@pytest.mark.parametrize("change", [{"filevault": True}, {"filevault_after": "restart"}])
async def test_mac_with_file_vault_is_not_rebooted(change: dict[str, Any], tmp_path: Path) -> None:
    connection = await provisioned(tmp_path, reboots=False)
    with connection.mac.change() as state:
        state.update(change)

    report = await converge.apply(connection, [STEP])

    assert (connection.done, connection.mac.is_up) == ([], True)
    assert "FileVault needs a password at the Mac's keyboard at each boot" in report.pending[0]


class LateVmConnection(ModelConnection):
    """A connection to a Mac whose agent starts a VM just before it is stopped."""

    async def execute(self, command: Command) -> None:
        if isinstance(command, Run) and "bootout" in command.argv:
            fixtures.run_vms(self.mac)
        await super().execute(command)


async def test_vm_that_starts_before_the_reboot_survives_with_its_agent(tmp_path: Path) -> None:
    mac = (await provisioned(tmp_path, reboots=False)).mac
    boot = mac.state["boot"]["boot_id"]

    with pytest.raises(TimedOut, match="check that no VM has started since"):
        await converge.apply(LateVmConnection(mac, clock=mac._clock), [STEP])

    assert mac.state["boot"]["boot_id"] == boot
    assert launchd.pid_of(mac.state, LABEL)


async def test_agent_is_stopped_before_the_reboot(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path, reboots=False)

    await converge.apply(connection, [STEP])

    executed = fixtures.executed(connection)
    check = cases.command_text(shared_probes.require_no_vms())
    assert executed[0] == f"sudo launchctl bootout system/{LABEL}"
    assert executed.index(check) < executed.index("reboot")
    assert launchd.pid_of(connection.mac.state, LABEL)


@pytest.mark.parametrize("headless", [True, False])
async def test_loginwindow_is_restarted_only_if_the_boot_started_no_session(
    headless: bool, tmp_path: Path
) -> None:
    connection = await provisioned(tmp_path, reboots=False)
    with connection.mac.change() as state:
        state["settings"].update(headless=headless, login_seconds=20)

    await converge.apply(connection, [STEP])

    assert connection.mac.state["console"]["user"] == "m1"
    kick = "sudo launchctl kickstart -k system/com.apple.loginwindow"
    assert (kick in fixtures.executed(connection)) is headless


async def test_rejected_password_is_detected_by_every_later_run(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path)
    sealed = bytes(one ^ key for one, key in zip(b"<sealed>\0\0\0", kcpassword.KEY, strict=True))
    connection.mac.files.write("/etc/kcpassword", sealed, mode=0o600)

    with pytest.raises(UnsupportedHost, match="the password is wrong"):
        await converge.apply(connection, [STEP])


async def test_missing_rules_are_reported(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path)
    connection.mac.run(Call(("pfctl", "-a", "tuist.runners", "-F", "all"), "root"))

    with pytest.raises(NotConverged, match="rules of the packet filter are not in force"):
        await converge.apply(connection, [STEP])


class UnreadyAgentConnection(ModelConnection):
    """A connection to a Mac whose agent runs and does not reach its API server."""

    async def probe(self, probes: Collection[Probe]) -> Facts:
        facts = await super().probe(probes)
        ready = agent_job.readiness_probe(JOB)
        return facts.merged(Facts({ready: RunResult(22)})) if ready in facts.results else facts


async def test_agent_without_its_api_server_is_reported(tmp_path: Path) -> None:
    mac = (await provisioned(tmp_path)).mac
    mac.files.write("/var/log/tart-kubelet.log", b"Lease not renewed: connection refused\n")
    connection = UnreadyAgentConnection(mac, clock=mac._clock)

    planned = await converge.plan(connection, [STEP])
    with pytest.raises(NotConverged, match="cannot work with its API server") as caught:
        await converge.apply(connection, [STEP])

    (wait,) = planned.steps[0].commands
    assert not planned.is_converged
    for message in (wait.purpose, str(caught.value)):
        assert "--server" in message
        assert "ends with: Lease not renewed: connection refused" in message


async def test_ready_mac_needs_one_round_trip(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path)
    connection.probes = 0

    assert (await converge.plan(connection, [Job(JOB), STEP])).is_converged
    assert connection.probes == 1


async def test_dead_agent_and_missing_session_are_reported_together(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path)
    faults.crash(connection.mac, LABEL)
    connection.mac.run(Call(("launchctl", "kickstart", "-k", f"system/{LABEL}"), "root"))
    connection.mac.run(Call(("killall", "-HUP", "loginwindow"), "root"))
    faults.protect(connection.mac, launchd.LOGINWINDOW)

    with pytest.raises(NotConverged) as caught:
        await converge.apply(connection, [STEP])

    assert "the agent does not respond on this Mac" in str(caught.value)
    assert "m1 is not logged in at the Mac" in str(caught.value)
    assert "also: restart loginwindow: failed with code 1" in str(caught.value)


def end_session(connection: ModelConnection) -> None:
    connection.mac.run(Call(("killall", "-HUP", "loginwindow"), "root"))
    faults.protect(connection.mac, launchd.LOGINWINDOW)


def reject_password(connection: ModelConnection) -> None:
    sealed = bytes(one ^ key for one, key in zip(b"<sealed>\0\0\0", kcpassword.KEY, strict=True))
    connection.mac.files.write("/etc/kcpassword", sealed, mode=0o600)


def flush_rules(connection: ModelConnection) -> None:
    for arguments in (("-a", "tuist.runners", "-F", "all"), ("-F", "all")):
        connection.mac.run(Call(("pfctl", *arguments), "root"))


def stop_agent(connection: ModelConnection) -> None:
    faults.crash(connection.mac, LABEL)
    connection.mac.run(Call(("launchctl", "kickstart", "-k", f"system/{LABEL}"), "root"))


def note_boot(connection: ModelConnection) -> None:
    """Record the current boot as the one in which the allowlist was written: a reboot is pending."""
    session = connection.mac.run(Call(("sysctl", "-n", "kern.bootsessionuuid"), "m1")).out
    connection.mac.files.write(host.LOCAL_NETWORK_BOOT, session.encode())


SKIPS: dict[str, Callable[[ModelConnection], None]] = {
    "firewall": flush_rules,
    "auto-login": reject_password,
    "local-network": note_boot,
    "agent-job": stop_agent,
}


@pytest.mark.parametrize("name", SKIPS)
async def test_skipped_step_is_not_required(name: str, tmp_path: Path) -> None:
    connection = await provisioned(tmp_path)
    SKIPS[name](connection)
    steps = sequence.select([STEP], only=(), skip=(name,))

    report = await converge.apply(connection, steps)
    planned = await converge.plan(connection, steps)

    assert (connection.done, report.pending, planned.is_converged) == ([], (), True)
    assert not (await converge.plan(connection, [STEP])).is_converged


async def test_missing_session_is_not_required_if_automatic_login_is_skipped(
    tmp_path: Path,
) -> None:
    connection = await provisioned(tmp_path)
    end_session(connection)

    await converge.apply(connection, sequence.select([STEP], only=(), skip=("auto-login",)))

    assert connection.done == []


async def test_api_server_is_not_required_if_the_kubeconfig_is_skipped(tmp_path: Path) -> None:
    mac = (await provisioned(tmp_path)).mac
    connection = UnreadyAgentConnection(mac, clock=mac._clock)
    steps = sequence.select([STEP], only=(), skip=("kubeconfig",))

    await converge.apply(connection, steps)
    faults.crash(mac, LABEL)
    mac.run(Call(("launchctl", "kickstart", "-k", f"system/{LABEL}"), "root"))

    with pytest.raises(NotConverged, match="the agent does not respond"):
        await converge.apply(connection, steps)


class UnfilteredConnection(ModelConnection):
    """A connection to a Mac whose boot does not load the packet filter's file."""

    async def probe(self, probes: Collection[Probe]) -> Facts:
        facts = await super().probe(probes)
        if firewall.MAIN_RULES not in probes:
            return facts
        return facts.merged(Facts({firewall.MAIN_RULES: RunResult(0)}))


async def test_reboot_that_does_not_help_is_not_repeated(tmp_path: Path) -> None:
    mac = (await provisioned(tmp_path, reboots=False)).mac
    connection = UnfilteredConnection(mac, clock=mac._clock)

    report = await converge.apply(connection, [STEP])

    assert fixtures.executed(connection).count("reboot") == 1
    assert report.reboot.startswith("reboot the Mac, because VMs are not filtered until then")
    (pending,) = report.pending
    assert "this run has rebooted the Mac once already" in pending
    assert launchd.pid_of(mac.state, LABEL)


async def test_without_permission_to_reboot_the_agent_keeps_running(tmp_path: Path) -> None:
    connection = await provisioned(tmp_path, reboots=False)

    report = await converge.apply(connection, [STEP], no_reboot=True)
    planned = await converge.plan(connection, [STEP], no_reboot=True)

    assert (connection.done, report.reboot) == ([], "")
    assert report.pending == planned.pending
    assert "--no-reboot" in report.pending[0]
    assert (planned.is_empty, planned.is_converged) == (True, False)


async def test_session_that_the_reboot_ended_is_restored_if_automatic_login_is_skipped(
    tmp_path: Path,
) -> None:
    connection = await provisioned(tmp_path, reboots=False)
    with connection.mac.change() as state:
        state["settings"].update(headless=True)

    await converge.apply(connection, sequence.select([STEP], only=(), skip=("auto-login",)))

    assert connection.mac.state["console"]["user"] == "m1"
