"""A host whose time of day jumps: every lifecycle of a Pod ends with the same result at the same time."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import virtual_time
from tests.unit import example_counts
from tests.unit.agent.clocks import SetClock
from tests.unit.agent.pods.world import World, a_world

HOUR = 3600
# What the guest does, the fields of the Pod, and after how many seconds it is deleted.
LIFECYCLES: dict[str, tuple[dict[str, Any], dict[str, Any], float | None]] = {
    "works": ({"work": 40.0, "code": 3}, {"active_deadline_seconds": 3000}, None),
    "is late": ({"work": 900.0}, {"active_deadline_seconds": 120}, None),
    "is deleted": ({"work": 900.0, "ignores_shutdown": True}, {}, 70.0),
}


class Jump(NamedTuple):
    """After so many seconds the clock is set, and the agent is restarted if `restarts`."""

    after: float
    by: int
    restarts: bool = False


class End(NamedTuple):
    """How a Pod ended, and after how many seconds."""

    phase: str
    reason: str
    code: int | None
    at: int


JUMPS = st.lists(
    st.builds(Jump, st.floats(0.5, 60), st.sampled_from([-HOUR, HOUR, 5 * HOUR]), st.booleans()),
    max_size=3,
)


async def _run(folder: Path, lifecycle: str, jumps: Sequence[Jump]) -> End:
    guest, spec, deleted_after = LIFECYCLES[lifecycle]
    async with a_world(folder, starts=False, **guest) as world:
        world.mac.clock = clock = SetClock(world.mac.clock)
        world.mac.settings.timings(address=2.0, agent=2.5, ready=3.0)
        world.start()
        await world.pod(termination_grace_period_seconds=30, **spec)
        async with asyncio.TaskGroup() as group:
            group.create_task(_jump(world, clock, jumps))
            ending = group.create_task(_ended(world, deleted_after))
        return await ending


async def _jump(world: World, clock: SetClock, jumps: Sequence[Jump]) -> None:
    for jump in jumps:
        await asyncio.sleep(jump.after)
        clock.jump(timedelta(seconds=jump.by))
        if jump.restarts and world.agent.side.is_alive:
            await world.kill()
            world.start()


async def _ended(world: World, deleted_after: float | None) -> End:
    if deleted_after is not None:
        await asyncio.sleep(deleted_after)
        await world.delete()
        await world.until_gone()
        return End("gone", "", None, round(virtual_time.clock().monotonic()))
    pod = await world.until_phase("Succeeded", "Failed", within=4 * HOUR)
    terminated = pod.status.container_statuses[0].state.terminated
    code = terminated.exit_code if terminated else None
    return End(pod.status.phase, pod.status.reason, code, round(virtual_time.clock().monotonic()))


def run(lifecycle: str, jumps: Sequence[Jump]) -> End:
    with tempfile.TemporaryDirectory() as folder:
        return virtual_time.run(_run(Path(folder), lifecycle, jumps))


@pytest.mark.parametrize("lifecycle", LIFECYCLES)
def test_lifecycle_with_clock_jumps_ends_as_without(lifecycle: str) -> None:
    expected = run(lifecycle, ())

    @settings(max_examples=example_counts.examples(6))
    @example([Jump(20.0, HOUR)])
    @example([Jump(20.0, 5 * HOUR, restarts=True)])
    @given(JUMPS)
    def holds(jumps: list[Jump]) -> None:
        end = run(lifecycle, jumps)

        assert end[:3] == expected[:3]
        # A restarted agent requests the shutdown of its guest again.
        slack = 35 if any(jump.restarts for jump in jumps) else 5
        assert abs(end.at - expected.at) <= slack

    holds()
