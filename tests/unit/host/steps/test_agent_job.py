"""The agent's job: what it is loaded from, when its process is replaced, and that a new one goes on."""

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
from bramley.host.steps.agent_job import Job, health
from bramley.host.steps.interpreter import Interpreter
from bramley.host.steps.kubeconfig import Kubeconfig
from bramley.sim.macos import faults
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.mac import Mac
from tests.unit.host.steps import cases, wanted
from tests.unit.host.steps.wanted import JOB, NEWER_AGENT, PYTHON

LABEL = "dev.tuist.tart-kubelet"
PLIST = f"/Library/LaunchDaemons/{LABEL}.plist"
RESTART = f"sudo launchctl kickstart -k system/{LABEL}"
LOAD = f"sudo launchctl bootstrap system {PLIST}"
NO_GC = "--disable-vm-gc"


def before(folder: Path, version: str = wanted.AGENT) -> list[Step]:
    """Return what the agent runs from."""
    return [
        Kubeconfig(wanted.identity(), wanted.NODE, "m1"),
        Interpreter(wanted.interpreter(folder)),
        Agent(wanted.agent(folder, version), PYTHON),
    ]


async def running(folder: Path, job: AgentJob = JOB) -> ModelConnection:
    """Return a Mac on which the agent runs with this job."""
    return await wanted.mac(folder, *before(folder), Job(job))


def pid(line: ModelConnection) -> int:
    return int(line.mac.state["launchd"]["jobs"][f"system/{LABEL}"]["pid"])


def arguments(line: ModelConnection) -> list[str]:
    found = plistlib.loads(line.mac.files.read(PLIST) or b"")["ProgramArguments"]
    return [str(one) for one in found]


async def test_a_mac_gets_the_job_and_what_it_writes_to(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, *before(tmp_path))

    await converge.apply(line, [Job(JOB)])

    assert pid(line)
    assert (line.mac.files.mode(PLIST), line.mac.files.owner(PLIST)) == (0o644, "root:wheel")
    for path in ("/var/log/tart-vms", "/var/lib/tart-userdata", "/var/log/tart-kubelet.log"):
        assert line.mac.files.owner(path) == "m1:staff"
    assert [text for text in wanted.done(line) if f"write {PLIST} 0644 root:wheel check[plutil -lint {{}}]" in text]  # fmt: skip


@pytest.mark.parametrize(("is_builder", "has_flag"), [(True, True), (False, False), (None, False)])
async def test_builders_alone_keep_their_vms_from_the_collector(
    tmp_path: Path, is_builder: bool | None, has_flag: bool
) -> None:
    line = await running(tmp_path, dataclasses.replace(JOB, is_builder=is_builder))

    assert (NO_GC in arguments(line)) is has_flag


async def test_an_update_that_does_not_know_keeps_what_a_builder_has(tmp_path: Path) -> None:
    """Its VMs belong to no Pod: the collector would delete them in the middle of a push."""
    line = await running(tmp_path, dataclasses.replace(JOB, is_builder=True))

    await converge.apply(line, [Job(dataclasses.replace(JOB, is_builder=None, max_pods=1))])

    assert NO_GC in arguments(line)
    assert "--max-pods=1" in arguments(line)


async def test_an_unreadable_job_is_not_guessed_about(tmp_path: Path) -> None:
    line = await running(tmp_path)
    line.mac.files.write(PLIST, b"<plist>")

    with pytest.raises(BadConfiguration, match="say whether this Mac is a builder"):
        await converge.apply(line, [Job(dataclasses.replace(JOB, is_builder=None))])

    assert line.done == []


async def test_a_property_list_in_other_hands_is_taken_back_without_a_restart(
    tmp_path: Path,
) -> None:
    line = await wanted.mac(tmp_path, *before(tmp_path), Job(JOB))
    path = "/Library/LaunchDaemons/dev.tuist.tart-kubelet.plist"
    line.mac.files.at(path).chmod(0o664)

    await converge.apply(line, [Job(JOB)])

    assert [text.split(":")[0] for text in wanted.done(line)] == [f"write {path} 0644 root"]


