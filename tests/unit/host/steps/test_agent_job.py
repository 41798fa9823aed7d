"""The agent's launchd job: what it is loaded from, when its process is replaced, and that the new process keeps running."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import plistlib
import time
from pathlib import Path

import pytest

from bramley.api.names import host
from bramley.base.errors import BadConfiguration, NotConverged
from bramley.host import agent_daemon, converge, shared_probes
from bramley.host.agent_daemon import AgentJob
from bramley.host.commands import Command, Write
from bramley.host.facts import Facts, RunResult
from bramley.host.step import Step
from bramley.host.steps.agent import Agent
from bramley.host.steps.agent_job import Job, health_probe
from bramley.host.steps.interpreter import Interpreter
from bramley.host.steps.kubeconfig import Kubeconfig
from bramley.sim.macos import faults
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.mac import Mac
from tests.unit.host.steps import cases, fixtures
from tests.unit.host.steps.fixtures import JOB, NEWER_AGENT, PYTHON

LABEL = "dev.tuist.tart-kubelet"
PLIST = f"/Library/LaunchDaemons/{LABEL}.plist"
RESTART = f"sudo launchctl kickstart -k system/{LABEL}"
LOAD = f"sudo launchctl bootstrap system {PLIST}"
NO_GC = "--disable-vm-gc"


def installed(folder: Path, version: str = fixtures.AGENT) -> list[Step]:
    """Return the steps that install what the agent runs from."""
    return [
        Kubeconfig(fixtures.agent_kubeconfig(), fixtures.NODE, "m1"),
        Interpreter(fixtures.interpreter(folder)),
        Agent(fixtures.agent(folder, version), PYTHON),
    ]


async def running(folder: Path, job: AgentJob = JOB) -> ModelConnection:
    """Return a Mac on which the agent runs with this job."""
    return await fixtures.mac(folder, *installed(folder), Job(job))


def pid(connection: ModelConnection) -> int:
    return int(connection.mac.state["launchd"]["jobs"][f"system/{LABEL}"]["pid"])


def arguments(connection: ModelConnection) -> list[str]:
    found = plistlib.loads(connection.mac.files.read(PLIST) or b"")["ProgramArguments"]
    return [str(one) for one in found]


async def test_job_its_folders_and_its_log_are_created(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, *installed(tmp_path))

    await converge.apply(connection, [Job(JOB)])

    assert pid(connection)
    assert (connection.mac.files.mode(PLIST), connection.mac.files.owner(PLIST)) == (
        0o644,
        "root:wheel",
    )
    for path in ("/var/log/tart-vms", "/var/lib/tart-userdata", "/var/log/tart-kubelet.log"):
        assert connection.mac.files.owner(path) == "m1:staff"
    assert [text for text in fixtures.executed(connection) if f"write {PLIST} 0644 root:wheel check[plutil -lint {{}}]" in text]  # fmt: skip


@pytest.mark.parametrize(("is_builder", "has_flag"), [(True, True), (False, False), (None, False)])
async def test_vm_gc_is_disabled_only_on_builders(
    tmp_path: Path, is_builder: bool | None, has_flag: bool
) -> None:
    connection = await running(tmp_path, dataclasses.replace(JOB, is_builder=is_builder))

    assert (NO_GC in arguments(connection)) is has_flag


async def test_update_without_builder_setting_keeps_the_flag(tmp_path: Path) -> None:
    """A builder's VMs belong to no Pod: the garbage collector would delete them during a push."""
    connection = await running(tmp_path, dataclasses.replace(JOB, is_builder=True))

    await converge.apply(connection, [Job(dataclasses.replace(JOB, is_builder=None, max_pods=1))])

    assert NO_GC in arguments(connection)
    assert "--max-pods=1" in arguments(connection)


async def test_unreadable_plist_without_builder_setting_is_refused(tmp_path: Path) -> None:
    connection = await running(tmp_path)
    connection.mac.files.write(PLIST, b"<plist>")

    with pytest.raises(
        BadConfiguration, match="whether this Mac is a builder; set builder explicitly"
    ):
        await converge.apply(connection, [Job(dataclasses.replace(JOB, is_builder=None))])

    assert connection.done == []


async def test_plist_mode_is_repaired_without_a_restart(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, *installed(tmp_path), Job(JOB))
    path = "/Library/LaunchDaemons/dev.tuist.tart-kubelet.plist"
    connection.mac.files.at(path).chmod(0o664)

    await converge.apply(connection, [Job(JOB)])

    assert [text.split(":")[0] for text in fixtures.executed(connection)] == [
        f"write {path} 0644 root"
    ]


