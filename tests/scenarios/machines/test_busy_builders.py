"""Builders whose runner has a job, which no Pod shows: they are neither released, rebooted nor cleaned before the job has ended."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

from bramley.api import core
from bramley.api.cluster_api import Machine as ApiMachine
from bramley.api.core import Node
from bramley.api.mac_host import MacHost, MacHostSpec
from bramley.api.meta import ObjectMeta
from bramley.api.names import cluster_api as capi
from bramley.api.names import conditions as types
from bramley.api.names import events
from bramley.api.scaleway_machine import GHActionsRunner
from bramley.machines import mac_draft
from bramley.machines.runner_registration import GitHubAppResolver, RunnerRegistration
from bramley.sim.github.faults import Fault
from bramley.sim.github.records import Job
from tests import github_peer, virtual_time
from tests.scenarios.machines.builders import APP_SECRET, ORGANISATION, Builders
from tests.scenarios.machines.fleet_world import NAMESPACE, FleetWorld, a_fleet_world
from tests.scenarios.machines.stories import (
    Managers,
    change_spec,
    condition,
    create_secret,
    reasons,
    run_on,
    server_of,
    until_reason,
    until_updated,
)
from tests.scenarios.machines.test_fleets import until_fleet
from tests.scenarios.machines.test_life import until_ready
from tests.scenarios.machines.test_recovery import AGENT

LABEL = "vm-image-builder"
HOUR = 3600.0


def a_world(*, servers: int) -> AbstractAsyncContextManager[FleetWorld]:
    return a_fleet_world(servers=servers, builders=True, heartbeat=timedelta(minutes=2))


def runner(world: FleetWorld) -> GHActionsRunner:
    return GHActionsRunner(
        gh_runner_version=world.artifacts.actions_runner.version,
        gh_org=ORGANISATION,
        gh_runner_labels=LABEL,
        gh_app_secret_name=APP_SECRET,
    )


def github_of(world: FleetWorld) -> Builders:
    assert world.builders is not None
    return world.builders


class Forge(GitHubAppResolver):
    """The simulated GitHub; counts the tokens that were requested."""

    tokens = 0

    async def resolve(
        self, namespace: str, spec: GHActionsRunner | None
    ) -> RunnerRegistration | None:
        self.tokens += 1
        return await super().resolve(namespace, spec)


def forge_of(world: FleetWorld) -> Forge:
    client = github_peer.peer(github_of(world).github).client
    return Forge(world.client(), client, clock=virtual_time.clock())


async def managers(world: FleetWorld, **settings: Any) -> Managers:
    """Start a manager with a real directory of the simulated GitHub's runners."""
    found = Managers(world, {"forge": forge_of(world), **settings})
    await found.start()
    return found


async def a_builder(world: FleetWorld, **settings: Any) -> Managers:
    """Set the machine `a` up as a builder."""
    found = await managers(world, **settings)
    await world.create_machine("a", fleet_name="builders", gh_actions_runner=runner(world))
    await until_ready(world, "a")
    return found


async def start_job(world: FleetWorld, seconds: float) -> Job:
    job = github_of(world).give_job(LABEL, seconds=seconds)
    await asyncio.sleep(30)
    assert job.conclusion is None
    return job


async def until_gone(world: FleetWorld) -> None:
    async def is_gone() -> bool:
        return not await world.machines()

    await world.until(is_gone)


async def delete_during_a_job(world: FleetWorld) -> Job:
    """Delete the machine, and check that it is there shortly before its job ends."""
    job = await start_job(world, 2 * HOUR)
    await world.delete_machine("a")
    await asyncio.sleep(2 * HOUR - 120)
    found = await condition(world, "a", types.UP_TO_DATE)
    assert found.reason == events.BUILDER_BUSY
    return job


async def test_builder_is_released_after_its_job() -> None:
    async with a_world(servers=1) as world:
        await a_builder(world)
        job = await delete_during_a_job(world)
        await until_gone(world)

        assert job.conclusion == "success"
        assert github_of(world).github.actions.runners == {}
        await world.invariants.check_at_rest()


async def test_host_shows_the_job_if_the_credentials_of_the_forge_are_gone() -> None:
    """As when a whole release of the chart is deleted: the Secret may be gone before the machines."""
    async with a_world(servers=1) as world:
        await a_builder(world)
        await world.kube.delete(core.Secret, APP_SECRET, namespace=NAMESPACE)
        job = await delete_during_a_job(world)
        assert events.RUNNER_REMOVAL_FAILED in await reasons(world, "a")
        await until_gone(world)

        assert job.conclusion == "success"
        # Only with credentials it could have been removed.
        await asyncio.sleep(60)
        assert github_of(world).online() == []
        await world.invariants.check()


async def test_builder_is_released_once_its_forge_answers() -> None:
    async with a_world(servers=1) as world:
        await a_builder(world)
        faults = github_of(world).github.faults
        faults.add(Fault(kind="status", path="/orgs/*", times=1_000_000))
        await world.delete_machine("a")
        await asyncio.sleep(HOUR)
        assert set(await world.machines()) == {"a"}
        faults.clear()
        await until_gone(world)

        assert github_of(world).github.actions.runners == {}
        await world.invariants.check_at_rest()