async def test_a_job_that_our_user_may_not_read_is_not_taken_for_none(tmp_path: Path) -> None:
    line = await running(tmp_path, dataclasses.replace(JOB, is_builder=True))
    line.mac.files.write(PLIST, line.mac.files.read(PLIST) or b"", mode=0o600)

    with pytest.raises(BadConfiguration, match="cannot be read; say whether this Mac is a builder"):
        await converge.apply(line, [Job(dataclasses.replace(JOB, is_builder=None))])

    await converge.apply(line, [Job(dataclasses.replace(JOB, is_builder=True))])
    assert NO_GC in arguments(line)


async def test_the_same_job_is_neither_loaded_nor_restarted_again(tmp_path: Path) -> None:
    line = await running(tmp_path)
    process = pid(line)

    await converge.apply(line, [*before(tmp_path), Job(JOB)])

    assert line.done == []
    assert pid(line) == process


async def test_another_job_is_loaded_anew(tmp_path: Path) -> None:
    line = await running(tmp_path)
    process = pid(line)

    await converge.apply(line, [Job(dataclasses.replace(JOB, node_labels={"rack": "7"}))])

    done = wanted.done(line)
    assert done.index(f"sudo launchctl bootout system/{LABEL}") < done.index(LOAD)
    assert RESTART not in done
    assert pid(line) != process


async def test_new_code_restarts_the_process_alone(tmp_path: Path) -> None:
    """macOS holds repeated loads against a daemon, and VMs run on below a process that is replaced."""
    line = await running(tmp_path)
    wanted.run_vms(line.mac, 2)
    process = pid(line)

    await converge.apply(line, [*before(tmp_path, NEWER_AGENT), Job(JOB)])

    done = wanted.done(line)
    assert [text for text in done if "launchctl" in text and text.startswith("sudo")] == [RESTART]
    assert pid(line) != process
    assert len(line.mac.state["processes"]) == 2
    assert (await converge.plan(line, [*before(tmp_path, NEWER_AGENT), Job(JOB)])).is_empty


@pytest.mark.parametrize(
    "file", [f"{wanted.AGENT}/bin/tart-kubelet", f"python/{PYTHON}/bin/python3"]
)
async def test_what_the_agent_runs_from_is_mended_under_running_vms(
    file: str, tmp_path: Path
) -> None:
    """A file of the same length, which only its time tells from the one before."""
    line = await running(tmp_path)
    wanted.run_vms(line.mac, 2)
    process, path = pid(line), f"/opt/tart-kubelet/{file}"
    right = line.mac.files.read(path) or b""
    line.mac.files.at(path).write_bytes(right[::-1])
    os.utime(line.mac.files.at(path), (time.time() + 60, time.time() + 60))

    report = await converge.apply(line, [*before(tmp_path), Job(JOB)])

    assert line.mac.files.read(path) == right
    assert [step for step, count in report.changed.items() if count] == [
        "agent" if wanted.AGENT in file else "interpreter",
        "agent-job",
    ]
    assert pid(line) != process
    assert len(line.mac.state["processes"]) == 2
    assert (await converge.plan(line, [*before(tmp_path), Job(JOB)])).is_empty


async def test_what_is_replaced_is_there_until_the_next_one_is(tmp_path: Path) -> None:
    """Between the two there is one command, however many files have to be removed."""
    line = await running(tmp_path)
    place = f"/opt/tart-kubelet/{wanted.AGENT}"
    line.mac.files.remove(f"{place}/manifest.json")

    await converge.apply(line, before(tmp_path))

    done = wanted.done(line)
    away = done.index(f"rename {place} /opt/tart-kubelet/.agent.damaged")
    assert done[away + 1] == f"rename /opt/tart-kubelet/.agent.incoming {place}"
    assert done[-1] == "remove /opt/tart-kubelet/.agent.damaged"


async def test_a_restart_that_was_cut_off_is_made_up_for(tmp_path: Path) -> None:
    """The code was switched and the line was lost: nothing but the note says that the process is older."""
    line = await running(tmp_path)
    process = pid(line)
    await converge.apply(line, before(tmp_path, NEWER_AGENT))
    assert pid(line) == process

    await converge.apply(line, [Job(JOB)])

    assert pid(line) != process


