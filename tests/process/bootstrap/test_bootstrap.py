"""A bare simulated Mac becomes a Node over real SSH, with the agent's real archives: bootstrap, second run, interruptions, updates.

One Mac is bootstrapped without interruptions; the state of another, whose connection is lost repeatedly, must equal it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from bramley.api.core import Node, Pod
from bramley.api.names import host, labels
from bramley.app import hosts, sample_images
from bramley.base import errors
from bramley.host import converge
from bramley.host.progress import CommandStarted, Plan, Progress, Report
from bramley.sim.macos import stand_ins
from bramley.sim.ssh.faults import Fault, FaultKind
from tests.process.bootstrap.macs import Cluster, Mac, bare, describe, differing, newer_agent
from tests.process.bootstrap.shared_loop import RunOnLoop, open_on_loop, wait_until
from tests.process.serving.processes import running
from tools.agent_bundle import linux

NAMESPACE = "default"
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Bootstrapped:
    """A Mac that was bootstrapped without interruptions, and its state right afterwards."""

    mac: Mac
    run: RunOnLoop
    since: datetime
    report: Report
    trips: int
    state: dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("server")) as process:
        yield Cluster(process.kubeconfig, linux.cached())


@pytest.fixture(scope="module")
def complete(server: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bootstrapped]:
    root = tmp_path_factory.mktemp("complete") / "mac-1"
    with open_on_loop(lambda: bare(server, root)) as (mac, run):
        since = now(mac)
        report = run(bootstrap(mac))
        trips = len(mac.served.commands)
        yield Bootstrapped(mac, run, since, report, trips, describe(mac))


async def bootstrap(mac: Mac, on_progress: Callable[[Progress], None] = lambda _: None) -> Report:
    async with mac.connected() as connection:
        return await converge.apply(
            connection, mac.steps, on_progress=on_progress, claim=hosts.claim()
        )


def now(mac: Mac) -> datetime:
    """Return the time with the precision of a Node's status."""
    return mac.fleet.clock.now().replace(microsecond=0)


async def start_pod(mac: Mac, name: str) -> None:
    """Start a Pod on this Mac that runs until it is deleted."""
    body = yaml.safe_load((ROOT / "examples/pod.yaml").read_text())
    body["metadata"] = {"name": name}
    body["spec"] |= {"nodeName": mac.name, "terminationGracePeriodSeconds": 5}
    (container,) = body["spec"]["containers"]
    container["env"] = [{"name": "BRAMLEY_SIM_WORK", "value": "3600"}]
    container["resources"] = {"limits": {"cpu": "2", "memory": "4Gi"}}
    await mac.fleet.kube.create_wire(Pod.resource, body, namespace=NAMESPACE)

    async def is_running() -> bool:
        pod = await mac.fleet.kube.get(Pod, name, namespace=NAMESPACE)
        return pod.status.phase == "Running"

    await wait_until(is_running)


async def delete_pod(mac: Mac, name: str) -> None:
    await mac.fleet.kube.delete(Pod, name, namespace=NAMESPACE)

    async def is_gone() -> bool:
        pods = await mac.fleet.kube.list(Pod, namespace=NAMESPACE)
        return name not in [pod.name for pod in pods.items]

    await wait_until(is_gone)


async def read_log(mac: Mac, name: str) -> bytes:
    text = b""
    async for block in mac.fleet.kube.logs(name, NAMESPACE):
        text += block
    return text


def test_bare_mac_becomes_a_node_that_runs_pods(complete: Bootstrapped) -> None:
    async def scenario(mac: Mac) -> None:
        await mac.until_ready(complete.since)
        node = await mac.fleet.kube.get(Node, mac.name)
        assert node.metadata.labels[labels.FLEET] == sample_images.FLEET
        await start_pod(mac, "worker")

        await wait_until(lambda: log_contains(mac, "worker", b"is up"))
        await delete_pod(mac, "worker")

    changed = [name for name, count in complete.report.changed.items() if count]
    assert {"sudo", "auto-login", "firewall", "tart", "interpreter", "agent", "agent-job"} <= set(
        changed
    )
    assert complete.report.pending == ()
    complete.run(scenario(complete.mac))


def test_bootstrap_takes_few_round_trips(complete: Bootstrapped) -> None:
    """210 with a round trip for each command, each check of the claim and each step's facts."""
    assert complete.trips <= 45