async def test_timeout_of_the_drain_also_limits_the_wait_for_a_builder() -> None:
    async with a_world(servers=1) as world:
        await a_builder(world, decisions=mac_draft.Settings(drain_timeout=timedelta(minutes=30)))
        world.invariants.expects_harm = True
        await start_job(world, 24 * HOUR)
        await world.delete_machine("a")
        await asyncio.sleep(1700)
        assert set(await world.machines()) == {"a"}
        await asyncio.sleep(600)

        assert await world.machines() == {}


async def test_scale_down_takes_the_builder_without_a_job() -> None:
    async with a_world(servers=2) as world:
        await managers(world)
        spec = {"ghRunnerVersion": runner(world).gh_runner_version, "ghOrg": ORGANISATION}
        spec |= {"ghRunnerLabels": LABEL, "ghAppSecretName": APP_SECRET}
        await world.create_fleet(2, name="builders", ghActionsRunner=spec)
        found = await until_fleet(world, 2)
        await asyncio.sleep(120)
        assert await marks(world) == dict.fromkeys(found, "idle")
        job = await start_job(world, 2 * HOUR)
        await asyncio.sleep(120)
        busy = str(job.runner_name)
        assert await marks(world) == {name: None if name == busy else "idle" for name in found}

        await world.scale(1, name="builders")
        await asyncio.sleep(HOUR)
        assert set(await world.machines()) == {busy}
        await asyncio.sleep(2 * HOUR)
        assert job.conclusion == "success"
        await world.invariants.check_at_rest()


async def marks(world: FleetWorld) -> dict[str, str | None]:
    return {
        each.spec.infrastructure_ref.name: each.metadata.annotations.get(capi.DELETE_MACHINE)
        for each in (await world.kube.list(ApiMachine)).items
    }


async def test_silent_builder_is_neither_rebooted_nor_released_under_its_job() -> None:
    async with a_world(servers=1) as world:
        await a_builder(world)
        machine = (await world.machines())["a"]
        faults = world.faults(server_of(world, machine))
        job = await start_job(world, 3 * HOUR)
        await run_on(world, machine.status.server_id, "launchctl", "bootout", AGENT)
        await asyncio.sleep(60)
        faults.is_silent = True
        await world.kube.delete(Node, "a")
        await asyncio.sleep(3 * HOUR - 120)
        status = (await world.machines())["a"].status
        assert status.bootstrap_attempts == 8
        assert not status.bootstrap_reboot_issued
        assert status.server_id == machine.status.server_id
        await asyncio.sleep(120)

        assert job.conclusion == "success"
        faults.is_silent = False
        await until_ready(world, "a")
        await world.invariants.check_at_rest()


async def test_roll_begins_with_a_builder_that_has_no_job() -> None:
    async with a_world(servers=2) as world:
        found = await managers(world)
        for name in ("a", "b"):
            await world.create_machine(name, fleet_name="builders", gh_actions_runner=runner(world))
        before = await until_ready(world, "a", "b")
        # The first one in the order of their names.
        github_of(world).github.actions.lose(next(each for each in github_of(world).github.actions.runners.values() if each.name == "b"))  # fmt: skip
        job = await start_job(world, 2 * HOUR)
        assert job.runner_name == "a"
        await found.start(agent=world.artifacts.newer_agent)
        await asyncio.sleep(HOUR)

        after = await world.machines()
        assert after["b"].status.host_config_hash != before["b"].status.host_config_hash
        assert after["a"].status.host_config_hash == before["a"].status.host_config_hash
        await until_reason(world, "a", types.UP_TO_DATE, "")
        assert job.conclusion == "success"
        await world.invariants.check_at_rest()


async def test_mac_of_a_team_is_cleaned_after_its_job() -> None:
    async with a_world(servers=0) as world:
        await managers(world)
        made = await world.add_own_mac("own")
        await create_secret(world, "login", sudo_password=made.password)
        spec = MacHostSpec(
            address=world.macs.address("own"),
            user=made.user,
            credentials_secret_name="login",
            gh_actions_runner=runner(world),
        )
        metadata = ObjectMeta(name="own", namespace=NAMESPACE)
        await world.kube.create(MacHost(metadata=metadata, spec=spec))
        await until_reason(world, "own", types.READY, "", kind=MacHost)
        job = await start_job(world, 2 * HOUR)
        await world.kube.delete(MacHost, "own", namespace=NAMESPACE)
        await asyncio.sleep(HOUR)
        assert (
            await condition(world, "own", types.UP_TO_DATE, kind=MacHost)
        ).reason == "BuilderBusy"
        await asyncio.sleep(2 * HOUR)

        assert job.conclusion == "success"
        assert (await world.kube.list(MacHost)).items == []
        assert github_of(world).github.actions.runners == {}
        await world.invariants.check_at_rest()


async def test_token_is_requested_for_an_update_only_if_the_runner_is_registered_again() -> None:
    async with a_world(servers=1) as world:
        forge = forge_of(world)
        found = await a_builder(world, forge=forge)
        assert forge.tokens == 1
        before = (await world.machines()).values()
        await found.start(agent=world.artifacts.newer_agent)
        await until_updated(world, "a", before=before)
        assert forge.tokens == 1

        before = (await world.machines()).values()
        await change_spec(world, "a", ghActionsRunner={"ghRunnerLabels": "other"})
        await until_updated(world, "a", before=before)
        assert forge.tokens == 2
        await asyncio.sleep(60)
        [registered] = github_of(world).github.actions.runners.values()
        assert (registered.labels, registered.is_online) == (("other",), True)
        await world.invariants.check_at_rest()