async def test_a_process_that_is_not_replaced_is_told(tmp_path: Path) -> None:
    line = await running(tmp_path)
    await converge.apply(line, before(tmp_path, NEWER_AGENT))
    facts = await line.probe(Job(JOB).probes())

    with pytest.raises(NotConverged, match="still has the process from before its restart"):
        Job(JOB).verify(facts)
    assert RESTART in [cases.shown(command) for command in Job(JOB).plan(facts)]


async def test_a_process_of_another_start_with_the_same_number_is_no_older_one(
    tmp_path: Path,
) -> None:
    line = await running(tmp_path)
    await converge.apply(line, before(tmp_path, NEWER_AGENT))
    facts = await line.probe(Job(JOB).probes())
    after = facts.merged(Facts({shared_probes.BOOT_SESSION: RunResult(0, b"of another start\n")}))

    assert (agent_daemon.is_restart_due(facts), agent_daemon.is_restart_due(after)) == (True, False)


async def test_an_agent_that_takes_its_time_is_waited_for(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, *before(tmp_path))
    faults.crash(line.mac, LABEL)

    async def mend() -> None:
        await asyncio.sleep(20)
        faults.crash(line.mac, LABEL, None)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(mend())
        await converge.apply(line, [Job(JOB)])

    assert pid(line)


class Logging(ModelConnection):
    """A line to a Mac whose agent has written this into its log."""

    def __init__(self, mac: Mac, said: str) -> None:
        super().__init__(mac, clock=mac._clock)
        self._said = said

    async def do(self, command: Command) -> None:
        await super().do(command)
        if isinstance(command, Write) and command.path == host.AGENT_LOG:
            self.mac.files.write(command.path, self._said.encode())


async def test_an_agent_that_ends_at_once_is_told_with_its_last_words(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, *before(tmp_path))
    faults.crash(line.mac, LABEL)

    said = [f"line {n}" for n in range(900)] + [
        "token=eyJhbGciOi.eyJzdWIi.c2ln",
        "cannot listen on :8080",
    ]

    with pytest.raises(NotConverged, match=r"step agent-job: .*tart-kubelet\.log") as caught:
        await converge.apply(Logging(line.mac, "\n".join(said)), [Job(JOB)])

    told = str(caught.value)
    assert told.endswith(": line 899 | token=[hidden] | cannot listen on :8080")
    assert "line 890" not in told


async def test_the_agent_of_another_node_at_its_address_is_told_and_not_taken_for_its_own(
    tmp_path: Path,
) -> None:
    line = await running(tmp_path)
    answer = Facts({health(JOB): RunResult(0, b"[+]node/mac-02 ok\n[+]ping ok\ncheck passed\n")})
    facts = (await line.probe(Job(JOB).probes())).merged(answer)

    with pytest.raises(NotConverged, match=r"is the agent of mac-02, and not of mac-01; end it"):
        Job(JOB).verify(facts)
    own = Facts({health(JOB): RunResult(0, b"[+]node/mac-01 ok\n[+]ping ok\ncheck passed\n")})
    Job(JOB).verify(facts.merged(own))


async def test_an_agent_that_is_down_is_started(tmp_path: Path) -> None:
    line = await running(tmp_path)
    faults.crash(line.mac, LABEL)
    with line.mac.change() as state:
        del state["launchd"]["jobs"][f"system/{LABEL}"]["pid"]
    faults.crash(line.mac, LABEL, None)

    await converge.apply(line, [Job(JOB)])

    assert RESTART in wanted.done(line)
    assert pid(line)


async def test_a_job_that_takes_its_time_to_end_is_waited_for(tmp_path: Path) -> None:
    line = await running(tmp_path)
    with line.mac.change() as state:
        state["settings"]["bootout_seconds"] = 7.0

    await converge.apply(line, [Job(dataclasses.replace(JOB, max_pods=1))])

    assert "--max-pods=1" in arguments(line)
    assert pid(line)


async def test_a_job_that_somebody_switched_off_is_switched_on(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, *before(tmp_path))
    with line.mac.change() as state:
        state["launchd"]["disabled"][f"system/{LABEL}"] = True

    await converge.apply(line, [Job(JOB)])

    assert pid(line)
