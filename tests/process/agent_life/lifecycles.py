"""Lifecycles of Pods on a Mac; they end the same whether or not agents are killed meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bramley.api.core import Pod
from bramley.api.names import guest
from tests.process.agent_life.stage import CODE, Stage


async def ends_by_itself(stage: Stage, name: str) -> None:
    """Run a Pod until its guest exits with a code, then delete it."""
    await stage.create(name, image=stage.image(name))
    await runs(stage, name)
    await stage.halt(name)
    pod = await stage.has(name, lambda pod: pod.status.phase in {"Succeeded", "Failed"})
    assert (pod.status.phase, code(pod)) == ("Failed", CODE)
    await delete(stage, name)


async def is_deleted(stage: Stage, name: str) -> None:
    """Delete a Pod while its guest runs, which ignores the shutdown."""
    await stage.create(name, image=stage.image(name, ignores_shutdown=True), grace=1)
    await runs(stage, name)
    await delete(stage, name)


async def runs(stage: Stage, name: str) -> None:
    """Wait until a Pod runs and its guest has written its exit code."""
    await stage.has(name, lambda pod: pod.status.phase == "Running" and pod.status.pod_ip)
    exit_code = (
        stage.mac.folders.user_data / stage.vm(name) / guest.STATUS_SHARE / guest.EXIT_CODE_FILE
    )

    async def is_written() -> bool:
        return exit_code.exists()

    await stage.until(is_written, what="the guest's exit code")


async def delete(stage: Stage, name: str) -> None:
    """Delete a Pod; check that its VM was started once and that nothing is left."""
    await stage.kube.delete(Pod, name, namespace=stage.namespace)
    await stage.gone(name)

    async def nothing_is_left() -> bool:
        return not stage.left()

    await stage.until(nothing_is_left, what="nothing to be left")
    assert stage.recorder is not None
    stage.recorder.check_order(stage.vm(name))


def code(pod: Pod) -> int | None:
    """Return the code that a Pod ended with."""
    ended = pod.status.container_statuses[0].state.terminated
    return ended.exit_code if ended else None


LIFECYCLES: tuple[Callable[[Stage, str], Awaitable[None]], ...] = (ends_by_itself, is_deleted)
