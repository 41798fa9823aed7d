"""A bare simulated Mac becomes a Node over real SSH, with the agent's real archives: whole, again, cut anywhere, and updated.

One Mac is made without a cut; what it has become is what another, on which the line broke again and again, is held against.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bramley.api.core import Node, Pod
from bramley.api.names import host, labels
from bramley.app import macs
from bramley.base import errors
from bramley.host import converge
from bramley.host.converge import CommandStarted, Progress, Report
from bramley.sim.macos import stand_ins
from bramley.sim.ssh.faults import Do, Fault
from tests.process.bootstrap.kept import PATIENCE, Running, kept, until
from tests.process.bootstrap.macs import Mac, Place, bare, become, differing, newer_agent
from tests.process.serving.processes import running
from tools.agent_bundle import linux

WITHIN = timedelta(seconds=PATIENCE)


@dataclass(frozen=True)
class Made:
    """A Mac that was made without a cut, and what it was right then."""

    mac: Mac
    run: Running
    since: datetime
    report: Report
    became: dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running(tmp_path_factory.mktemp("server")) as process:
        yield Place(process.kubeconfig, linux.cached())


@pytest.fixture(scope="module")
def whole(server: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    root = tmp_path_factory.mktemp("whole") / "mac-1"
    with kept(lambda: bare(server, root, lambda _: None)) as (mac, run):
        since = moment(mac)
        report = run(make(mac))
        yield Made(mac, run, since, report, become(mac))


async def make(mac: Mac, tell: Callable[[Progress], None] = lambda _: None) -> Report:
    async with mac.connected() as line:
        return await converge.apply(line, mac.steps, on_progress=tell)


def moment(mac: Mac) -> datetime:
    """Return the time as Nodes write it."""
    return mac.fleet.clock.now().replace(microsecond=0)


async def wait_until_ready(mac: Mac, since: datetime) -> None:
    await macs.wait_until_ready(mac.fleet.kube, mac.name, since=since, within=WITHIN)


async def start_pod(mac: Mac, name: str) -> None:
    """Start a Pod on this Mac that works until it is deleted."""
    container = dict(macs.SAMPLE_POD["spec"]["containers"][0])
    container["env"] = [{"name": "BRAMLEY_SIM_WORK", "value": "3600"}]
    spec = {**macs.SAMPLE_POD["spec"], "containers": [container], "nodeName": mac.name}
    body = {**macs.SAMPLE_POD, "metadata": {"name": name}, "spec": spec}
    await mac.fleet.kube.create_wire(Pod.resource, body, namespace=macs.SAMPLE_NAMESPACE)

    async def is_running() -> bool:
        pod = await mac.fleet.kube.get(Pod, name, namespace=macs.SAMPLE_NAMESPACE)
        return pod.status.phase == "Running"

    await until(is_running)


async def end_pod(mac: Mac, name: str) -> None:
    await mac.fleet.kube.delete(Pod, name, namespace=macs.SAMPLE_NAMESPACE)

    async def is_gone() -> bool:
        pods = await mac.fleet.kube.list(Pod, namespace=macs.SAMPLE_NAMESPACE)
        return name not in [pod.name for pod in pods.items]

    await until(is_gone)


async def read_log(mac: Mac, name: str) -> bytes:
    text = b""
    async for block in mac.fleet.kube.logs(name, macs.SAMPLE_NAMESPACE):
        text += block
    return text


def test_a_bare_mac_becomes_a_node_that_runs_pods(whole: Made) -> None:
    async def story(mac: Mac) -> None:
        await wait_until_ready(mac, whole.since)
        node = await mac.fleet.kube.get(Node, mac.name)
        assert node.metadata.labels[labels.FLEET] == macs.FLEET
        await start_pod(mac, "worker")

        await until(lambda: says(mac, "worker", b"is up"))
        await end_pod(mac, "worker")

    changed = [name for name, count in whole.report.changed.items() if count]
    assert {"sudo", "auto-login", "firewall", "tart", "interpreter", "agent", "agent-job"} <= set(
        changed
    )
    assert whole.report.pending == ()
    whole.run(story(whole.mac))


def test_a_second_run_asks_once_and_writes_nothing(whole: Made) -> None:
    mac, before = whole.mac, become(whole.mac)
    heard, agent = len(mac.served.heard), mac.agent()

    async def again() -> tuple[converge.Plan, Report]:
        async with mac.connected() as line:
            return await converge.plan(line, mac.steps), await converge.apply(line, mac.steps)

    planned, report = whole.run(again())

    assert [one.step.name for one in planned.steps if one.commands or one.refusal] == []
    assert not report.is_changed
    # One question for the plan and one for the run.
    assert len(mac.served.heard) == heard + 2
    assert differing(become(mac), before) is None
    assert mac.agent() == agent


def test_a_node_that_was_deleted_comes_back_and_nobody_is_logged_out(whole: Made) -> None:
    mac = whole.mac
    kicks, boot = (mac.served.mac.state[part][key] for part, key in (("console", "kicked_count"), ("boot", "boot_id")))  # fmt: skip

    async def story() -> Report:
        # What a Node that is new says, only an agent that noticed can have said.
        since = moment(mac)
        await mac.fleet.kube.delete(Node, mac.name)
        report = await make(mac)
        await wait_until_ready(mac, since)
        return report

    report: Report = whole.run(story())

    assert not report.is_changed
    assert mac.served.mac.state["console"]["kicked_count"] == kicks
    assert mac.served.mac.state["boot"]["boot_id"] == boot


def test_an_update_of_the_agent_leaves_its_vms_and_all_other_parts_alone(
    whole: Made, tmp_path: Path
) -> None:
    mac = whole.mac
    # Its VM is looked for among all processes of this machine, where another run may have one, too.
    survivor = f"survivor-{secrets.token_hex(4)}"

    async def story() -> None:
        await start_pod(mac, survivor)
        store, before = mac.fleet.artifacts.store, mac.stamps()
        vm, agent = vm_of(survivor), mac.agent()
        path, version = newer_agent(mac.fleet.artifacts.agent, tmp_path)
        artifact = await store.load(path, name="tart-kubelet", version=version)
        since = moment(mac)
        async with mac.connected() as line:
            report = await converge.apply(line, mac.with_artifact("agent", artifact))

        changed = {name for name, count in report.changed.items() if count}
        assert changed == {"agent", "agent-job"}
        assert {part for part in before if mac.stamps()[part] != before[part]} == {"agent"}
        assert mac.agent() != agent
        assert mac.served.mac.files.target(host.AGENT_CURRENT) == host.agent_release(version)
        assert vm_of(survivor) == vm
        await wait_until_ready(mac, since)
        # By the port that the new agent has told.
        await until(lambda: says(mac, survivor, b"is up"))
        # Back to where the other tests have it.
        await make(mac)
        assert vm_of(survivor) == vm
        await end_pod(mac, survivor)

    whole.run(story())


async def says(mac: Mac, name: str, text: bytes) -> bool:
    try:
        return text in await read_log(mac, name)
    except errors.Unavailable:
        # Its agent begins just now.
        return False


def vm_of(pod: str) -> set[tuple[str, str]]:
    """Return the processes of a Pod's VM and when each was started, as this machine has them."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes()
            stat = (place / "stat").read_text()
        except OSError:
            continue
        if b"/tart\0run\0" in line and pod.encode() in line:
            found.add((place.name, stat.rpartition(")")[2].split()[19]))
    assert found
    return found


