"""The identities of agents: what is recorded on them, and that a name has one Mac."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from bramley.api.core import Namespace, Node, NodeSpec, ServiceAccount
from bramley.api.mac_host import MacHost, MacHostSpec
from bramley.api.meta import ObjectMeta
from bramley.api.names import access, agent, events, labels
from bramley.api.names import conditions as types
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachineSpec as Spec
from tests.scenarios.machines.fleet_world import NAMESPACE, FleetWorld, a_fleet_world
from tests.scenarios.machines.stories import (
    Managers,
    change_spec,
    create_secret,
    start_job,
    until_reason,
    until_updated,
)
from tests.scenarios.machines.test_life import until_ready

HEARTBEAT = timedelta(minutes=1)
OTHER = "other"


async def record_of(world: FleetWorld, node: str) -> tuple[str | None, str | None]:
    name = agent.service_account(node)
    found = await world.kube.get(ServiceAccount, name, namespace=access.NAMESPACE)
    marks = found.metadata.annotations
    return marks.get(access.NODE_LABELS), marks.get(access.REGISTER_TAINTS)


async def a_served_machine(world: FleetWorld) -> Machine:
    await Managers(world).start()
    await world.create_machine("a", fleet_name="fleet-a")
    return (await until_ready(world, "a"))["a"]


async def require_unharmed(world: FleetWorld, before: Machine) -> None:
    """Check that the machine `a` serves on the same host, with its job."""
    after = await world.kube.get(Machine, "a", namespace=NAMESPACE)
    assert after.status.server_id == before.status.server_id
    assert not (await world.nodes())["a"].spec.unschedulable
    assert (await world.pods())["job"].status.phase == "Running"
    await world.until_ready("a")
    await world.invariants.check_at_rest()


async def test_labels_and_taints_of_a_node_are_recorded_and_follow_its_configuration() -> None:
    async with a_fleet_world(servers=1, heartbeat=HEARTBEAT) as world:
        machine = await a_served_machine(world)
        taint = f"{labels.UNPROVEN_TAINT}=true:NoSchedule"
        assert await record_of(world, "a") == ("tuist.dev/fleet=fleet-a", taint)

        await change_spec(world, "a", fleetName="fleet-b")
        await until_updated(world, "a", before=[machine])
        assert await record_of(world, "a") == ("tuist.dev/fleet=fleet-b", taint)
        await asyncio.sleep(120)
        assert (await world.nodes())["a"].metadata.labels[labels.FLEET] == "fleet-b"


async def test_second_machine_of_a_name_gets_no_host_and_takes_nothing_with_it() -> None:
    async with a_fleet_world(servers=2, heartbeat=HEARTBEAT) as world:
        machine = await a_served_machine(world)
        await start_job(world, "job", "a", seconds=24 * 3600)
        await world.kube.create(Namespace(metadata=ObjectMeta(name=OTHER)))
        metadata = ObjectMeta(name="a", namespace=OTHER)
        await world.kube.create(Machine(metadata=metadata, spec=Spec(fleet_name="fleet-a")))
        await asyncio.sleep(1800)
        second = await world.kube.get(Machine, "a", namespace=OTHER)
        assert second.status.server_id == ""
        [reason] = [e.reason for e in second.status.conditions if e.type == types.PROVISIONED]
        assert reason == events.NAME_IN_USE

        await world.kube.delete(Machine, "a", namespace=OTHER)
        await asyncio.sleep(1800)
        assert (await world.kube.list(Machine, namespace=OTHER)).items == []
        await require_unharmed(world, machine)


async def test_mac_host_of_the_name_of_a_machine_takes_nothing_with_it() -> None:
    async with a_fleet_world(servers=1, heartbeat=HEARTBEAT) as world:
        machine = await a_served_machine(world)
        await start_job(world, "job", "a", seconds=24 * 3600)
        made = await world.add_own_mac("own")
        await create_secret(world, "login", sudo_password=made.password)
        spec = MacHostSpec(
            address=world.macs.address("own"), user=made.user, credentials_secret_name="login"
        )
        metadata = ObjectMeta(name="a", namespace=NAMESPACE)
        await world.kube.create(MacHost(metadata=metadata, spec=spec))
        await until_reason(world, "a", types.PROVISIONED, events.NAME_IN_USE, kind=MacHost)
        await world.kube.delete(MacHost, "a", namespace=NAMESPACE)
        await asyncio.sleep(1800)

        assert (await world.kube.list(MacHost)).items == []
        await require_unharmed(world, machine)


async def test_machine_of_the_name_of_another_node_neither_drains_nor_deletes_it() -> None:
    async with a_fleet_world(servers=1, heartbeat=timedelta(hours=1)) as world:
        await Managers(world).start()
        metadata = ObjectMeta(name="worker-1", labels={labels.OS: "linux"})
        await world.kube.create(Node(metadata=metadata, spec=NodeSpec()))
        await world.create_pod("web", node="worker-1")
        await world.create_machine("worker-1", fleet_name="fleet-a")
        found = await until_reason(world, "worker-1", types.PROVISIONED, events.NAME_IN_USE)
        assert "which is no Mac" in (found.message or "")
        await world.delete_machine("worker-1")
        await asyncio.sleep(600)

        assert await world.machines() == {}
        assert not (await world.nodes())["worker-1"].spec.unschedulable
        assert set(await world.pods()) == {"web"}
        await world.invariants.check_at_rest()


async def test_node_that_is_registered_at_the_last_moment_is_deleted() -> None:
    """The manager may not have observed it when the machine is deleted during its bootstrap."""
    async with a_fleet_world(servers=1, heartbeat=HEARTBEAT) as world:
        await Managers(world).start()
        await world.create_machine("a", fleet_name="fleet-a")

        async def is_registered() -> bool:
            return "a" in await world.nodes()

        async with asyncio.timeout(7200):
            while not await is_registered():
                await asyncio.sleep(0.05)
        await world.delete_machine("a")
        await asyncio.sleep(3600)

        assert await world.machines() == {}
        assert await world.nodes() == {}
        await world.invariants.check_at_rest()
