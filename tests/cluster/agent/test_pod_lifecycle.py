"""The life cycle of a Pod on a Mac through kubectl, on the embedded API and on the real control plane.

All processes are real. That everything is removed within one reconcile is read from the steps in the agent's log,
with garbage collection off and the next resync minutes away.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bramley.agent.pods.decision import Step
from bramley.api.names import events, finalizers, flags, guest
from tests.cluster.agent.kubectl_client import Kubectl, steps
from tests.process.agent_life.servers import Server
from tests.process.agent_life.stage import CODE, GC_OFF, TIMEOUT_SECONDS, Stage, pod_body, staged

pytestmark = pytest.mark.side_by_side

DEBUG_LOG = (*GC_OFF, flags.AGENT_LOG_LEVEL.name, "debug")
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


def cycles(stage: Stage, name: str, *selected: Step) -> list[list[str]]:
    """Return the reconciles that executed any of these steps, each as the list of those steps."""
    found: dict[str, list[str]] = {}
    for step, reconcile in steps(stage, name):
        if step in selected:
            found.setdefault(reconcile, []).append(step)
    return list(found.values())


def check_one_cycle(stage: Stage, name: str) -> None:
    """Check that one reconcile ended a Pod and removed everything of it; a stale event may only remove the finalizer again."""
    first, *later = cycles(stage, name, *ENDING, *REMOVING)
    assert first == [*ENDING, *REMOVING]
    assert all(each == [Step.REMOVE_FINALIZER] for each in later), later


async def wait_for_text(stage: Stage, file: Path, text: str) -> None:
    """Wait until a file contains a text."""

    def contains() -> bool:
        return text in file.read_text()

    async def has_text() -> bool:
        return contains()

    await stage.until(has_text, what=f"{text!r} in a followed log")


async def wait_for_event(server: Server, stage: Stage, kubectl: Kubectl) -> None:
    """Wait for an event about the creation of a VM."""
    # The node authorizer of a cluster learns later than the agent that the Pod is bound, and may refuse the first events.
    expected = {events.CREATING_VM}
    if server.name != "embedded":
        expected |= {events.CLONED_VM, events.STARTED_VM}

    async def is_recorded() -> bool:
        return bool(expected & set(await kubectl.reasons("job")))

    await stage.until(is_recorded, what=events.CREATING_VM)


async def test_a_pod_runs_as_a_vm_ends_with_its_exit_code_and_leaves_nothing(
    server: Server, kubectl: Path, tmp_path: Path
) -> None:
    async with staged(server, tmp_path, *DEBUG_LOG) as stage:
        seen = Kubectl(kubectl, stage)
        await runs(stage, seen, "job")
        pod = await seen.pod("job")
        assert pod["spec"]["nodeName"] == stage.node
        assert {"PodScheduled": "True", "Ready": "True"}.items() <= {
            each["type"]: each["status"] for each in pod["status"]["conditions"]
        }.items()
        assert finalizers.VM_CLEANUP in pod["metadata"]["finalizers"]
        assert pod["status"]["podIP"] == (await stage.tart("ip", stage.vm("job"))).strip()

        await wait_for_event(server, stage, seen)

        followed = tmp_path / "followed"
        async with seen.following("job", followed) as following:
            await wait_for_text(stage, followed, "the guest is at work")
            share = stage.mac.folders.user_data / stage.vm("job") / guest.STATUS_SHARE
            with (share / guest.LOG_FILE).open("a") as log:
                log.write("and has done it\n")
            await wait_for_text(stage, followed, "and has done it")
            await stage.halt("job")
            assert await following.wait() == 0

        ended = await stage.has("job", lambda pod: pod.status.phase not in {"Pending", "Running"})
        pod = await seen.pod("job")
        state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended.status.phase, state["exitCode"]) == ("Failed", CODE)

        await seen("delete", "pod", "job", f"--timeout={TIMEOUT_SECONDS:.0f}s")

        # Without waiting: all of it is removed before the finalizer.
        assert stage.left() == []
        check_one_cycle(stage, "job")


async def test_a_deleted_running_pod_is_removed_in_the_reconcile_that_observes_the_exit(
    server: Server, kubectl: Path, tmp_path: Path
) -> None:
    async with staged(server, tmp_path, *DEBUG_LOG) as stage:
        seen = Kubectl(kubectl, stage)
        await runs(stage, seen, "job")

        await seen("delete", "pod", "job", f"--timeout={TIMEOUT_SECONDS:.0f}s")

        assert stage.left() == []
        check_one_cycle(stage, "job")
        # The watch event of the agent's last write may come before that of the deletion.
        whole = [*ENDING, *REMOVING, Step.FINISH_DELETION]

        async def is_complete() -> bool:
            # The Pod is gone before the agent observes its deletion.
            return cycles(stage, "job", *whole)[0] == whole

        await stage.until(is_complete, what="the last step")
        assert cycles(stage, "job", Step.SHUT_DOWN_GUEST) == [[Step.SHUT_DOWN_GUEST]]