@pytest.mark.parametrize("is_running", [False, True], ids=["idle", "with a VM"])
def test_tart_stays_whatever_is_brought(whole: Made, tmp_path: Path, *, is_running: bool) -> None:
    """Neither a newer file nor another digest replaces it: only somebody who asks for that."""
    mac = whole.mac
    (tmp_path / "tart").write_bytes(stand_ins.tart("99.0.0"))
    signature = mac.served.mac.files.digest(f"{host.TART_BUNDLE}/{host.TART_IN_BUNDLE}")

    async def story() -> None:
        if is_running:
            await start_pod(mac, "with-tart")
        newer = await mac.fleet.artifacts.store.load(
            tmp_path / "tart", name="tart", version="99.0.0"
        )
        async with mac.connected() as line:
            report = await converge.apply(line, mac.with_artifact("tart", newer))
        assert not report.is_changed
        if is_running:
            await end_pod(mac, "with-tart")

    whole.run(story())

    assert mac.served.mac.files.digest(f"{host.TART_BUNDLE}/{host.TART_IN_BUNDLE}") == signature


@dataclass(frozen=True)
class Break:
    """Where the line breaks: at the first command whose purpose begins so; nowhere special is at whatever the fault matches."""

    where: str
    fault: Fault


def at(where: str, do: Do) -> Break:
    return Break(where, Fault(do=do, times=1))


