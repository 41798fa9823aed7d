"""Machines get hosts of the pool and give them back."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta

import pytest

from bramley.api import core
from bramley.api.coordination import Lease
from bramley.api.meta import ObjectMeta
from bramley.api.names import events, machines, secrets
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.sim.scaleway.faults import Fault
from bramley.sim.scaleway.records import Seal, Status
from tests.scenarios.machines.managers import NAMESPACE, RunningManager
from tests.scenarios.machines.world import a_world


async def reason(manager: RunningManager, name: str, expected: str) -> None:
    """Wait until a machine waits for this reason."""
    async with asyncio.timeout(3600):
        while name not in manager.outcomes or manager.outcomes[name].reason != expected:
            await asyncio.sleep(1)


async def test_machine_gets_a_host_and_gives_it_back_wiped() -> None:
    async with a_world(servers=1) as world:
        manager = world.start("first")
        await world.create("a")
        machine = (await world.until("a"))["a"]
        server = world.server(machine)
        password = server.password

        assert server.name == "a"
        assert machine.spec.provider_id == machines.provider_id(machines.DEFAULT_ZONE, server.id)
        [address] = machine.status.addresses
        assert (address.type, address.address) == ("ExternalIP", server.ip)
        stored = (await world.secrets())["a"]
        assert stored[secrets.SSH_USERNAME] == b"m1"
        assert manager.events == [events.ADOPTING, events.ADOPTED, events.PROVISIONED]
        await world.check_at_rest()

        await world.delete("a")
        await world.until()
        assert server.name == f"{machines.POOL_PREFIX}{server.id}"
        assert server.status == Status.REINSTALLING
        assert await world.leases() == {}
        assert await world.secrets() == {}
        assert manager.events[-2:] == [events.RELEASING, events.RELEASED]
        order = [
            next(number for number, call in enumerate(manager.gate.calls) if text in call)
            for text in ("after reinst", "/secrets/a-bootstrap", "DELETE /apis/coordination")
        ]
        assert order == sorted(order)
        await asyncio.sleep(1200)
        assert server.password != password


async def test_host_is_recorded_in_lease_and_status_before_the_first_rename() -> None:
    async with a_world(servers=1) as world:
        manager = world.start("first")
        await world.create("a")
        await world.until("a")

        calls = manager.gate.calls
        first = [
            next(number for number, call in enumerate(calls) if call.startswith(text))
            for text in (
                "after POST /apis/coordination.k8s.io/v1/namespaces/default/leases",
                f"after PATCH {Machine.resource.path(NAMESPACE, 'a', 'status')}",
                "before rename",
            )
        ]
        assert first == sorted(first)


async def test_machine_at_rest_costs_a_list_of_the_zone_and_no_write() -> None:
    async with a_world(servers=1) as world:
        manager = world.start("first")
        await world.create("a")
        await world.until("a")
        await asyncio.sleep(60)
        before = len(manager.gate.calls)
        await asyncio.sleep(600)

        calls = {call.split(" ", 1)[1] for call in manager.gate.calls[before:]}
        assert calls == {f"list of hosts in {machines.DEFAULT_ZONE}"}


async def test_empty_pool_is_reported_until_a_host_is_there() -> None:
    async with a_world(servers=1) as world:
        manager = world.start("first")
        await world.create("a")
        await world.until("a")
        await world.create("b")
        await reason(manager, "b", events.NO_AVAILABLE_HOST)
        assert manager.outcomes["b"].requeue_after == timedelta(minutes=1)

        await world.delete("a")
        await world.until("b")
        await world.check_at_rest()


async def test_quarantined_host_is_not_chosen() -> None:
    async with a_world(servers=1) as world:
        manager = world.start("first")
        await asyncio.sleep(5)
        [server] = world.scaleway.servers.values()
        machine = await world.create("a")
        outcome = await manager.binding.bind(machine, quarantined={server.id})
        assert outcome.reason == events.NO_AVAILABLE_HOST


async def test_lost_status_finds_the_same_host_again() -> None:
    async with a_world(servers=2) as world:
        first = world.start("first")
        await world.create("a")
        before = world.server((await world.until("a"))["a"])
        await world.stop(first)
        gone: dict[str, object] = {"status": {"serverID": None, "addresses": None}}
        patched = await world.kube.merge_patch(
            Machine, "a", gone, namespace=NAMESPACE, subresource="status"
        )
        await world.kube.merge_patch(
            Machine, "a", {"spec": {"providerID": None}}, namespace=NAMESPACE
        )
        assert not patched.status.server_id

        world.start("second")
        after = world.server((await world.until("a"))["a"])
        assert after is before
        await world.check_at_rest()


async def test_machine_of_the_existing_provider_is_taken_over_without_a_write_to_its_host() -> None:
    async with a_world(servers=2) as world:
        server = next(iter(world.scaleway.servers.values()))
        world.scaleway.rename(server, "a")
        spec = {"providerID": machines.provider_id(machines.DEFAULT_ZONE, server.id)}
        await world.create("a", provider_id=spec["providerID"])
        await world.kube.merge_patch(
            Machine,
            "a",
            {"status": {"serverID": server.id, "addresses": [{"type": "x", "address": "y"}]}},
            namespace=NAMESPACE,
            subresource="status",
        )
        stored = {secrets.SUDO_PASSWORD: server.password.encode()}
        metadata = ObjectMeta(name="a-bootstrap", namespace=NAMESPACE)
        await world.kube.create(core.Secret(metadata=metadata, data=stored))

        manager = world.start("first")
        await asyncio.sleep(120)

        writes = [call for call in manager.gate.calls if call.startswith("after P")]
        assert [call for call in writes if "leases" not in call] == [
            f"after PATCH {Machine.resource.path(NAMESPACE, 'a')}"  # the finalizer
        ]
        assert not [call for call in manager.gate.calls if "rename" in call or "reinst" in call]
        await world.check_at_rest()


@pytest.mark.parametrize("name", ["someone-elses", "tuist-pool-by-hand"])
async def test_host_that_was_renamed_by_others_is_reported_and_not_used(name: str) -> None:
    async with a_world(servers=2) as world:
        manager = world.start("first")
        await world.create("a")
        server = world.server((await world.until("a"))["a"])
        world.scaleway.rename(server, name)
        await reason(manager, "a", events.HOST_NAME_CHANGED)
        await asyncio.sleep(600)

        assert server.name == name
        assert await world.leases() == {server.id: "a"}
        world.scaleway.rename(server, "a")
        async with asyncio.timeout(3600):
            while not manager.outcomes["a"].is_done:
                await asyncio.sleep(5)
        await world.check_at_rest()


async def test_host_that_is_not_rented_any_more_is_reported() -> None:
    async with a_world(servers=2) as world:
        manager = world.start("first")
        await world.create("a")
        server = world.server((await world.until("a"))["a"])
        del world.scaleway.servers[server.id]
        await reason(manager, "a", events.HOST_GONE)

        await world.delete("a")
        await world.until()
        await world.check_at_rest()


async def test_sealed_password_is_not_stored_and_a_later_one_is() -> None:
    async with a_world(servers=1) as world:
        [server] = world.scaleway.servers.values()
        world.scaleway.seal(server, Seal(vnc_url="<sealed>"))
        manager = world.start("first")
        await world.create("a")
        await reason(manager, "a", events.MISSING_SUDO_PASSWORD)
        assert await world.secrets() == {}

        server.seal = server.sealed_at = None
        await world.until("a")
        assert manager.events[-1] == events.CREDENTIALS_RECLAIMED
        await world.check_at_rest()


async def test_deleted_secret_is_written_again() -> None:
    async with a_world(servers=1) as world:
        world.start("first")
        await world.create("a")
        await world.until("a")
        await world.kube.delete(core.Secret, "a-bootstrap", namespace=NAMESPACE)
        await world.until("a")
        await world.check_at_rest()


async def test_secret_that_cannot_be_written_costs_no_second_host() -> None:
    async with a_world(servers=2) as world:
        manager = world.start("first")
        manager.gate.refused = ("POST", "/secrets")
        await world.create("a")
        await reason(manager, "a", events.CREDENTIALS_PERSIST_FAILED)
        assert events.PROVISIONING_FAILED in manager.events

        manager.gate.refused = None
        await world.until("a")
        await world.check_at_rest()


async def test_status_that_cannot_be_written_costs_no_second_host() -> None:
    async with a_world(servers=3) as world:
        manager = world.start("first")
        manager.gate.refused = ("PATCH", "/a/status")
        await world.create("a")
        await asyncio.sleep(300)
        assert len(await world.leases()) == 1
        assert all(name.startswith(machines.POOL_PREFIX) for name in world.names())

        manager.gate.refused = None
        await world.until("a")
        await world.check_at_rest()


async def test_failed_provider_keeps_the_same_host() -> None:
    async with a_world(servers=3) as world:
        manager = world.start("first")
        world.scaleway.faults.add(Fault(kind="status", method="PATCH", times=40, is_processed=True))
        await world.create("a")
        await reason(manager, "a", events.ADOPT_FAILED)
        assert len(await world.leases()) == 1
        await world.until("a")
        await world.check_at_rest()


async def test_lease_is_kept_until_the_reinstallation_was_accepted() -> None:
    async with a_world(servers=1) as world:
        manager = world.start("first")
        await world.create("a")
        server = world.server((await world.until("a"))["a"])
        world.scaleway.faults.add(Fault(kind="status", path="*/reinstall", times=20))
        await world.create("b")
        await world.delete("a")
        await reason(manager, "a", events.RELEASE_FAILED)
        await asyncio.sleep(120)
        assert await world.leases() == {server.id: "a"}
        assert (await world.machines())["b"].status.server_id == ""

        await world.until("b")
        await world.check_at_rest()


async def test_release_without_an_image_of_the_family_takes_the_default() -> None:
    async with a_world(servers=1) as world:
        manager = world.start("first")
        await world.create("a")
        await world.until("a")
        await world.kube.merge_patch(
            Machine, "a", {"spec": {"os": "macos-mojave-10.14"}}, namespace=NAMESPACE
        )
        await world.delete("a")
        await world.until()
        assert events.OS_PIN_UNAVAILABLE in manager.events
        await world.check_at_rest()


async def test_release_without_a_prefix_leaves_the_host_to_people() -> None:
    async with a_world(servers=1) as world:
        manager = world.start("first")
        await world.create("a")
        await world.until("a")
        releases = dataclasses.replace(manager.releases, default_pool_prefix="")
        machine = (await world.machines())["a"]
        await world.delete("a")
        outcome = await releases.release((await world.machines())["a"])

        assert outcome.is_done
        assert [each.reason for each in outcome.events] == [events.RELEASE_SKIPPED]
        assert world.server(machine).name == "a"
        assert await world.leases() == {}


async def test_host_of_a_machine_without_its_finalizer_is_wiped_before_another_gets_it() -> None:
    async with a_world(servers=1, stale=0) as world:
        first = world.start("first")
        await world.create("a")
        await world.until("a")
        await world.stop(first)
        nothing: dict[str, object] = {"metadata": {"finalizers": None}}
        await world.kube.merge_patch(Machine, "a", nothing, namespace=NAMESPACE)
        await world.delete("a")

        second = world.start("second")
        await world.create("b")
        await world.until("b")
        assert events.RELEASED in second.events
        await world.check_at_rest()


async def test_leader_of_a_restored_leader_lease_continues_above_the_epoch_of_a_host() -> None:
    async with a_world(servers=1) as world:
        manager = world.start("first")
        await world.create("a")
        server = world.server((await world.until("a"))["a"])
        name = f"{machines.HOST_LEASE_PREFIX}{server.id}"
        patch = {"spec": {"leaseTransitions": 7}}
        await world.kube.merge_patch(Lease, name, patch, namespace=NAMESPACE)
        await world.delete("a")
        await world.until()

        # This process does hold the leader Lease, which was restored from a backup: it continues above the stored epoch.
        assert manager.leadership is not None
        assert manager.leadership.epoch == 8


async def test_release_waits_for_claims_of_an_earlier_leader() -> None:
    async with a_world(servers=1, stale=0) as world:
        first = world.start("first")
        await world.create("a")
        server = world.server((await world.until("a"))["a"])
        await asyncio.sleep(600)
        await world.stop(first)
        await world.delete("a")
        second = world.start("second")
        await reason(second, "a", events.RELEASING)
        assert server.name == "a"
        await asyncio.sleep(90)
        assert server.name == "a"
        await world.until()
        await world.check_at_rest()
