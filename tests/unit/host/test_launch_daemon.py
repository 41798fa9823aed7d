"""A launchd daemon: loaded from exactly its property list, despite any interruption."""

from __future__ import annotations

import plistlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from bramley.api.names import launchd
from bramley.host import converge, launch_daemon
from bramley.host.commands import Command, Probe, Write
from bramley.host.facts import Facts, RunResult
from bramley.host.launch_daemon import LaunchDaemon
from bramley.host.step import Step
from bramley.sim.macos import launchd as sim_launchd
from bramley.sim.macos.connection import ModelConnection
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.interruption import MacTemplate, interrupt_everywhere, wait_until_up

LABEL = "dev.tuist.example"


@dataclass(frozen=True)
class DaemonStep:
    """A step with one daemon."""

    name: ClassVar[str] = "example"
    title: ClassVar[str] = "a daemon"

    daemon: LaunchDaemon

    def desired(self) -> None:
        """Stamp nothing."""

    def probes(self) -> list[Probe]:
        return self.daemon.probes()

    def check_supported(self, facts: Facts) -> None:
        """Refuse nothing."""

    def plan(self, facts: Facts) -> Iterator[Command]:
        yield from self.daemon.plan(facts)


def daemon_step(*arguments: str) -> Step:
    plist = {
        "Label": LABEL,
        "ProgramArguments": ["/usr/bin/true", *arguments],
        "RunAtLoad": True,
        "KeepAlive": True,
    }
    return DaemonStep(LaunchDaemon(LABEL, plistlib.dumps(plist)))


def arguments(connection: ModelConnection) -> list[str]:
    return [
        str(word)
        for word in connection.mac.state["launchd"]["jobs"][f"system/{LABEL}"]["arguments"]
    ]


async def test_changed_plist_is_loaded(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, daemon_step("old"))

    await converge.apply(connection, [daemon_step("new")])

    assert arguments(connection)[1:] == ["new"]


async def test_interrupted_load_is_detected_by_the_next_plan(tmp_path: Path) -> None:
    """launchd does not report which property list it has loaded, so the running arguments are compared."""
    connection = await fixtures.mac(tmp_path, daemon_step("old"))
    connection.mac.root.rename(tmp_path / "start")

    expected = await interrupt_everywhere(MacTemplate(tmp_path), [daemon_step("new")])

    assert expected["state"]["launchd"]["jobs"][f"system/{LABEL}"]["arguments"][1:] == ["new"]


@pytest.mark.parametrize(("owner", "mode"), [("m1:staff", 0o644), ("root:wheel", 0o666)])
async def test_owner_and_mode_are_repaired_while_the_daemon_runs(
    owner: str, mode: int, tmp_path: Path
) -> None:
    """launchd would refuse it only at the next boot."""
    step = daemon_step()
    connection = await fixtures.mac(tmp_path, step)
    path, pid = launchd.daemon_plist(LABEL), sim_launchd.pid_of(connection.mac.state, LABEL)
    connection.mac.files.write(path, connection.mac.files.read(path) or b"", mode=mode, owner=owner)

    await converge.apply(connection, [step])
    connection.mac.reboot()
    await wait_until_up(connection.mac)

    assert [type(command) for command in connection.done] == [Write]
    assert pid is not None
    assert arguments(connection)[0] == "/usr/bin/true"


def test_pid_is_parsed_from_launchctl_print() -> None:
    output = b"system/x = {\n\tstate = running\n\n\tpid = 4711\n\tlast exit code = 0\n}\n"

    assert launch_daemon.pid(RunResult(0, output)) == 4711
    assert launch_daemon.pid(RunResult(0, b"system/x = {\n\tstate = spawn scheduled\n}\n")) == 0
    assert launch_daemon.pid(RunResult(113, b"pid = 1")) == 0