def at_stamps(do: Do) -> Break:
    return Break("", Fault(do=do, match="*/applied.json*root:wheel*", times=1))


def within(artifact: str, count: int) -> Break:
    return Break(f"bring {artifact}", Fault(do=Do.CUT_AT, bytes=count, times=1))


# All on one Mac, each on the way that the one before left open: a sample, since a model of a Mac is cut after every command.
BREAKS = [
    at("check the password", Do.CUT_BEFORE),
    at("let m1 use sudo", Do.CUT_AFTER),
    at("restart loginwindow", Do.CUT_AFTER),
    at("put our rules in force", Do.CUT_AFTER),
    at_stamps(Do.CUT_AFTER),
    within("tart ", 500),
    at("set AllowedWiFi", Do.CUT_AFTER),
    at("write the agent's kubeconfig", Do.CUT_AFTER),
    within("tart-kubelet-python", 9_000_000),
    at("let the agent 0", Do.CUT_AFTER),
    at("load the job dev.tuist.tart-kubelet", Do.CUT_AFTER),
    at_stamps(Do.CUT_BEFORE),
]
IN_THE_RESTART = "set AllowedWiFi"


def breaking(mac: Mac, one: Break) -> Callable[[Progress], None]:
    """Let the line break when it comes to that command."""
    if not one.where:
        mac.served.faults.put(one.fault)

    def hear(news: Progress) -> None:
        if (
            one.where
            and isinstance(news, CommandStarted)
            and news.command.purpose.startswith(one.where)
        ):
            mac.served.faults.put(one.fault)

    return hear


async def leave_within_the_restart(mac: Mac) -> None:
    """Let whoever bootstraps be gone while the Mac is down."""
    making, before = asyncio.create_task(make(mac)), boot(mac)
    # A Mac may be back before a busy machine lets us look.
    while mac.served.mac.is_up and boot(mac) == before:
        assert not making.done(), "the Mac was not restarted"
        await asyncio.sleep(0.01)
    making.cancel()
    await asyncio.wait([making])
    assert making.cancelled()


def boot(mac: Mac) -> str:
    return str(mac.served.mac.state["boot"]["boot_id"])


def test_a_mac_whose_line_breaks_again_and_again_becomes_the_same(
    whole: Made, server: Place, tmp_path: Path
) -> None:
    async def story(mac: Mac) -> None:
        for one in BREAKS:
            with pytest.raises(errors.HostUnreachable):
                await make(mac, breaking(mac, one))
            mac.served.faults.clear()
            if one.where == IN_THE_RESTART:
                await leave_within_the_restart(mac)
        since = moment(mac)
        await make(mac)
        async with mac.connected() as line:
            planned = await converge.plan(line, mac.steps)
        assert planned.is_empty, [one.step.name for one in planned.steps if one.commands]
        await wait_until_ready(mac, since)

    with kept(lambda: bare(server, tmp_path / "mac-2", lambda _: None)) as (mac, run):
        run(story(mac))
        assert differing(become(mac), whole.became) is None