def test_second_run_probes_once_and_writes_nothing(complete: Bootstrapped) -> None:
    mac, before = complete.mac, describe(complete.mac)
    commands, agent = len(mac.served.commands), mac.agent()

    async def again() -> tuple[Plan, Report]:
        async with mac.connected() as connection:
            return await converge.plan(connection, mac.steps), await converge.apply(
                connection, mac.steps
            )

    planned, report = complete.run(again())

    assert [one.step.name for one in planned.steps if one.commands or one.refusal] == []
    assert not report.is_changed
    # One round trip for the plan and one for the run.
    assert len(mac.served.commands) == commands + 2
    assert differing(describe(mac), before) is None
    assert mac.agent() == agent


def test_deleted_node_is_registered_again_without_a_restart_of_loginwindow(
    complete: Bootstrapped,
) -> None:
    mac = complete.mac
    restarts, boot_id = (mac.served.mac.state[part][key] for part, key in (("console", "kicked_count"), ("boot", "boot_id")))  # fmt: skip

    async def scenario() -> Report:
        # A status newer than this shows that the agent has registered the Node again.
        since = now(mac)
        await mac.fleet.kube.delete(Node, mac.name)
        report = await bootstrap(mac)
        await mac.until_ready(since)
        return report

    report: Report = complete.run(scenario())

    assert not report.is_changed
    assert mac.served.mac.state["console"]["kicked_count"] == restarts
    assert mac.served.mac.state["boot"]["boot_id"] == boot_id


def test_update_of_the_agent_changes_neither_vms_nor_other_parts(
    complete: Bootstrapped, tmp_path: Path
) -> None:
    mac = complete.mac
    # Unique: its VM is searched for in all processes of this machine.
    survivor = f"survivor-{secrets.token_hex(4)}"

    async def scenario() -> None:
        await start_pod(mac, survivor)
        store, before = mac.fleet.artifacts.store, mac.stamps()
        vm, agent = vm_of(survivor), mac.agent()
        path, version = newer_agent(mac.fleet.artifacts.agent, tmp_path)
        artifact = await store.load(path, name="tart-kubelet", version=version)
        since = now(mac)
        async with mac.connected() as connection:
            report = await converge.apply(connection, mac.with_artifact("agent", artifact))

        changed = {name for name, count in report.changed.items() if count}
        assert changed == {"agent", "agent-job"}
        assert {part for part in before if mac.stamps()[part] != before[part]} == {"agent"}
        assert mac.agent() != agent
        assert mac.served.mac.files.target(host.AGENT_CURRENT) == host.agent_release(version)
        assert vm_of(survivor) == vm
        await mac.until_ready(since)
        # Through the port that the new agent has published.
        await wait_until(lambda: log_contains(mac, survivor, b"is up"))
        # Restore the state for the other tests.
        await bootstrap(mac)
        assert vm_of(survivor) == vm
        await delete_pod(mac, survivor)

    complete.run(scenario())


async def log_contains(mac: Mac, name: str, text: bytes) -> bool:
    try:
        return text in await read_log(mac, name)
    except errors.Unavailable:
        # The agent is starting.
        return False


def vm_of(pod: str) -> set[tuple[str, str]]:
    """Return the process ids and start times of a Pod's VM on this machine."""
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
def test_tart_is_replaced_only_on_request(
    complete: Bootstrapped, tmp_path: Path, *, is_running: bool
) -> None:
    """Neither a newer version nor another digest replaces it."""
    mac = complete.mac
    (tmp_path / "tart").write_bytes(stand_ins.tart("99.0.0"))
    signature = mac.served.mac.files.digest(f"{host.TART_BUNDLE}/{host.TART_IN_BUNDLE}")

    async def scenario() -> None:
        if is_running:
            await start_pod(mac, "with-tart")
        newer = await mac.fleet.artifacts.store.load(
            tmp_path / "tart", name="tart", version="99.0.0"
        )
        async with mac.connected() as connection:
            report = await converge.apply(connection, mac.with_artifact("tart", newer))
        assert not report.is_changed
        if is_running:
            await delete_pod(mac, "with-tart")

    complete.run(scenario())

    assert mac.served.mac.files.digest(f"{host.TART_BUNDLE}/{host.TART_IN_BUNDLE}") == signature


