"""A bug in one component of the agent must not stop the others."""

from __future__ import annotations

import asyncio

import pytest

from bramley.agent.crash_recovery import PAUSE, restart_on_crash
from tests import virtual_time


class Component:
    """Raises so often, then runs until cancelled, or returns."""

    def __init__(self, failures: int, *, ends: bool = False) -> None:
        self.begun: list[float] = []
        self._failures = failures
        self._ends = ends

    async def run(self) -> None:
        self.begun.append(virtual_time.clock().monotonic())
        if len(self.begun) <= self._failures:
            raise ValueError("embedded null byte")
        if not self._ends:
            await asyncio.Event().wait()


async def test_component_that_raises_is_restarted_after_a_delay() -> None:
    component = Component(failures=2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await restart_on_crash("component", component.run)

    pauses = [
        later - earlier
        for earlier, later in zip(component.begun, component.begun[1:], strict=False)
    ]
    assert pauses == pytest.approx([PAUSE.total_seconds()] * 2)


async def test_component_that_returns_is_not_restarted() -> None:
    component = Component(failures=0, ends=True)
    await restart_on_crash("component", component.run)

    assert len(component.begun) == 1
