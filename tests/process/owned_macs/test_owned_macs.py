"""A Mac that its team owns joins, drains and leaves by the three commands of its guide, whatever is wrong with it at first."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

import pytest

from bramley.api.names import host as places
from bramley.api.names import labels
from bramley.sim.ssh.faults import Fault, FaultKind
from bramley.sim.ssh.server import SimulatedHost
from tests.process.owned_macs.stage import IMAGE, NAME, USER, Stage, a_stage, guide

# kubectl is built with the real control plane.
pytestmark = [pytest.mark.tier("cluster"), pytest.mark.side_by_side]

# What the guide says that stays on the Mac.
KEPT = (
    places.TART_BUNDLE,
    places.TART_BINARY,
    f"{places.home(USER)}/.tart",
    f"{places.home(USER)}/Library",
    "/Library/Preferences",
    "/private/var/root/Library",
    "/private/var/run",
    "/private/var/log",
)


def files(mac: SimulatedHost) -> dict[str, bytes | None]:
    """Return the files of a Mac with their content, and the links; empty folders of Unix do not matter."""
    found = mac.mac.files
    return {
        path: found.read(path) if S_ISREG(facts.st_mode) else None
        for path, facts in found.facts()
        if not path.startswith(KEPT) and not S_ISDIR(facts.st_mode)
    }


def launchd_jobs(mac: SimulatedHost) -> set[str]:
    return set(mac.mac.state["launchd"]["jobs"])


def a_pod(name: str, *, seconds: int, **own: str) -> dict[str, Any]:
    """Return a Pod on the Mac; keywords are labels without their prefix."""
    found = {f"{labels.PREFIX}{key.replace('_', '-')}": value for key, value in own.items()}
    container = {
        "name": "vm",
        "image": IMAGE,
        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
        "env": [{"name": "BRAMLEY_SIM_WORK", "value": str(seconds)}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": found},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 3,
            "nodeSelector": {labels.FLEET: "office"},
            "tolerations": [{"key": labels.MACOS_TAINT, "operator": "Exists"}],
            "containers": [container],
        },
    }


async def join(stage: Stage) -> None:
    """Run the commands of the guide by which the Mac joins, and wait as it says."""
    commands = guide(stage.mac)
    await stage.run_step(commands["create"])
    await stage.run_step(commands["apply"])
    await until_ready(stage)


async def until_ready(stage: Stage) -> None:
    await stage.until(lambda: is_true(stage, "Ready"), what="a Mac that is Ready")


async def is_true(stage: Stage, type: str) -> bool:
    return (await stage.condition(type)).get("status") == "True"


async def check_left(stage: Stage, before: dict[str, bytes | None], jobs: set[str]) -> None:
    """Check that nothing of the Mac is left in the cluster, and nothing but what the guide says on the Mac."""
    assert await stage.names("machosts", "-A") == []
    assert await stage.names("nodes") == []
    assert NAME not in await stage.names("leases", "-n", "kube-node-lease")
    assert [each for each in await stage.names("sa", "-A") if NAME in each] == []
    after = files(stage.mac)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed == set()
    assert launchd_jobs(stage.mac) == jobs


async def test_mac_joins_drains_and_leaves_by_the_commands_of_the_guide(
    tmp_path_factory: pytest.TempPathFactory, kubectl: Path
) -> None:
    async with a_stage(tmp_path_factory.mktemp("stage"), kubectl) as stage:
        before, jobs = files(stage.mac), launchd_jobs(stage.mac)
        await join(stage)
        node = await stage.get("node", NAME)
        taints = {each["key"] for each in node["spec"].get("taints", ())}
        assert labels.UNPROVEN_TAINT not in taints
        events = await stage.kubectl("events", "--for", f"machost/{NAME}")
        assert f"A VM of {IMAGE} has booted" in events

        job = a_pod("job", seconds=25, runner="true", runner_pool_owner="acme")
        pods = {"apiVersion": "v1", "kind": "List", "items": [job, a_pod("other", seconds=3600)]}
        await stage.kubectl("apply", "-f", "-", stdin=json.dumps(pods))
        await stage.kubectl("wait", "pod", "job", "other", "--for=jsonpath={.status.phase}=Running", "--timeout=3m")  # fmt: skip
        await stage.run_step(guide(stage.mac)["drain"])
        assert await stage.names("pods") == ["job"]

        leaving = asyncio.create_task(stage.run_step(guide(stage.mac)["delete"]))
        await stage.kubectl("wait", "pod", "job", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=3m")  # fmt: skip
        await leaving
        await check_left(stage, before, jobs)


async def test_each_mistake_is_reported_with_its_field_and_its_correction_lets_the_mac_join(
    tmp_path_factory: pytest.TempPathFactory, kubectl: Path
) -> None:
    async with a_stage(tmp_path_factory.mktemp("stage"), kubectl) as stage:
        commands = guide(stage.mac)
        await stage.run_step(commands["apply"])
        await stage.until_not_ready(
            "CredentialsUnavailable",
            "spec.credentialsSecretName: Secret default/mac-1-login does not exist",
        )
        right = (stage.folder / "password").read_text()
        (stage.folder / "password").write_text("guessed")
        await stage.run_step(commands["create"])
        await stage.until_not_ready(
            "BootstrapFailed",
            "no credential was accepted (password); check the user, the key in ~/.ssh/authorized_keys and the password "
            "(spec.user is admin, spec.credentialsSecretName names the Secret default/mac-1-login)",
        )
        patch = json.dumps({"stringData": {"sudo-password": right}})
        await stage.kubectl("patch", "secret", "mac-1-login", "-p", patch)
        await change(stage, port=1)
        await stage.until_not_ready(
            "BootstrapFailed",
            f"no SSH connection: Connection refused (spec.address is {stage.mac.listen}, spec.port is 1)",
        )
        await change(stage, port=stage.mac.port)
        await until_ready(stage)

        await refuse_others(stage, commands["apply"].command)
        node = await stage.get("node", NAME)
        ready = next(each for each in node["status"]["conditions"] if each["type"] == "Ready")
        assert ready["status"] == "True"
        assert stage.mac.mac.files.exists(places.AGENT_KUBECONFIG)


async def change(stage: Stage, **spec: Any) -> None:
    await stage.kubectl("patch", "machost", NAME, "--type=merge", "-p", json.dumps({"spec": spec}))


async def refuse_others(stage: Stage, command: str) -> None:
    """Create MacHosts with the address of the first one and with the name of another Node, and delete them."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker", "labels": {labels.OS: "linux"}}}  # fmt: skip
    await stage.kubectl("create", "-f", "-", stdin=json.dumps(node))
    manifest = command.partition("\n")[2].removesuffix("EOF")
    twin = manifest.replace("name: mac-1\n", "name: twin\n")
    await stage.kubectl("create", "-f", "-", stdin=twin)
    await stage.until_not_ready("AddressInUse", "spec.address: the MacHost default/mac-1", "twin")
    await stage.kubectl("delete", "machost", "twin")

    namesake = manifest.replace("name: mac-1\n", "name: worker\n")
    namesake = namesake.replace(f"port: {stage.mac.port}", "port: 2")
    await stage.kubectl("create", "-f", "-", stdin=namesake)
    await stage.until_not_ready(
        "NameInUse", "metadata.name: there is a Node worker already", "worker"
    )
    await stage.kubectl("delete", "machost", "worker")
    assert "worker" in await stage.names("nodes")


