"""The life of a Pod on a Mac, as a person with kubectl sees it: on the embedded API and on the real control plane.

All processes are real. That everything is gone within one reconcile cycle is read from the agent's own account of its steps,
with the collector off and the next resync minutes away.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bramley.agent.pods.decision import Step
from bramley.api.names import events, finalizers, flags, guest
from tests.cluster.agent.seen import Kubectl, steps
from tests.process.agent_life.servers import Server
from tests.process.agent_life.stage import CODE, GC_OFF, PATIENCE, Stage, pod_body, staged

pytestmark = pytest.mark.side_by_side

TELLING = (*GC_OFF, flags.AGENT_LOG_LEVEL.name, "debug")
ENDING = (Step.RECORD_EXIT, Step.REPORT_EXIT)
REMOVING = (
    Step.DELETE_VM,
    Step.REMOVE_DATA,
    Step.REMOVE_RUN,
    Step.REMOVE_RECORD,
    Step.REMOVE_FINALIZER,
)


async def runs(stage: Stage, kubectl: Kubectl, name: str) -> None:
    """Create a Pod and wait until it runs with an address."""
    body = pod_body(name, stage.node, image=stage.image(name))
    await kubectl("create", "-f", "-", stdin=json.dumps(body))
    await stage.has(name, lambda pod: pod.status.phase == "Running" and pod.status.pod_ip)


def cycles(stage: Stage, name: str, *wanted: Step) -> list[list[str]]:
    """Return the reconciles in which any of these steps were taken, each as its own such steps."""
    found: dict[str, list[str]] = {}
    for step, reconcile in steps(stage, name):
        if step in wanted:
            found.setdefault(reconcile, []).append(step)
    return list(found.values())


def check_one_cycle(stage: Stage, name: str) -> None:
    """See that a Pod ended and everything of it went in one reconcile; old news may only let go once more."""
    first, *later = cycles(stage, name, *ENDING, *REMOVING)
    assert first == [*ENDING, *REMOVING]
    assert all(each == [Step.REMOVE_FINALIZER] for each in later), later


async def says(stage: Stage, file: Path, text: str) -> None:
    """Wait until a file holds a text."""

    def said() -> bool:
        return text in file.read_text()

    async def has_said() -> bool:
        return said()

    await stage.until(has_said, what=f"{text!r} in a followed log")


async def is_told_of(server: Server, stage: Stage, kubectl: Kubectl) -> None:
    """Wait for an event about a VM in the making."""
    # A cluster learns a moment later than the agent that this Pod is the agent's, and may refuse its first events.
    wanted = {events.CREATING_VM}
    if server.name != "embedded":
        wanted |= {events.CLONED_VM, events.STARTED_VM}

    async def is_told() -> bool:
        return bool(wanted & set(await kubectl.reasons("job")))

    await stage.until(is_told, what=events.CREATING_VM)


async def test_a_pod_is_made_a_vm_whose_code_it_ends_with_and_nothing_of_it_stays(
    server: Server, kubectl: Path, tmp_path: Path
) -> None:
    async with staged(server, tmp_path, *TELLING) as stage:
        seen = Kubectl(kubectl, stage)
        await runs(stage, seen, "job")
        pod = await seen.pod("job")
        assert pod["spec"]["nodeName"] == stage.node
        assert {"PodScheduled": "True", "Ready": "True"}.items() <= {
            each["type"]: each["status"] for each in pod["status"]["conditions"]
        }.items()
        assert finalizers.VM_CLEANUP in pod["metadata"]["finalizers"]
        assert pod["status"]["podIP"] == (await stage.tart("ip", stage.vm("job"))).strip()

        await is_told_of(server, stage, seen)

        followed = tmp_path / "followed"
        async with seen.following("job", followed) as following:
            await says(stage, followed, "the guest is at work")
            share = stage.mac.folders.user_data / stage.vm("job") / guest.STATUS_SHARE
            with (share / guest.LOG_FILE).open("a") as log:
                log.write("and has done it\n")
            await says(stage, followed, "and has done it")
            await stage.halt("job")
            assert await following.wait() == 0

        ended = await stage.has("job", lambda pod: pod.status.phase not in {"Pending", "Running"})
        pod = await seen.pod("job")
        state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended.status.phase, state["exitCode"]) == ("Failed", CODE)

        await seen("delete", "pod", "job", f"--timeout={PATIENCE:.0f}s")

        # Not waited for: all of it went before the finalizer did.
        assert stage.left() == []
        check_one_cycle(stage, "job")


async def test_a_pod_that_is_deleted_at_work_goes_in_the_reconcile_that_sees_its_vm_end(
    server: Server, kubectl: Path, tmp_path: Path
) -> None:
    async with staged(server, tmp_path, *TELLING) as stage:
        seen = Kubectl(kubectl, stage)
        await runs(stage, seen, "job")

        await seen("delete", "pod", "job", f"--timeout={PATIENCE:.0f}s")

        assert stage.left() == []
        check_one_cycle(stage, "job")
        # The news of our own last write may come once more before the news of the end.
        whole = [*ENDING, *REMOVING, Step.FINISH_DELETION]

        async def is_complete() -> bool:
            # The Pod is gone before the agent has heard that it is.
            return cycles(stage, "job", *whole)[0] == whole

        await stage.until(is_complete, what="the last step")
        assert cycles(stage, "job", Step.SHUT_DOWN_GUEST) == [[Step.SHUT_DOWN_GUEST]]
