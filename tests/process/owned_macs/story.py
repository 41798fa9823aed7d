"""What people do with a Mac that their team owns, and what must be left of it afterwards."""

from __future__ import annotations

import asyncio
import json
from stat import S_ISDIR, S_ISREG
from typing import Any

from bramley.api.names import host as places
from bramley.api.names import labels
from bramley.sim.ssh.server import SimulatedHost
from tests.process.owned_macs.stage import IMAGE, NAME, USER, Stage, guide

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
    assert NAME not in await stage.names("nodes")
    assert NAME not in await stage.names("leases", "-n", "kube-node-lease")
    assert [each for each in await stage.names("sa", "-A") if NAME in each] == []
    after = files(stage.mac)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed == set()
    assert launchd_jobs(stage.mac) == jobs


async def join_drain_and_leave(stage: Stage) -> None:
    """Run the commands of the guide, with a job and another Pod on the Mac when it is drained."""
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