async def test_manager_that_is_killed_in_a_bootstrap_and_in_a_cleanup_is_continued_by_the_next_one(
    tmp_path_factory: pytest.TempPathFactory, kubectl: Path
) -> None:
    async with a_stage(tmp_path_factory.mktemp("stage"), kubectl) as stage:
        before, jobs = files(stage.mac), launchd_jobs(stage.mac)
        hang(stage.mac, after=25)
        commands = guide(stage.mac)
        await stage.run_step(commands["create"])
        await stage.run_step(commands["apply"])
        step = await kill_when_it_hangs(stage, after=25)
        assert step
        assert not await is_true(stage, "Bootstrapped")

        stage.start()
        await until_ready(stage)
        assert "bootstrapAttempts" not in (await stage.get("machost", NAME))["status"]

        hang(stage.mac, after=4)
        leaving = asyncio.create_task(stage.run_step(commands["delete"]))
        await kill_when_it_hangs(stage, after=4)
        assert await stage.names("machosts") == [NAME]
        assert not leaving.done()

        stage.start()
        await leaving
        await check_left(stage, before, jobs)


def hang(mac: SimulatedHost, *, after: int) -> None:
    """Let a command on the Mac never end, and do nothing."""
    mac.commands.clear()
    mac.faults.set(Fault(do=FaultKind.HANG, skip=after, times=1))


async def kill_when_it_hangs(stage: Stage, *, after: int) -> str:
    """Kill the manager while it waits for that command; return the step that the MacHost shows then."""

    async def hangs() -> bool:
        return len(stage.mac.commands) > after

    await stage.until(hangs, what="a command that hangs")
    status = (await stage.get("machost", NAME)).get("status", {})
    stage.kill()
    stage.mac.faults.set()
    return str(status.get("step", ""))
