"""A daemon of launchd: loaded from exactly its property list, whenever the line was cut on the way."""

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
from tests.unit.host.steps import wanted
from tests.unit.host.steps.cutting import Scene, come_back, cut_everywhere

LABEL = "dev.tuist.example"


@dataclass(frozen=True)
class Keeping:
    """Keep a daemon, and nothing else."""

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


def keeping(*words: str) -> Step:
    told = {
        "Label": LABEL,
        "ProgramArguments": ["/usr/bin/true", *words],
        "RunAtLoad": True,
        "KeepAlive": True,
    }
    return Keeping(LaunchDaemon(LABEL, plistlib.dumps(told)))


def words(line: ModelConnection) -> list[str]:
    return [str(word) for word in line.mac.state["launchd"]["jobs"][f"system/{LABEL}"]["arguments"]]


async def test_another_property_list_is_loaded(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, keeping("old"))

    await converge.apply(line, [keeping("new")])

    assert words(line)[1:] == ["new"]


async def test_a_cut_is_seen_by_the_next_plan(tmp_path: Path) -> None:
    """launchd does not tell which property list it has read, so what it runs is compared."""
    line = await wanted.mac(tmp_path, keeping("old"))
    line.mac.root.rename(tmp_path / "begin")

    expected = await cut_everywhere(Scene(tmp_path), [keeping("new")])

    assert expected["state"]["launchd"]["jobs"][f"system/{LABEL}"]["arguments"][1:] == ["new"]


@pytest.mark.parametrize(("owner", "mode"), [("m1:staff", 0o644), ("root:wheel", 0o666)])
async def test_a_list_that_is_not_roots_alone_is_put_right_under_its_running_daemon(
    owner: str, mode: int, tmp_path: Path
) -> None:
    """launchd would refuse it at the next start of the Mac, and nobody would know before."""
    step = keeping()
    line = await wanted.mac(tmp_path, step)
    path, pid = launchd.daemon_plist(LABEL), sim_launchd.pid_of(line.mac.state, LABEL)
    line.mac.files.write(path, line.mac.files.read(path) or b"", mode=mode, owner=owner)

    await converge.apply(line, [step])
    line.mac.reboot()
    await come_back(line.mac)

    assert [type(command) for command in line.done] == [Write]
    assert pid is not None
    assert words(line)[0] == "/usr/bin/true"


def test_the_process_of_a_daemon_is_read_from_what_launchctl_prints() -> None:
    told = b"system/x = {\n\tstate = running\n\n\tpid = 4711\n\tlast exit code = 0\n}\n"

    assert launch_daemon.pid(RunResult(0, told)) == 4711
    assert launch_daemon.pid(RunResult(0, b"system/x = {\n\tstate = spawn scheduled\n}\n")) == 0
    assert launch_daemon.pid(RunResult(113, b"pid = 1")) == 0