async def test_plist_without_read_permission_does_not_count_as_missing(tmp_path: Path) -> None:
    connection = await running(tmp_path, dataclasses.replace(JOB, is_builder=True))
    connection.mac.files.write(PLIST, connection.mac.files.read(PLIST) or b"", mode=0o600)

    with pytest.raises(
        BadConfiguration, match=r"cannot be read, so it is unknown whether this Mac is a builder"
    ):
        await converge.apply(connection, [Job(dataclasses.replace(JOB, is_builder=None))])

    await converge.apply(connection, [Job(dataclasses.replace(JOB, is_builder=True))])
    assert NO_GC in arguments(connection)


async def test_unchanged_job_is_neither_loaded_nor_restarted(tmp_path: Path) -> None:
    connection = await running(tmp_path)
    process = pid(connection)

    await converge.apply(connection, [*installed(tmp_path), Job(JOB)])

    assert connection.done == []
    assert pid(connection) == process


async def test_changed_plist_is_loaded_again(tmp_path: Path) -> None:
    connection = await running(tmp_path)
    process = pid(connection)

    await converge.apply(connection, [Job(dataclasses.replace(JOB, node_labels={"rack": "7"}))])

    done = fixtures.executed(connection)
    assert done.index(f"sudo launchctl bootout system/{LABEL}") < done.index(LOAD)
    assert RESTART not in done
    assert pid(connection) != process


async def test_new_release_restarts_only_the_process(tmp_path: Path) -> None:
    """launchd throttles a daemon that is loaded repeatedly, and VMs survive the replacement of the agent's process."""
    connection = await running(tmp_path)
    fixtures.run_vms(connection.mac, 2)
    process = pid(connection)

    await converge.apply(connection, [*installed(tmp_path, NEWER_AGENT), Job(JOB)])

    done = fixtures.executed(connection)
    assert [text for text in done if "launchctl" in text and text.startswith("sudo")] == [RESTART]
    assert pid(connection) != process
    assert len(connection.mac.state["processes"]) == 2
    assert (await converge.plan(connection, [*installed(tmp_path, NEWER_AGENT), Job(JOB)])).is_empty


@pytest.mark.parametrize(
    "file", [f"{fixtures.AGENT}/bin/tart-kubelet", f"python/{PYTHON}/bin/python3"]
)
async def test_damaged_file_is_repaired_while_vms_run(file: str, tmp_path: Path) -> None:
    """The file keeps its length and differs only in its modification time."""
    connection = await running(tmp_path)
    fixtures.run_vms(connection.mac, 2)
    process, path = pid(connection), f"/opt/tart-kubelet/{file}"
    original = connection.mac.files.read(path) or b""
    connection.mac.files.at(path).write_bytes(original[::-1])
    os.utime(connection.mac.files.at(path), (time.time() + 60, time.time() + 60))

    report = await converge.apply(connection, [*installed(tmp_path), Job(JOB)])

    assert connection.mac.files.read(path) == original
    assert [step for step, count in report.changed.items() if count] == [
        "agent" if fixtures.AGENT in file else "interpreter",
        "agent-job",
    ]
    assert pid(connection) != process
    assert len(connection.mac.state["processes"]) == 2
    assert (await converge.plan(connection, [*installed(tmp_path), Job(JOB)])).is_empty


async def test_damaged_release_is_replaced_by_two_adjacent_renames(tmp_path: Path) -> None:
    """The release is missing for one command only, however many files must be removed."""
    connection = await running(tmp_path)
    release = f"/opt/tart-kubelet/{fixtures.AGENT}"
    connection.mac.files.remove(f"{release}/manifest.json")

    await converge.apply(connection, installed(tmp_path))

    done = fixtures.executed(connection)
    moved_away = done.index(f"rename {release} /opt/tart-kubelet/.agent.damaged")
    assert done[moved_away + 1] == f"rename /opt/tart-kubelet/.agent.incoming {release}"
    assert done[-1] == "remove /opt/tart-kubelet/.agent.damaged"


