"""Fleets of the existing provider are handed over: nothing is claimed, released or rebooted, and agents are replaced by a roll."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

import pytest

from bramley.api import conditions
from bramley.api.cluster_api import Cluster
from bramley.api.core import Secret
from bramley.api.names import annotations as annotation_names
from bramley.api.names import conditions as types
from bramley.api.names import events, host, launchd, machines, secrets
from bramley.kube.client import Client
from bramley.sim.scaleway.records import Seal, Server
from tests import virtual_time
from tests.scenarios.machines import existing_host
from tests.scenarios.machines.existing_provider import (
    an_existing_fleet,
    an_existing_machine,
    boot_of,
    condition,
    has_new_agent,
    until_up_to_date,
)
from tests.scenarios.machines.fleet_world import (
    CLUSTER,
    FLEET,
    NAMESPACE,
    FleetWorld,
)
from tests.scenarios.machines.mac_connections import host_key
from tests.scenarios.machines.stories import (
    Managers,
    annotate,
    bootstrap_secret,
    reasons,
    start_job,
    until_reason,
)
from tests.scenarios.machines.test_life import until_ready
from tests.scenarios.machines.test_permissions import restricted

OTHER = "fleet-b"
RENAME = "PATCH /apple-silicon/v1alpha1/zones/{zone}/servers/{server_id}"


async def until_fleets(world: FleetWorld, count: int) -> list[str]:
    """Wait until Cluster API has made this number of machines, and return their names."""

    async def are_made() -> bool:
        return len(await world.machines()) == count

    await world.until(are_made)
    return sorted(await world.machines())


async def follow_roll(world: FleetWorld) -> dict[str, list[set[str]]]:
    """Wait until all hosts are up to date, and return the sets of those with the new agent, one after the other, by fleet."""
    seen: dict[str, list[set[str]]] = defaultdict(list)

    async def are_updated() -> bool:
        found, hosts = await world.machines(), world.hosts()
        for fleet in {each.spec.fleet_name for each in found.values()}:
            now = {
                name
                for name, each in found.items()
                if each.spec.fleet_name == fleet and has_new_agent(world, hosts[name])
            }
            if now and (not seen[fleet] or seen[fleet][-1] != now):
                seen[fleet].append(now)
                await require_settled(world, seen[fleet])
        nodes = (await world.nodes()).values()
        assert not [each.name for each in nodes if each.spec.unschedulable]
        return all(
            conditions.is_true(each.status.conditions, types.UP_TO_DATE) for each in found.values()
        )

    await world.until(are_updated)
    return seen


async def require_settled(world: FleetWorld, seen: Sequence[set[str]]) -> None:
    """Check that the hosts before the last one are up to date and Ready when the next one is changed."""
    found = await world.machines()
    for name in seen[-2] if len(seen) > 1 else ():
        for type in (types.UP_TO_DATE, types.NODE_READY):
            assert conditions.is_true(found[name].status.conditions, type), (name, type)


async def test_fleets_get_new_agents_at_the_pace_of_a_roll_while_their_jobs_run() -> None:
    async with an_existing_fleet(4) as (world, existing):
        await existing.add_fleet(OTHER, 2)
        await world.create_fleet(4, os="Tahoe")
        await world.create_fleet(2, name=OTHER, os="macos-tahoe-26.3")
        names = await until_fleets(world, 6)
        await existing.adopt_all(*names)
        for number, name in enumerate(names):
            await start_job(world, f"job-{number}", name, seconds=4 * 3600)
        before, nodes, hosts = await world.machines(), await world.nodes(), world.hosts()
        boots = {name: boot_of(world, hosts[name]) for name in names}
        keys = await fleet_keys(world)
        existing.stop()
        await Managers(world).start()

        order = await follow_roll(world)
        assert [len(each) for each in order[FLEET]] == [1, 2, 3, 4]
        assert [len(each) for each in order[OTHER]] == [1, 2]
        for name in names:
            found = set(await reasons(world, name)) - {"RegisteredNode"}
            assert found == {events.TAKEN_OVER, events.AGENT_ROLLED}
        # Until all jobs have ended.
        await asyncio.sleep(5 * 3600)
        after, nodes_after = await world.machines(), await world.nodes()
        for name in names:
            assert after[name].status.server_id == before[name].status.server_id
            assert after[name].spec.provider_id == before[name].spec.provider_id
            assert after[name].status.ready
            assert nodes_after[name].uid == nodes[name].uid
            assert boot_of(world, hosts[name]) == boots[name]
            assert await tart_version(world, hosts[name]) == existing_host.TART
            jobs = world.mac(hosts[name]).state["launchd"]["jobs"]
            assert launchd.in_system(existing_host.LOG_SHIPPER) in jobs
        assert existing.provider_calls == []
        assert await existing.leftovers() == set()
        assert await fleet_keys(world) == keys
        await world.invariants.check_at_rest()


async def fleet_keys(world: FleetWorld) -> dict[str, tuple[dict[str, bytes], dict[str, str]]]:
    """Return the content and the annotations of the Secrets with the SSH keys."""
    found = (await world.kube.list(Secret, namespace=NAMESPACE)).items
    return {
        each.name: (each.data, each.metadata.annotations)
        for each in found
        if each.name.endswith(secrets.SSH_SUFFIX)
    }


async def tart_version(world: FleetWorld, server: Server) -> str:
    """Return the version in the bundle of Tart."""
    text = world.mac(server).files.text(f"{host.TART_BUNDLE}/{host.TART_IN_BUNDLE}")
    return text.split("# simulated tart ", 1)[1].split()[0]


async def test_old_identity_is_deleted_only_after_the_new_agent_runs() -> None:
    async with an_existing_machine() as (world, existing, server):
        world.faults(server).is_silent = True
        existing.stop()
        await Managers(world).start()
        await until_reason(world, "a", types.UP_TO_DATE, events.AGENT_ROLL_FAILED)
        assert await existing.leftovers() == {"a"}
        await asyncio.sleep(600)
        assert await world.until_ready("a")

        world.faults(server).is_silent = False
        machine = await until_up_to_date(world, "a")
        assert await existing.leftovers() == set()
        assert machine.status.reboot_pending == ""
        await asyncio.sleep(600)
        assert await world.until_ready("a")
        assert (await reasons(world, "a")).count(events.AGENT_ROLLED) == 1


async def test_hand_over_needs_only_the_permissions_of_the_example() -> None:
    async with an_existing_machine() as (world, existing, _):
        transport = await restricted(world)
        client = Client(transport, clock=virtual_time.clock())
        existing.stop()
        await Managers(world, {"client": client, "identity": "one"}).start()

        await until_up_to_date(world, "a")
        assert await existing.leftovers() == set()
        assert transport.forbidden == []


@pytest.mark.parametrize("name", ["a", f"{machines.CLAIM_PREFIX}0b5c"])
async def test_claim_that_was_under_way_is_completed_with_the_same_host(name: str) -> None:
    async with an_existing_fleet(1) as (world, existing):
        await world.create_machine("a", fleet_name=FLEET)
        await existing.set_status("a", [], phase="Adopting")
        server = existing.free_host(FLEET)
        world.scaleway.rename(server, name)
        # Until no read shows the name before.
        await asyncio.sleep(10)
        installed, _ = boot_of(world, server)
        existing.stop()
        await Managers(world).start()

        machine = (await until_ready(world, "a"))["a"]
        assert machine.status.server_id == server.id
        assert boot_of(world, server)[0] == installed
        assert set(existing.provider_calls) == ({RENAME} if name != "a" else set())
        await world.invariants.check_at_rest()


@pytest.mark.parametrize("is_secret_missing", [False, True])
async def test_bootstrap_that_was_under_way_continues_on_the_same_host(
    is_secret_missing: bool,
) -> None:
    async with an_existing_fleet(2) as (world, existing):
        await world.create_machine("a", fleet_name=FLEET, os="macos-tahoe-26.3")
        server = existing.free_host(FLEET)
        await existing.bind("a", server, is_secret_missing=is_secret_missing)
        failed = condition(types.BOOTSTRAPPED, virtual_time.clock().now(), "BootstrapFailed", "no")
        await existing.set_status("a", [failed], phase="Bootstrapping", bootstrapAttempts=2)
        installed, _ = boot_of(world, server)
        existing.stop()
        await Managers(world).start()

        machine = (await until_ready(world, "a"))["a"]
        assert (machine.status.server_id, machine.status.bootstrap_attempts) == (server.id, 0)
        assert boot_of(world, server)[0] == installed
        assert existing.provider_calls == []
        await world.invariants.check_at_rest()


async def test_terminal_failure_ends_and_its_reason_is_removed() -> None:
    async with an_existing_machine() as (world, existing, server):
        reason = "TartKubeletUpdateExceededRetries"
        await existing.patch(
            "a",
            {
                "status": {
                    "phase": "Failed",
                    "failureReason": reason,
                    "failureMessage": "5 attempts have failed",
                    "failedHostConfigHash": "ef" * 32,
                    "tartKubeletUpdateAttempts": 5,
                    "lastUpdateFailureTime": "2026-01-01T00:00:00Z",
                }
            },
            "status",
        )
        existing.stop()
        await Managers(world).start()

        status = (await until_up_to_date(world, "a")).status
        assert (status.failure_reason, status.failure_message) == (None, None)
        assert (status.phase, status.failed_host_config_hash) == ("Ready", "")
        assert has_new_agent(world, server)
        assert existing.provider_calls == []


async def test_another_host_key_than_the_pinned_one_is_refused() -> None:
    async with an_existing_machine() as (world, existing, server):
        await existing.pin("a", f"SHA256:{'A' * 43}")
        existing.stop()
        await Managers(world).start()

        found = await until_reason(world, "a", types.UP_TO_DATE, events.UPDATE_EXCEEDED_RETRIES)
        assert "host key" in (found.message or "")
        assert not has_new_agent(world, server)
        assert existing.provider_calls == []
        assert (await world.machines())["a"].status.ready

        await existing.pin("a", host_key(world.mac(server)).fingerprint)
        await until_up_to_date(world, "a")
        assert has_new_agent(world, server)


@pytest.mark.parametrize("stored", ["missing", machines.SEALED])
async def test_login_that_is_missing_is_read_from_the_provider(stored: str) -> None:
    async with an_existing_machine() as (world, existing, server):
        if stored == "missing":
            name = secrets.machine_bootstrap("a")
            await world.kube.delete(Secret, name, namespace=NAMESPACE)
        else:
            body = {"stringData": {secrets.SUDO_PASSWORD: stored}}
            name = secrets.machine_bootstrap("a")
            await world.kube.merge_patch(Secret, name, body, namespace=NAMESPACE)
        world.scaleway.seal(server, Seal(vnc_url="<sealed>"))
        existing.stop()
        await Managers(world).start()
        assert events.MISSING_SUDO_PASSWORD in await reasons(world, "a")
        machine = (await world.machines())["a"]
        assert (machine.status.ready, machine.status.phase) == (True, "Ready")
        await asyncio.sleep(1800)
        assert await world.until_ready("a")

        world.scaleway.seal(server, Seal())
        await asyncio.sleep(600)
        stored_now = (await bootstrap_secret(world, "a")).data
        assert stored_now[secrets.SUDO_PASSWORD] == server.password.encode()
        await until_up_to_date(world, "a")
        assert has_new_agent(world, server)
        assert existing.provider_calls == []
        await world.invariants.check_at_rest()


async def test_mac_that_filters_nothing_is_rebooted_once_its_job_has_ended() -> None:
    async with an_existing_fleet(1) as (world, existing):
        await world.create_machine("a", fleet_name=FLEET)
        server = existing.free_host(FLEET)
        await existing.bind("a", server)
        await existing.bootstrap("a", server, is_filtered=False)
        await world.until_ready("a")
        await start_job(world, "job", "a", seconds=3 * 3600)
        existing.stop()
        before = boot_of(world, server)
        await Managers(world).start()

        await until_reason(world, "a", types.UP_TO_DATE, events.REBOOT_PENDING)
        await asyncio.sleep(2 * 3600)
        assert boot_of(world, server) == before
        machine = await until_up_to_date(world, "a")
        assert boot_of(world, server)[0] == before[0]
        assert boot_of(world, server)[1] != before[1]
        assert machine.status.reboot_pending == ""
        await asyncio.sleep(600)
        assert not (await world.until_ready("a"))["a"].spec.unschedulable
        assert (await world.pods())["job"].status.phase == "Succeeded"
        assert existing.provider_calls == []


async def test_paused_machine_stays_as_it_is_until_it_is_continued() -> None:
    async with an_existing_fleet(1) as (world, existing):
        await world.create_fleet(1)
        [name] = await until_fleets(world, 1)
        [server] = await existing.adopt_all(name)
        await pause(world, is_paused=True)
        await annotate(world, name, annotation_names.PAUSED)
        before = (await world.machines())[name]
        existing.stop()
        await Managers(world).start()

        await asyncio.sleep(7200)
        await pause(world, is_paused=False)
        await asyncio.sleep(7200)
        assert (await world.machines())[name] == before
        assert not has_new_agent(world, server)
        assert await existing.leftovers() == {name}

        await annotate(world, name, annotation_names.PAUSED, None)
        await until_up_to_date(world, name)
        assert has_new_agent(world, server)
        assert existing.provider_calls == []


async def pause(world: FleetWorld, *, is_paused: bool) -> None:
    """Pause the Cluster, or continue it."""
    patch = {"spec": {"paused": is_paused}}
    await world.kube.merge_patch(Cluster, CLUSTER, patch, namespace=NAMESPACE)
