"""A real agent is killed, by a real signal, once at every distinct moment that a Pod's life has.

A moment is the time before or after a kind of call of tart, or of write to the API; the next agent is started at once. Lives
follow each other on one Mac until each kind of life has passed without a moment that is new.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.process.agent_life.lives import LIVES
from tests.process.agent_life.servers import Server
from tests.process.agent_life.stage import GC_OFF, Stage, staged
from tests.process.agent_life.witness import ANYBODY

MOST_LIVES = 30
# What no run may pass by; each is met before and after.
AT_LEAST = (
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
class Reaper:
    """Kills the agent at every moment at which none was killed before, and starts the next one."""

    stage: Stage | None = None
    deaths: list[str] = field(default_factory=list)

    def meet(self, moment: str, number: int) -> bool:
        """Kill the agent whose moment this is, unless it is dead or the moment is known."""
        stage = self.stage
        if stage is None or moment in self.deaths or number not in {ANYBODY, stage.starts}:
            return False
        self.deaths.append(moment)
        stage.end()
        stage.start()
        return True


async def test_an_agent_killed_at_any_moment_loses_and_leaves_nothing(
    server: Server, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    reaper = Reaper()
    async with staged(server, tmp_path, *GC_OFF, meet=reaper.meet) as stage:
        reaper.stage = stage
        quiet = number = 0
        while quiet < len(LIVES):
            before = len(reaper.deaths)
            await stage.unregister()
            try:
                await LIVES[number % len(LIVES)](stage, f"life-{number}")
            except AssertionError as error:
                error.add_note(
                    f"life {number}, killed at {reaper.deaths[-6:]}; left {stage.left()}"
                )
                raise
            quiet = quiet + 1 if len(reaper.deaths) == before else 0
            number += 1
            assert number < MOST_LIVES, reaper.deaths

    wanted = {f"{when} {what}" for what in AT_LEAST for when in ("before", "after")}
    assert wanted <= set(reaper.deaths)
    record_property("killed agents", len(reaper.deaths))
