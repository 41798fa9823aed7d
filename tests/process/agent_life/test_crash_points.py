"""A real agent is killed by SIGKILL once at every crash point of a Pod's lifecycle.

A crash point is the time before or after a kind of tart command or of write to the API; the next agent is started at once.
Pods follow each other on one Mac until each kind of lifecycle has passed without a new crash point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.process.agent_life.call_recorder import RUN_SUPERVISOR
from tests.process.agent_life.lifecycles import LIFECYCLES
from tests.process.agent_life.servers import Server
from tests.process.agent_life.stage import GC_OFF, Stage, staged

MAX_PODS = 30
# The least that must be covered, each before and after.
REQUIRED = (
    "tart pull",
    "tart clone of a base",
    "tart clone",
    "tart set",
    "tart run",
    "tart ip",
    "tart exec",
    "tart stop",
    "tart delete",
    "PATCH pods hold",
    "PATCH pods/status Pending PullingImage",
    "PATCH pods/status Pending BootingVM",
    "PATCH pods/status Running with an address",
    "PATCH pods/status Failed with an address",
    "PATCH pods release",
    "DELETE pods",
    "POST serviceaccounts/token of the guest",
    "POST nodes",
    "PATCH nodes/status",
    "POST leases",
    "PATCH leases",
)


@dataclass(slots=True)
class AgentKiller:
    """Kills the agent at every crash point where none was killed before, and starts the next one."""

    stage: Stage | None = None
    killed_at: list[str] = field(default_factory=list)

    def on_crash_point(self, point: str, number: int) -> bool:
        """Kill the agent that is at this crash point, unless it is dead or the point is known."""
        stage = self.stage
        if stage is None or point in self.killed_at or number not in {RUN_SUPERVISOR, stage.starts}:
            return False
        self.killed_at.append(point)
        stage.end()
        stage.start()
        return True


async def test_agent_killed_at_any_crash_point_loses_and_leaves_nothing(
    server: Server, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    killer = AgentKiller()
    async with staged(server, tmp_path, *GC_OFF, on_crash_point=killer.on_crash_point) as stage:
        killer.stage = stage
        quiet = number = 0
        while quiet < len(LIFECYCLES):
            before = len(killer.killed_at)
            await stage.unregister()
            try:
                await LIFECYCLES[number % len(LIFECYCLES)](stage, f"life-{number}")
            except AssertionError as error:
                error.add_note(
                    f"Pod {number}, killed at {killer.killed_at[-6:]}; left {stage.left()}"
                )
                raise
            quiet = quiet + 1 if len(killer.killed_at) == before else 0
            number += 1
            assert number < MAX_PODS, killer.killed_at

    required = {f"{when} {what}" for what in REQUIRED for when in ("before", "after")}
    assert required <= set(killer.killed_at)
    record_property("killed agents", len(killer.killed_at))
