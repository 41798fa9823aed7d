"""The world in which the machine controller is tested: agents and hosts do what real ones do."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from bramley.access import identity
from bramley.api import conditions
from bramley.api.core import Node
from bramley.api.names import conditions as condition_types
from bramley.api.names import host, labels, launchd
from bramley.api.pod import Pod
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host import shared_probes
from bramley.host.commands import Run
from bramley.providers.scaleway import ScalewayProvider
from bramley.sim.scaleway.records import USER
from tests import provider_peer
from tests.scenarios.machines.fleet_world import NAMESPACE, FleetWorld, a_fleet_world, is_ready
from tests.scenarios.machines.mac_agents import FAILS, NEVER_READY
from tests.scenarios.machines.scripted_bootstrap import Login, ScriptedBootstrap


async def a_node(world: FleetWorld, name: str = "a") -> Node:
    """Bootstrap a machine, and remove the taint of its Node."""
    world.start(ScriptedBootstrap(world).run())
    await world.create_machine(name)
    await world.until_bootstrapped(name)
    node = (await world.until_ready(name))[name]
    await world.kube.merge_patch(Node, name, {"spec": {"taints": None}})
    return node


async def until_pod(world: FleetWorld, name: str, *, phase: str = "Running") -> Pod:
    """Wait until a Pod has a phase."""

    async def has_phase() -> Pod | None:
        pod = (await world.pods())[name]
        return pod if pod.status.phase == phase else None

    found: Pod = await world.until(has_phase, within=900)
    return found


async def test_bootstrapped_host_registers_a_tainted_node() -> None:
    async with a_fleet_world(servers=1) as world:
        world.start(ScriptedBootstrap(world).run())
        await world.create_machine("a")
        node = (await world.until_ready("a"))["a"]

        assert labels.UNPROVEN_TAINT in {taint.key for taint in node.spec.taints}
        assert node.spec.provider_id == (await world.machines())["a"].spec.provider_id
        assert node.metadata.labels[labels.FLEET] == "standalone"
        assert node.status.allocatable["pods"] == "2"
        await world.invariants.check_at_rest()


async def test_pods_boot_as_their_image_does_and_steps_see_their_vms() -> None:
    async with a_fleet_world(servers=1) as world:
        world.agents.settings.images |= {"broken": FAILS, "silent": NEVER_READY}
        await a_node(world)
        await world.create_pod("good")
        await world.create_pod("bad", "broken")
        pod = await until_pod(world, "good")
        await until_pod(world, "bad", phase="Failed")
        await world.create_pod("silent", "silent")
        await asyncio.sleep(600)

        assert (is_ready(pod), bool(pod.status.pod_ip)) == (True, True)
        assert (await world.pods())["silent"].status.phase == "Pending"
        [server] = world.hosts().values()
        login = Login("a", server.ip, USER, Secret(server.password))
        async with world.connect(login) as mac:
            facts = await mac.probe([shared_probes.RUNNING_VMS])
            assert shared_probes.vms_may_run(facts)
            for name in ("good", "silent"):
                await world.kube.delete(Pod, name, namespace=NAMESPACE)
            await asyncio.sleep(60)
            assert list(await world.pods()) == ["bad"]
            assert not shared_probes.vms_may_run(await mac.probe([shared_probes.RUNNING_VMS]))


async def test_revoked_identity_stops_the_agent() -> None:
    async with a_fleet_world(servers=1) as world:
        await a_node(world)
        await identity.revoke(world.kube, "a")
        await asyncio.sleep(120)

        ready = conditions.find((await world.nodes())["a"].status.conditions, condition_types.READY)
        assert ready is not None
        assert ready.status == "Unknown"
        await world.kube.delete(Node, "a")
        await asyncio.sleep(120)
        assert await world.nodes() == {}


async def test_deleted_node_is_registered_again() -> None:
    async with a_fleet_world(servers=1) as world:
        node = await a_node(world)
        await world.kube.delete(Node, "a")
        await asyncio.sleep(5)

        again = (await world.nodes())["a"]
        assert again.uid != node.uid
        assert labels.UNPROVEN_TAINT in {taint.key for taint in again.spec.taints}


async def test_released_host_loses_its_agent() -> None:
    async with a_fleet_world(servers=1, heartbeat=timedelta(minutes=1)) as world:
        await a_node(world)
        await world.delete_machine("a")
        await asyncio.sleep(3600)

        [server] = world.scaleway.servers.values()
        assert not world.mac(server).files.exists(host.AGENT_KUBECONFIG)
        assert world.agents.nodes == set()
        await world.invariants.check_at_rest()


async def test_runner_ends_after_its_job_and_a_killed_job_is_recorded() -> None:
    async with a_fleet_world(servers=1) as world:
        await a_node(world)
        world.invariants.expects_harm = True
        for name in ("first", "second"):
            await world.create_pod(name, runner="true")
            await until_pod(world, name)
            await world.give_job(name, seconds=300)
        await asyncio.sleep(250)
        assert (await world.pods())["first"].status.phase == "Running"
        await world.kube.delete(Pod, "second", namespace=NAMESPACE)
        await until_pod(world, "first", phase="Succeeded")

        assert world.agents.jobs.killed == ["second"]


async def test_vms_survive_a_restart_of_the_agent_and_not_one_of_the_mac() -> None:
    async with a_fleet_world(servers=1) as world:
        await a_node(world)
        await world.create_pod("a")
        await until_pod(world, "a")
        await world.give_job("a", seconds=300)
        [server] = world.hosts().values()
        login = Login("a", server.ip, USER, Secret(server.password))
        restart = ("launchctl", "kickstart", "-k", launchd.in_system(launchd.AGENT))
        async with world.connect(login) as mac:
            await mac.execute(Run(argv=restart, purpose="restart the agent", as_root=True))
        await asyncio.sleep(100)
        assert (await world.pods())["a"].status.phase == "Running"
        assert len(world.mac(server).state["processes"]) == 1
        await until_pod(world, "a", phase="Succeeded")

        await world.create_pod("b")
        await until_pod(world, "b")
        world.mac(server).reboot()
        await until_pod(world, "b", phase="Failed")


async def test_job_that_is_lost_while_no_agent_runs_is_recorded() -> None:
    async with a_fleet_world(servers=1) as world:
        await a_node(world)
        world.invariants.expects_harm = True
        await world.create_pod("a")
        await until_pod(world, "a")
        await world.give_job("a")
        [server] = world.hosts().values()
        login = Login("a", server.ip, USER, Secret(server.password))
        unload = ("launchctl", "bootout", launchd.in_system(launchd.AGENT))
        async with world.connect(login) as mac:
            await mac.execute(Run(argv=unload, purpose="unload the agent", as_root=True))
        await asyncio.sleep(10)
        assert (world.agents.nodes, world.agents.jobs.killed) == (set(), [])
        world.mac(server).reboot()
        await asyncio.sleep(10)

        assert world.agents.jobs.killed == ["a"]


async def test_tart_that_is_replaced_under_a_vm_is_recorded() -> None:
    async with a_fleet_world(servers=1) as world:
        await a_node(world)
        world.invariants.expects_harm = True
        await world.create_pod("a")
        await until_pod(world, "a")
        [server] = world.hosts().values()
        files = world.mac(server).files
        files.rename(host.TART_BUNDLE, host.TART_BUNDLE_BEFORE)
        files.make_folder(host.TART_BUNDLE)
        await asyncio.sleep(10)

        assert len(world.agents.disturbances) == 1


async def test_restart_of_loginwindow_under_a_vm_is_recorded() -> None:
    async with a_fleet_world(servers=1) as world:
        await a_node(world)
        world.invariants.expects_harm = True
        await world.create_pod("a")
        await until_pod(world, "a")
        [server] = world.hosts().values()
        login = Login("a", server.ip, USER, Secret(server.password))
        restart = ("launchctl", "kickstart", "-k", "system/com.apple.loginwindow")
        async with world.connect(login) as mac:
            await mac.execute(Run(argv=restart, purpose="restart", as_root=True))
        await until_pod(world, "a", phase="Failed")

        assert len(world.agents.disturbances) == 1


async def test_fleet_is_scaled_and_its_hosts_return_wiped() -> None:
    async with a_fleet_world(servers=3, heartbeat=timedelta(minutes=1)) as world:
        world.start(ScriptedBootstrap(world).run())
        await world.create_fleet(3)
        await asyncio.sleep(60)
        first = await world.machines()
        assert len(first) == 3
        await world.until_bootstrapped(*first)
        await world.until_ready(*first)
        await world.scale(1)
        await asyncio.sleep(3600)

        await world.until_ready(*await world.machines())
        assert len(await world.machines()) == 1
        await world.invariants.check_at_rest()


async def test_logins_are_checked_as_over_ssh() -> None:
    async with a_fleet_world(servers=1) as world:
        [server] = world.hosts().values()
        good = Login("a", server.ip, USER, Secret(server.password))
        async with world.connect(good):
            pass
        assert good.host_key.text.startswith("ssh-ed25519 SHA256:")
        with pytest.raises(errors.LoginRefused):
            async with world.connect(Login("a", server.ip, USER, Secret("wrong"))):
                pass

        world.scaleway.reinstall(server, None)
        await asyncio.sleep(60)
        with pytest.raises(errors.HostUnreachable):
            async with world.connect(good):
                pass
        await asyncio.sleep(1800)
        with pytest.raises(errors.HostKeyChanged):
            async with world.connect(good):
                pass


async def test_registered_key_logs_in_after_a_reinstallation() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    async with a_fleet_world(servers=1) as world:
        account = provider_peer.account(world.scaleway)
        transport = provider_peer.in_place(world.scaleway)
        provider = ScalewayProvider(lambda: account, rng=random.Random(0), transport=transport)
        await provider.ensure_ssh_key("fleet", public)
        [server] = world.hosts().values()

        def login() -> Login:
            return Login("a", server.ip, USER, private_keys=(Secret(private),))

        with pytest.raises(errors.LoginRefused):
            async with world.connect(login()):
                pass
        world.scaleway.reinstall(server, None)
        await asyncio.sleep(1800)
        async with world.connect(login()) as mac:
            await mac.execute(Run(argv=("true",), purpose="do nothing"))


async def test_mac_that_is_not_rented_is_reached_and_boots_slowly() -> None:
    async with a_fleet_world(servers=0) as world:
        made = await world.add_own_mac("own")
        login = Login("own", world.macs.address("own"), made.user, Secret(made.password))
        async with world.connect(login):
            pass
        world.connections.faults(login.address).boot_slowly(900)
        world.macs.mac("own").reboot()
        await asyncio.sleep(800)

        with pytest.raises(errors.HostUnreachable):
            async with world.connect(login):
                pass
        await asyncio.sleep(200)
        async with world.connect(login):
            pass


async def test_faults_of_a_host_end_with_a_boot_or_an_installation() -> None:
    async with a_fleet_world(servers=1) as world:
        [server] = world.hosts().values()
        faults = world.faults(server)
        harmless = Run(argv=("true",), purpose="do nothing")

        async def run(*, is_silent: bool = False) -> str:
            faults.is_silent = is_silent
            login = Login("a", server.ip, USER, Secret(server.password))
            try:
                async with world.connect(login) as mac:
                    await mac.execute(harmless)
            except errors.BramleyError as error:
                return error.reason
            return ""

        assert await run(is_silent=True) == errors.HostUnreachable.__name__
        faults.cut_ssh(1)
        assert [await run(), await run(), await run()] == ["", "HostUnreachable", ""]
        faults.fail_until_rebooted()
        assert await run() == errors.CommandFailed.__name__
        world.mac(server).reboot()
        await asyncio.sleep(60)
        assert await run() == ""
        faults.fail_until_reinstalled()
        world.mac(server).reboot()
        await asyncio.sleep(60)
        assert await run() == errors.CommandFailed.__name__
        world.scaleway.reinstall(server, None)
        await asyncio.sleep(1800)
        assert await run() == ""


async def test_invariants_find_leftovers_and_lost_hosts() -> None:
    async with a_fleet_world(servers=1) as world:
        [server] = world.hosts().values()
        files, check = world.mac(server).files, world.invariants.check_at_rest
        await identity.create(world.kube, "gone", expires=timedelta(hours=1))
        with pytest.raises(AssertionError, match="gone"):
            await check()
        await identity.revoke(world.kube, "gone")
        await check()

        await world.create_pod("smoke-gone", node="gone", smoke="true")
        with pytest.raises(AssertionError, match="smoke Pods are left: gone"):
            await check()
        await world.kube.delete(Pod, "smoke-gone", namespace=NAMESPACE)
        await asyncio.sleep(300)

        await world.add_own_mac("own")
        for each in (files, world.macs.mac("own").files):
            each.make_folder(host.AGENT_FOLDER)
            each.write(host.AGENT_KUBECONFIG, b"{}")
            with pytest.raises(AssertionError, match="still has"):
                await check()
            each.remove(host.AGENT_KUBECONFIG)
        await check()
        world.scaleway.rename(server, "another-machine")
        with pytest.raises(AssertionError, match="is lost"):
            await check()
