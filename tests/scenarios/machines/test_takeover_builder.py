"""A builder of the existing provider is handed over: its runner keeps its registration, and its bake is not disturbed."""

from __future__ import annotations

import asyncio
import plistlib

from bramley.api.names import conditions as types
from bramley.api.names import events, flags, host, launchd
from bramley.sim.macos.mac import Mac
from bramley.sim.scaleway.records import USER
from tests.scenarios.machines import existing_builder
from tests.scenarios.machines.builders import ORGANISATION
from tests.scenarios.machines.existing_provider import (
    an_existing_fleet,
    boot_of,
    has_new_agent,
    until_up_to_date,
)
from tests.scenarios.machines.fleet_world import FLEET
from tests.scenarios.machines.stories import until_reason
from tests.scenarios.machines.test_busy_builders import github_of, managers, runner
from tests.scenarios.machines.test_fleet_builders import registration_token

LABEL = "vm-image-builder"


def start_bake(mac: Mac) -> int:
    """Start a VM that belongs to no Pod."""
    with mac.change() as state:
        state["launchd"]["last_pid_count"] += 1
        pid = int(state["launchd"]["last_pid_count"])
        command = f"{host.TART_BUNDLE}/{host.TART_IN_BUNDLE} run --no-graphics xcode-26"
        state["processes"].append({"pid": pid, "command": command})
    return pid


async def test_builder_is_updated_after_its_job_with_its_registration() -> None:
    async with an_existing_fleet(1, builders=True) as (world, existing):
        await world.create_machine("a", fleet_name=FLEET, gh_actions_runner=runner(world))
        server = existing.free_host(FLEET)
        await existing.bind("a", server)
        await existing.bootstrap("a", server)
        mac, builders = world.mac(server), github_of(world)
        connection = world.macs.connect(server.ip, user=USER)
        token = await registration_token(world)
        await existing_builder.install(
            mac, connection, name="a", organisation=ORGANISATION, token=token
        )
        await world.until_ready("a")
        job = builders.give_job(LABEL, seconds=2 * 3600)
        await asyncio.sleep(10)
        assert (builders.online(), job.runner_name) == (["a"], "a")
        registered, boot = set(builders.github.actions.runners), boot_of(world, server)
        bake, kicks = start_bake(mac), mac.state["console"]["kicked_count"]
        existing.stop()
        await managers(world)

        await until_reason(world, "a", types.UP_TO_DATE, events.BUILDER_BUSY)
        await asyncio.sleep(3600)
        assert not has_new_agent(world, server)
        # The job ends, and the VM of a second bake still runs.
        await asyncio.sleep(2 * 3600)
        machine = await until_up_to_date(world, "a")
        assert (has_new_agent(world, server), job.conclusion) == (True, "success")
        assert machine.status.ready
        assert set(builders.github.actions.runners) == registered
        assert mac.state["actions_runner"]["registrations_count"] == 1
        assert builders.online() == ["a"]
        assert bake in {each["pid"] for each in mac.state["processes"]}
        assert (mac.state["console"]["kicked_count"], boot_of(world, server)) == (kicks, boot)
        plist = mac.files.read(launchd.daemon_plist(launchd.AGENT)) or b""
        assert flags.DISABLE_VM_GC.name in plistlib.loads(plist)["ProgramArguments"]
        assert existing.provider_calls == []
        assert await existing.leftovers() == set()
        await world.invariants.check_at_rest()