@dataclass(frozen=True)
class Interruption:
    """A fault that is set at the first command with this purpose; if it is empty, from the beginning of the run."""

    purpose: str
    fault: Fault


def at(purpose: str, do: FaultKind) -> Interruption:
    return Interruption(purpose, Fault(do=do, times=1))


def at_stamps(do: FaultKind) -> Interruption:
    return Interruption("", Fault(do=do, match="*/applied.json*root:wheel*", times=1))


def within(artifact: str, count: int) -> Interruption:
    return Interruption(f"upload {artifact}", Fault(do=FaultKind.CUT_AT, bytes=count, times=1))


# All on one Mac, one after another. This is a sample: scenarios with the model of a Mac interrupt after every command.
INTERRUPTIONS = [
    at("check the password", FaultKind.CUT_BEFORE),
    at("allow m1 to use sudo", FaultKind.CUT_AFTER),
    at("restart loginwindow", FaultKind.CUT_AFTER),
    at("load our rules, and no others", FaultKind.CUT_AFTER),
    at_stamps(FaultKind.CUT_AFTER),
    within("tart ", 500),
    at("set AllowedWiFi", FaultKind.CUT_AFTER),
    at("write the agent's kubeconfig", FaultKind.CUT_AFTER),
    within("tart-kubelet-python", 9_000_000),
    at("make 0", FaultKind.CUT_AFTER),
    at("load the job dev.tuist.tart-kubelet", FaultKind.CUT_AFTER),
    at_stamps(FaultKind.CUT_BEFORE),
]
BEFORE_REBOOT = "set AllowedWiFi"


def interrupting(mac: Mac, one: Interruption) -> Callable[[Progress], None]:
    """Return a progress callback that sets the fault at its command."""
    if not one.purpose:
        mac.served.faults.set(one.fault)

    def on_progress(event: Progress) -> None:
        if (
            one.purpose
            and isinstance(event, CommandStarted)
            and event.command.purpose.startswith(one.purpose)
        ):
            mac.served.faults.set(one.fault)

    return on_progress


async def cancel_during_reboot(mac: Mac) -> None:
    """Cancel the bootstrap while the Mac reboots."""
    running, before = asyncio.create_task(bootstrap(mac)), boot(mac)
    # On a busy machine the Mac may be up again before this loop runs.
    while mac.served.mac.is_up and boot(mac) == before:
        assert not running.done(), "the Mac was not rebooted"
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


def boot(mac: Mac) -> str:
    return str(mac.served.mac.state["boot"]["boot_id"])


def test_later_of_two_concurrent_runs_completes(
    complete: Bootstrapped, server: Cluster, tmp_path: Path
) -> None:
    async def scenario(mac: Mac) -> None:
        second: list[asyncio.Task[Report]] = []

        def on_progress(event: Progress) -> None:
            if not second and isinstance(event, CommandStarted) and event.step.name == "firewall":
                second.append(asyncio.create_task(bootstrap(mac)))

        with pytest.raises(errors.Conflict, match="another run works on this Mac"):
            await bootstrap(mac, on_progress)
        await second[0]
        async with mac.connected() as connection:
            assert (await converge.plan(connection, mac.steps)).is_empty

    with open_on_loop(lambda: bare(server, tmp_path / "mac-3")) as (mac, run):
        run(scenario(mac))
        assert differing(describe(mac), complete.state) is None


def test_interrupted_bootstrap_has_the_same_result(
    complete: Bootstrapped, server: Cluster, tmp_path: Path
) -> None:
    async def scenario(mac: Mac) -> None:
        for one in INTERRUPTIONS:
            with pytest.raises(errors.HostUnreachable):
                await bootstrap(mac, interrupting(mac, one))
            mac.served.faults.set()
            if one.purpose == BEFORE_REBOOT:
                await cancel_during_reboot(mac)
        since = now(mac)
        await bootstrap(mac)
        async with mac.connected() as connection:
            planned = await converge.plan(connection, mac.steps)
        assert planned.is_empty, [one.step.name for one in planned.steps if one.commands]
        await mac.until_ready(since)

    with open_on_loop(lambda: bare(server, tmp_path / "mac-2")) as (mac, run):
        run(scenario(mac))
        assert differing(describe(mac), complete.state) is None
