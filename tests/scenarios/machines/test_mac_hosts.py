"""Macs that a team owns: what is wrong with a MacHost is reported with its field, a change repairs it, and no other host is harmed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from bramley.access import identity
from bramley.api.core import Namespace, Node, Secret, ServiceAccount
from bramley.api.mac_host import MacHost, MacHostSpec
from bramley.api.meta import ObjectMeta
from bramley.api.names import access, agent, events
from bramley.api.names import conditions as types
from bramley.api.names import host as places
from bramley.base import errors
from tests.scenarios.machines.fleet_world import NAMESPACE, FleetWorld, a_fleet_world, is_ready
from tests.scenarios.machines.provider import Provider
from tests.scenarios.machines.stories import (
    change_spec,
    condition,
    create_secret,
    events_of,
    start_job,
    until_reason,
)
from tests.scenarios.machines.test_life import until_ready

LOGIN = "login"


@asynccontextmanager
async def a_world(*macs: str, servers: int = 0) -> AsyncIterator[FleetWorld]:
    """Run a world with a manager, these Macs, and the Secret with the password of the first one."""
    async with a_fleet_world(servers=servers) as world:
        world.start(Provider(world=world).manager().run())
        made = [await world.add_own_mac(each) for each in macs]
        await create_secret(world, LOGIN, sudo_password=made[0].password)
        yield world


async def create(world: FleetWorld, name: str, mac: str, **fields: Any) -> None:
    """Create a MacHost for a Mac; keywords are attributes of its spec."""
    given = {"address": world.macs.address(mac), "credentials_secret_name": LOGIN, **fields}
    metadata = ObjectMeta(name=name, namespace=NAMESPACE)
    await world.kube.create(MacHost(metadata=metadata, spec=MacHostSpec(**given)))


async def until_not_ready(world: FleetWorld, name: str, reason: str) -> str:
    """Wait until a MacHost is not Ready for this reason, and return the message."""
    found = await until_reason(world, name, types.READY, reason, kind=MacHost)
    return found.message or ""


async def until_serving(world: FleetWorld, name: str) -> None:
    await until_reason(world, name, types.READY, "", kind=MacHost)


async def delete(world: FleetWorld, name: str) -> None:
    """Delete a MacHost, and wait until it is gone."""
    await world.kube.delete(MacHost, name, namespace=NAMESPACE)

    async def is_gone() -> bool:
        return name not in {each.name for each in (await world.kube.list(MacHost)).items}

    await world.until(is_gone, within=600)


async def has_identity(world: FleetWorld, node: str) -> bool:
    name = agent.service_account(node)
    try:
        await world.kube.get(ServiceAccount, name, namespace=access.NAMESPACE)
    except errors.NotFound:
        return False
    return True


def has_agent(world: FleetWorld, mac: str) -> bool:
    return world.macs.mac(mac).files.exists(places.AGENT_KUBECONFIG)


async def test_missing_secret_is_named_and_the_mac_joins_once_it_is_complete() -> None:
    async with a_world("one") as world:
        await create(world, "own", "one", credentials_secret_name="later")
        reason = events.CREDENTIALS_UNAVAILABLE
        message = await until_not_ready(world, "own", reason)
        assert message == (
            "spec.credentialsSecretName: Secret default/later does not exist; "
            "store the password of the Mac's user in it, as sudo-password"
        )
        await asyncio.sleep(600)
        found = [(each.reason, each.message, each.count or 1) for each in await events_of(world, "own")]  # fmt: skip
        assert found == [(reason, message, 1)]

        await create_secret(world, "later", unrelated="value")
        await asyncio.sleep(60)
        message = await until_not_ready(world, "own", reason)
        assert "Secret default/later has no value sudo-password" in message

        patch = {"stringData": {"sudo-password": "password of one"}}
        await world.kube.merge_patch(Secret, "later", patch, namespace=NAMESPACE)
        await asyncio.sleep(60)
        begun = await condition(world, "own", types.BOOTSTRAPPED, kind=MacHost)
        assert begun.reason != reason
        await until_serving(world, "own")


async def test_wrong_password_is_reported_with_its_secret() -> None:
    async with a_world("one") as world:
        await create_secret(world, "wrong", sudo_password="guessed")
        await create(world, "own", "one", credentials_secret_name="wrong", user="admin")
        message = await until_not_ready(world, "own", events.BOOTSTRAP_FAILED)
        assert message.endswith(
            "(spec.user is admin, spec.credentialsSecretName names the Secret default/wrong)"
        )


async def test_mac_whose_secret_was_deleted_too_early_is_cleaned_once_it_is_back() -> None:
    async with a_world("one") as world:
        await create(world, "own", "one")
        await until_serving(world, "own")
        await world.kube.delete(Secret, LOGIN, namespace=NAMESPACE)
        await world.kube.delete(MacHost, "own", namespace=NAMESPACE)
        found = await until_reason(world, "own", types.READY, events.CLEANUP_FAILED, kind=MacHost)
        place = "spec.credentialsSecretName: Secret default/login does not exist"
        assert (found.message or "").startswith(place)
        assert has_agent(world, "one")

        await create_secret(world, LOGIN, sudo_password="password of one")
        await asyncio.sleep(300)
        assert (await world.kube.list(MacHost)).items == []
        assert not has_agent(world, "one")


async def test_corrected_address_is_tried_at_once() -> None:
    async with a_world("one") as world:
        await create(world, "own", "one", address="10.99.0.1", port=2222)
        message = await until_not_ready(world, "own", events.BOOTSTRAP_FAILED)
        assert message.endswith("(spec.address is 10.99.0.1, spec.port is 2222)")
        # By now the next attempt is ten minutes away.
        await asyncio.sleep(3600)
        await until_not_ready(world, "own", events.BOOTSTRAP_FAILED)

        await change_spec(world, "own", MacHost, address=world.macs.address("one"), port=22)
        await asyncio.sleep(10)
        assert (await condition(world, "own", types.BOOTSTRAPPED, kind=MacHost)).reason == (
            events.BOOTSTRAPPING
        )
        await until_serving(world, "own")


async def test_mac_host_that_was_never_reached_is_deleted_without_a_cleanup() -> None:
    async with a_world("one") as world:
        await create(world, "own", "one", address="10.99.0.1")
        await until_not_ready(world, "own", events.BOOTSTRAP_FAILED)

        await delete(world, "own")
        assert events.CLEANUP_FAILED not in {each.reason for each in await events_of(world, "own")}


async def test_mac_that_was_reached_only_once_is_cleaned() -> None:
    async with a_world("one") as world:
        faults = world.connections.faults(world.macs.address("one"))
        faults.cut_ssh(8)
        await create(world, "own", "one")
        await until_not_ready(world, "own", events.BOOTSTRAP_FAILED)

        await delete(world, "own")
        assert events.CLEANED_UP in {each.reason for each in await events_of(world, "own")}


async def test_second_mac_host_of_an_address_is_refused_and_its_deletion_leaves_the_mac_alone() -> (
    None
):
    async with a_world("one") as world:
        await create(world, "own", "one")
        await until_serving(world, "own")
        await create(world, "twin", "one")
        message = await until_not_ready(world, "twin", events.ADDRESS_IN_USE)
        address = world.macs.address("one")
        assert message.startswith(f"spec.address: the MacHost default/own has {address}:22, too; ")
        assert [each.message for each in await events_of(world, "twin")] == [message]

        await delete(world, "twin")
        assert has_agent(world, "one")
        assert is_ready((await world.nodes())["own"])


async def test_mac_host_that_was_moved_to_the_address_of_another_does_not_clean_that_mac() -> None:
    async with a_world("one", "two") as world:
        await create(world, "own", "one")
        await create_secret(world, "second", sudo_password="password of two")
        await create(world, "other", "two", credentials_secret_name="second")
        await until_serving(world, "own")
        await until_serving(world, "other")

        await change_spec(world, "other", MacHost, address=world.macs.address("one"))
        await until_not_ready(world, "other", events.ADDRESS_IN_USE)
        await delete(world, "other")
        assert has_agent(world, "one")
        assert is_ready((await world.nodes())["own"])


async def test_mac_host_with_the_name_of_a_rented_node_is_refused_and_its_deletion_harms_nothing() -> (
    None
):
    async with a_world("one", servers=1) as world:
        await world.create_machine("a", fleet_name="fleet-a")
        await until_ready(world, "a")
        await start_job(world, "job", "a")
        before = set(await world.pods())

        await create(world, "a", "one")
        message = await until_not_ready(world, "a", events.NAME_IN_USE)
        assert message.startswith(
            "metadata.name: there is a Node a already, which is scw-applesilicon://"
        )
        await delete(world, "a")

        assert set(await world.pods()) == before
        assert await has_identity(world, "a")
        node = (await world.nodes())["a"]
        assert is_ready(node)
        assert not node.spec.unschedulable


async def test_mac_host_with_the_name_of_another_one_revokes_nothing() -> None:
    async with a_world("one", "two") as world:
        # The older one has an identity and no Node yet.
        world.connections.faults(world.macs.address("one")).is_silent = True
        await create(world, "own", "one")
        await until_reason(world, "own", types.BOOTSTRAPPED, events.BOOTSTRAPPING, kind=MacHost)
        await identity.create(world.kube, "own", expires=timedelta(hours=1))
        await world.kube.create(Namespace(metadata=ObjectMeta(name="other")))
        spec = MacHostSpec(address=world.macs.address("two"), credentials_secret_name=LOGIN)
        twin = MacHost(metadata=ObjectMeta(name="own", namespace="other"), spec=spec)
        await world.kube.create(twin)

        async def is_refused() -> bool:
            found = await world.kube.get(MacHost, "own", namespace="other")
            return any(each.reason == events.NAME_IN_USE for each in found.status.conditions)

        await world.until(is_refused, within=600)
        await world.kube.delete(MacHost, "own", namespace="other")
        await asyncio.sleep(120)
        assert [each.namespace for each in (await world.kube.list(MacHost)).items] == [NAMESPACE]
        assert await has_identity(world, "own")
        world.connections.faults(world.macs.address("one")).is_silent = False
        await until_serving(world, "own")


async def test_changed_address_ends_the_attempt_at_the_old_one() -> None:
    async with a_world("one", "two") as world:
        await create(world, "own", "two")
        silent = world.connections.faults(world.macs.address("two"))
        silent.is_silent = True
        await until_reason(world, "own", types.BOOTSTRAPPED, events.BOOTSTRAPPING, kind=MacHost)
        await asyncio.sleep(5)

        await change_spec(world, "own", MacHost, address=world.macs.address("one"))
        await asyncio.sleep(5)
        assert world.connections.opened == 1
        await until_serving(world, "own")
        assert not has_agent(world, "two")


async def test_mac_host_with_the_name_of_another_kind_of_node_is_refused() -> None:
    async with a_world("one") as world:
        metadata = ObjectMeta(name="own", labels={"kubernetes.io/os": "linux"})
        await world.kube.create(Node(metadata=metadata))
        await create(world, "own", "one")

        message = await until_not_ready(world, "own", events.NAME_IN_USE)
        assert message.startswith("metadata.name: there is a Node own already, which is no Mac")
        await delete(world, "own")
        assert "own" in await world.nodes()
