"""A Mac that its team owns joins, drains and leaves by the three commands of its guide, whatever is wrong with it at first."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bramley.api.names import host as places
from bramley.api.names import labels
from bramley.sim.ssh.faults import Fault, FaultKind
from bramley.sim.ssh.server import SimulatedHost
from tests.process.owned_macs.stage import NAME, Stage, an_embedded_stage, guide
from tests.process.owned_macs.story import (
    check_left,
    files,
    is_true,
    join_drain_and_leave,
    launchd_jobs,
    until_ready,
)

# kubectl is built with the real control plane.
pytestmark = [pytest.mark.tier("cluster"), pytest.mark.side_by_side]


async def test_mac_joins_drains_and_leaves_by_the_commands_of_the_guide(
    tmp_path_factory: pytest.TempPathFactory, kubectl: Path
) -> None:
    async with an_embedded_stage(tmp_path_factory.mktemp("stage"), kubectl) as stage:
        await join_drain_and_leave(stage)


async def test_each_mistake_is_reported_with_its_field_and_its_correction_lets_the_mac_join(
    tmp_path_factory: pytest.TempPathFactory, kubectl: Path
) -> None:
    async with an_embedded_stage(tmp_path_factory.mktemp("stage"), kubectl) as stage:
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
    async with an_embedded_stage(tmp_path_factory.mktemp("stage"), kubectl) as stage:
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