async def test_interrupted_restart_is_done_by_the_next_run(tmp_path: Path) -> None:
    """The release was switched and the connection was lost: only the restart note shows that the process is older."""
    connection = await running(tmp_path)
    process = pid(connection)
    await converge.apply(connection, installed(tmp_path, NEWER_AGENT))
    assert pid(connection) == process

    await converge.apply(connection, [Job(JOB)])

    assert pid(connection) != process


async def test_process_that_was_not_replaced_is_reported(tmp_path: Path) -> None:
    connection = await running(tmp_path)
    await converge.apply(connection, installed(tmp_path, NEWER_AGENT))
    facts = await connection.probe(Job(JOB).probes())

    with pytest.raises(NotConverged, match="still runs in the process from before its restart"):
        Job(JOB).verify(facts)
    assert RESTART in [cases.command_text(command) for command in Job(JOB).plan(facts)]


async def test_same_pid_of_another_boot_needs_no_restart(tmp_path: Path) -> None:
    connection = await running(tmp_path)
    await converge.apply(connection, installed(tmp_path, NEWER_AGENT))
    facts = await connection.probe(Job(JOB).probes())
    after = facts.merged(Facts({shared_probes.BOOT_SESSION: RunResult(0, b"another-boot\n")}))

    assert (agent_daemon.is_restart_due(facts), agent_daemon.is_restart_due(after)) == (True, False)


async def test_slow_start_is_waited_for(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, *installed(tmp_path))
    faults.crash(connection.mac, LABEL)

    async def recover() -> None:
        await asyncio.sleep(20)
        faults.crash(connection.mac, LABEL, None)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(recover())
        await converge.apply(connection, [Job(JOB)])

    assert pid(connection)


class LoggingConnection(ModelConnection):
    """A connection to a Mac whose agent has written this to its log."""

    def __init__(self, mac: Mac, log: str) -> None:
        super().__init__(mac, clock=mac._clock)
        self._log = log

    async def execute(self, command: Command) -> None:
        await super().execute(command)
        if isinstance(command, Write) and command.path == host.AGENT_LOG:
            self.mac.files.write(command.path, self._log.encode())


async def test_crashing_agent_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, *installed(tmp_path))
    faults.crash(connection.mac, LABEL)

    log = [f"line {n}" for n in range(900)] + [
        "token=eyJhbGciOi.eyJzdWIi.c2ln",
        "cannot listen on :8080",
    ]

    with pytest.raises(NotConverged, match=r"step agent-job: .*tart-kubelet\.log") as caught:
        await converge.apply(LoggingConnection(connection.mac, "\n".join(log)), [Job(JOB)])

    message = str(caught.value)
    assert message.endswith(": line 899 | token=[hidden] | cannot listen on :8080")
    assert "line 890" not in message


async def test_agent_of_another_node_at_the_health_address_is_reported(tmp_path: Path) -> None:
    connection = await running(tmp_path)
    answer = Facts(
        {health_probe(JOB): RunResult(0, b"[+]node/mac-02 ok\n[+]ping ok\ncheck passed\n")}
    )
    facts = (await connection.probe(Job(JOB).probes())).merged(answer)

    with pytest.raises(NotConverged, match=r"is served by the agent of mac-02, not of mac-01"):
        Job(JOB).verify(facts)
    own = Facts({health_probe(JOB): RunResult(0, b"[+]node/mac-01 ok\n[+]ping ok\ncheck passed\n")})
    Job(JOB).verify(facts.merged(own))


async def test_stopped_agent_is_started(tmp_path: Path) -> None:
    connection = await running(tmp_path)
    faults.crash(connection.mac, LABEL)
    with connection.mac.change() as state:
        del state["launchd"]["jobs"][f"system/{LABEL}"]["pid"]
    faults.crash(connection.mac, LABEL, None)

    await converge.apply(connection, [Job(JOB)])

    assert RESTART in fixtures.executed(connection)
    assert pid(connection)


async def test_slow_bootout_is_waited_for(tmp_path: Path) -> None:
    connection = await running(tmp_path)
    with connection.mac.change() as state:
        state["settings"]["bootout_seconds"] = 7.0

    await converge.apply(connection, [Job(dataclasses.replace(JOB, max_pods=1))])

    assert "--max-pods=1" in arguments(connection)
    assert pid(connection)


async def test_disabled_job_is_enabled(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, *installed(tmp_path))
    with connection.mac.change() as state:
        state["launchd"]["disabled"][f"system/{LABEL}"] = True

    await converge.apply(connection, [Job(JOB)])

    assert pid(connection)
