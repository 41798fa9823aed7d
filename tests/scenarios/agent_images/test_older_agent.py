"""The images of an agent without a ledger: adopted on a Mac for Pods, and left alone on a builder."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent.ledger import Ledger
from bramley.api.names import agent
from tests.scenarios.agent_life.world import TAGGED, a_world, is_ready


@pytest.mark.parametrize("collects", [True, False])
async def test_golden_base_of_an_older_agent_is_adopted_except_on_builders(
    tmp_path: Path, *, collects: bool
) -> None:
    async with a_world(tmp_path, collects=collects) as world:
        golden = agent.golden_vm(TAGGED)
        user = world.mac.start_agent()
        for words in (("pull", TAGGED), ("clone", TAGGED, golden), ("clone", TAGGED, "by-hand")):
            assert (await user.programs.run(("tart", *words), environment={})).code == 0
        world.start()
        await world.until(lambda: is_ready(world.kube), within=timedelta(seconds=30), what="Ready")
        await asyncio.sleep(600)

        records = Ledger(world.mac.folders.ledger).images().values()
        bases = {each.golden for each in records if each.golden}
        assert bases == ({golden} if collects else set())
