"""Hosts that break while they serve: the Node is gone, the agent does not run, the user's session is lost."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from bramley.api import conditions
from bramley.api.core import Node, Secret
from bramley.api.names import conditions as types
from bramley.api.names import events, host, launchd, secrets
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.machines import mac_draft, recovery
from bramley.sim.macos import faults
from bramley.sim.scaleway.faults import Fault
from tests.scenarios.machines.fleet_world import NAMESPACE, a_fleet_world
from tests.scenarios.machines.mac_connections import host_key
from tests.scenarios.machines.mac_vms import VmProcesses
from tests.scenarios.machines.stories import (
    Managers,
    bootstrap_secret,
    condition,
    is_tainted,
    reasons,
    run_on,
    server_of,
    start_job,
    until_reason,
)
from tests.scenarios.machines.test_life import until_ready

AGENT = f"system/{launchd.AGENT}"


async def test_deleted_node_comes_back_verified_while_its_jobs_run() -> None:
    async with a_fleet_world(servers=1) as world:
        await Managers(world).start()
        await world.create_machine("a", fleet_name="fleet-a")
        machine = (await until_ready(world, "a"))["a"]
        for name in ("first", "second"):
            await start_job(world, name, "a", seconds=4 * 3600)
        before = (await world.nodes())["a"]
        mac = world.macs.mac(machine.status.server_id)
        boot = mac.state["boot"]["boot_id"]

        await world.kube.delete(Node, "a")
        await until_reason(world, "a", types.PROVEN, events.SMOKE_VM_BOOTING)
        await until_reason(world, "a", types.PROVEN, "")
        after = (await world.nodes())["a"]
        assert after.uid != before.uid
        assert not is_tainted(after)
        await asyncio.sleep(5 * 3600)

        found = await reasons(world, "a")
        assert not {events.SMOKE_VM_FAILED, events.REBOOTING_FOR_RECOVERY} & set(found)
        assert mac.state["boot"]["boot_id"] == boot
        assert (await world.machines())["a"].status.ready
        await world.invariants.check_at_rest()


async def test_agent_whose_job_was_unloaded_is_loaded_again_once_its_node_is_deleted() -> None:
    async with a_fleet_world(servers=1) as world:
        await Managers(world).start()
        await world.create_machine("a", fleet_name="fleet-a")
        machine = (await until_ready(world, "a"))["a"]
        mac = world.macs.mac(machine.status.server_id)
        boot = mac.state["boot"]["boot_id"]

        await run_on(world, machine.status.server_id, "launchctl", "bootout", AGENT)
        await until_reason(world, "a", types.NODE_READY, events.NODE_NOT_READY)
        await world.kube.delete(Node, "a")
        await asyncio.sleep(1800)
        await world.until_ready("a")
        await until_reason(world, "a", types.READY, "")

        found = await reasons(world, "a")
        assert found.count(events.NODE_MISSING) == 1
        assert events.BOOTSTRAP_FAILED not in found
        assert mac.state["boot"]["boot_id"] == boot
        await world.invariants.check_at_rest()


async def test_host_without_its_node_is_set_up_again_around_a_vm_that_runs() -> None:
    """As on a builder: the VM belongs to no Pod."""
    async with a_fleet_world(servers=1) as world:
        await Managers(world).start()
        await world.create_machine("a", fleet_name="fleet-a")
        machine = (await until_ready(world, "a"))["a"]
        mac = world.macs.mac(machine.status.server_id)
        processes = VmProcesses(mac, world.agents.disturbances)
        processes.start("bake")
        before = mac.state["boot"]["boot_id"], mac.state["console"].get("kicked_count", 0)
        await run_on(world, machine.status.server_id, "launchctl", "bootout", AGENT)
        mac.files.remove(host.AGENT_CURRENT)
        await until_reason(world, "a", types.NODE_READY, events.NODE_NOT_READY)

        await world.kube.delete(Node, "a")
        await until_reason(world, "a", types.BOOTSTRAPPED, events.BOOTSTRAPPING)
        await world.until_ready("a")
        await until_reason(world, "a", types.READY, "")
        after = mac.state["boot"]["boot_id"], mac.state["console"].get("kicked_count", 0)
        assert after == before
        assert processes.check() == set()
        await world.invariants.check_at_rest()


async def test_lost_session_is_reported() -> None:
    async with a_fleet_world(servers=1) as world:
        await Managers(world).start()
        await world.create_machine("a", fleet_name="fleet-a")
        machine = (await until_ready(world, "a"))["a"]
        mac = world.macs.mac(machine.status.server_id)
        with mac.change() as state:
            state["console"]["user"] = None

        found = await until_reason(world, "a", types.NODE_READY, events.NODE_NOT_READY)
        assert "no session" in (found.message or "")
        assert (await condition(world, "a", types.READY)).status != "True"
        assert (await world.machines())["a"].status.ready


async def test_agent_that_crashes_on_a_new_host_costs_attempts_and_then_the_host() -> None:
    async with a_fleet_world(servers=1) as world:
        tiers = recovery.Settings(reboot_after=2, max_attempts=3)
        decisions = mac_draft.Settings(recovery=tiers)
        await Managers(world).start(decisions=decisions)
        [server] = world.scaleway.servers.values()
        faults.crash(world.mac(server), launchd.AGENT)
        first = host_key(world.mac(server))
        await world.create_machine("a", fleet_name="fleet-a")
        machine = (await until_ready(world, "a"))["a"]

        found = await reasons(world, "a")
        assert found.count(events.REBOOTING_FOR_RECOVERY) == 1
        assert found.count(events.BOOTSTRAP_EXHAUSTED) == 1
        assert host_key(world.mac(server_of(world, machine))) != first
        await world.invariants.check_at_rest()


async def test_reboot_that_the_provider_refuses_is_tried_again() -> None:
    async with a_fleet_world(servers=1) as world:
        await Managers(world).start()
        [server] = world.scaleway.servers.values()
        world.faults(server).fail_until_rebooted()
        world.scaleway.faults.add(
            Fault(kind="status", method="POST", path="*/reboot", times=2, status=500)
        )
        await world.create_machine("a", fleet_name="fleet-a")
        machine = (await until_ready(world, "a"))["a"]

        found = await reasons(world, "a")
        assert {events.REBOOT_FOR_RECOVERY_FAILED, events.REBOOTING_FOR_RECOVERY} <= set(found)
        assert events.RELEASED not in found
        assert machine.status.bootstrap_attempts == 0
        await world.invariants.check_at_rest()


async def test_failures_are_a_minute_apart_although_each_writes_the_status() -> None:
    """Each write of the status enqueues the machine, which must not use up the attempts."""
    async with a_fleet_world(servers=1) as world:
        await Managers(world).start()
        [server] = world.scaleway.servers.values()
        world.faults(server).is_silent = True
        await world.create_machine("a", fleet_name="fleet-a")
        attempts = []

        async def has_failed_thrice() -> bool:
            status = (await world.machines())["a"].status
            since = status.last_bootstrap_failure_time
            if since is not None and since not in attempts:
                attempts.append(since)
            return len(attempts) == 3

        await world.until(has_failed_thrice)
        first, second, third = attempts
        assert min(second - first, third - second) >= timedelta(minutes=1)
        world.faults(server).is_silent = False
        await until_ready(world, "a")
        await world.invariants.check_at_rest()


async def test_bootstrap_continues_after_connections_that_break() -> None:
    async with a_fleet_world(servers=1) as world:
        await Managers(world).start()
        [server] = world.scaleway.servers.values()
        for number in (5, 60):
            world.faults(server).cut_ssh(number)
        await world.create_machine("a", fleet_name="fleet-a")
        machine = (await until_ready(world, "a"))["a"]

        found = await reasons(world, "a")
        assert events.BOOTSTRAP_FAILED in found
        assert events.REBOOTING_FOR_RECOVERY not in found
        assert machine.status.bootstrap_attempts == 0
        assert conditions.is_true(machine.status.conditions, types.READY)
        await world.invariants.check_at_rest()


async def test_address_and_password_are_read_again_after_a_failed_attempt() -> None:
    """Both change when people install the host again."""
    async with a_fleet_world(servers=1) as world:
        managers = Managers(world)
        await managers.start()
        [server] = world.scaleway.servers.values()
        world.faults(server).is_silent = True
        await world.create_machine("a", fleet_name="fleet-a")
        await until_reason(world, "a", types.BOOTSTRAPPED, events.BOOTSTRAP_FAILED)
        await managers.stop()
        old = {"status": {"addresses": [{"type": "ExternalIP", "address": "10.99.0.1"}]}}
        await world.kube.merge_patch(Machine, "a", old, namespace=NAMESPACE, subresource="status")
        login = {"stringData": {secrets.SUDO_PASSWORD: "of the last installation"}}
        name = secrets.machine_bootstrap("a")
        await world.kube.merge_patch(Secret, name, login, namespace=NAMESPACE)
        world.faults(server).is_silent = False
        await managers.start()
        machine = (await until_ready(world, "a"))["a"]

        assert [each.address for each in machine.status.addresses] == [server.ip]
        stored = await bootstrap_secret(world, "a")
        assert stored.data[secrets.SUDO_PASSWORD] == server.password.encode()
        found = await reasons(world, "a")
        assert events.REBOOTING_FOR_RECOVERY not in found
        await world.invariants.check_at_rest()
