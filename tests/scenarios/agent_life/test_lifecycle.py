"""The lifecycle of a Pod on one Mac, without a fault."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.scenarios.agent_life.world import IMAGE, TAGGED, a_world, is_ready


async def test_pod_ends_with_the_exit_code_of_its_guest(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.settings.image(TAGGED, guest={"code": 3, "work": 60.0})
        world.start()
        await world.until(lambda: is_ready(world.kube), within=timedelta(seconds=30), what="Ready")

        await world.pod("job", image=IMAGE)

        async def has_ended() -> bool:
            pod = await world.find("job")
            return pod is not None and pod.status.phase == "Failed"

        await world.until(has_ended, within=timedelta(minutes=10), what="the Pod has ended")
        pod = await world.find("job")
        assert pod is not None
        ended = pod.status.container_statuses[0].state.terminated
        assert ended is not None
        assert ended.exit_code == 3
        await world.delete("job")

        async def is_gone() -> bool:
            return await world.find("job") is None

        await world.until(is_gone, within=timedelta(seconds=60), what="the Pod is gone")
        assert list(world.mac.folders.user_data.iterdir()) == []
