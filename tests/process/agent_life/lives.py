"""Lives of Pods on a Mac as a user brings them about; they hold whether or not agents die meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bramley.api.core import Pod
from bramley.api.names import guest
from tests.process.agent_life.stage import CODE, Stage


async def ends_by_itself(stage: Stage, name: str) -> None:
    """Tell of a Pod whose guest ends with a code, and that is deleted then."""
    await stage.create(name, image=stage.image(name))
    await runs(stage, name)
    await stage.halt(name)
    pod = await stage.has(name, lambda pod: pod.status.phase in {"Succeeded", "Failed"})
    assert (pod.status.phase, code(pod)) == ("Failed", CODE)
    await leave(stage, name)


async def is_deleted(stage: Stage, name: str) -> None:
    """Tell of a Pod that is deleted while its guest works, which will not hear."""
    await stage.create(name, image=stage.image(name, ignores_shutdown=True), grace=1)
    await runs(stage, name)
    await leave(stage, name)


async def runs(stage: Stage, name: str) -> None:
    """Wait until a Pod runs, and its guest has said how it went."""
    await stage.has(name, lambda pod: pod.status.phase == "Running" and pod.status.pod_ip)
    said = stage.mac.folders.user_data / stage.vm(name) / guest.STATUS_SHARE / guest.EXIT_CODE_FILE

    async def has_said() -> bool:
        return said.exists()

    await stage.until(has_said, what="the guest's report")


async def leave(stage: Stage, name: str) -> None:
    """Delete a Pod, and see that its VM was started once and that nothing is left."""
    await stage.kube.delete(Pod, name, namespace=stage.namespace)
    await stage.gone(name)

    async def nothing_is_left() -> bool:
        return not stage.left()

    await stage.until(nothing_is_left, what="nothing to be left")
    assert stage.witness is not None
    stage.witness.check_order(stage.vm(name))


def code(pod: Pod) -> int | None:
    """Return the code that a Pod ended with."""
    ended = pod.status.container_statuses[0].state.terminated
    return ended.exit_code if ended else None


LIVES: tuple[Callable[[Stage, str], Awaitable[None]], ...] = (ends_by_itself, is_deleted)
