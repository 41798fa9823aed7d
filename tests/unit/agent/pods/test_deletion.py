"""Deletion works in every state of a Pod, within its grace period and a margin."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent import vm_names
from bramley.api.meta import ObjectMeta, OwnerReference
from bramley.api.names import agent, events, finalizers, labels
from bramley.api.pod import Container, Pod, Toleration
from tests.unit.agent.pods.world import IMAGE, NAMESPACE, NODE, World, a_pod, a_world

OTHERS = "example.org/other"


async def seconds_until_gone(world: World) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await world.until_gone()
    return loop.time() - began


async def test_guest_is_shut_down_and_its_exit_code_reported(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        await world.pod(termination_grace_period_seconds=40)
        await world.until_phase("Running")
        await asyncio.sleep(60)
        await world.delete()
        took = await seconds_until_gone(world)
        await world.until(world.nothing_left)
        reasons = await world.events()

    assert took < 20
    assert events.STOPPING_VM in reasons
    assert events.RUN_EXITED in reasons


async def test_guest_that_ignores_the_shutdown_is_stopped_after_its_grace_period(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path, work=1000.0, ignores_shutdown=True) as world:
        await world.pod(termination_grace_period_seconds=40)
        await world.until_phase("Running")
        await world.delete()
        took = await seconds_until_gone(world)

    assert 40 <= took < 50


async def test_hung_deletion_is_retried_while_other_pods_run(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        await world.pod(termination_grace_period_seconds=10)
        await world.until_phase("Running")
        world.mac.faults.add("tart delete", "hang", times=2)
        began = asyncio.get_running_loop().time()
        await world.delete()
        await asyncio.sleep(20)
        await world.pod("other")
        await world.until_phase("Running", name="other", within=40)
        await world.until_gone(within=900)
        took = asyncio.get_running_loop().time() - began

    # Its grace period, two commands of five minutes each, and a margin.
    assert 600 < took < 630


async def test_zero_grace_period_stops_at_once(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0, ignores_shutdown=True) as world:
        await world.pod(termination_grace_period_seconds=40)
        await world.until_phase("Running")
        await world.delete(grace=timedelta(seconds=1))
        took = await seconds_until_gone(world)

    assert took < 10


async def test_vm_whose_stop_hangs_is_killed(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0, ignores_shutdown=True) as world:
        await world.pod(termination_grace_period_seconds=5)
        await world.until_phase("Running")
        world.mac.faults.add("tart stop", "hang")
        await world.delete()
        took = await seconds_until_gone(world)
        await world.until(world.nothing_left)

    assert took < 5 + 60


async def test_deletion_does_not_wait_for_a_pull(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.faults.add("tart pull", "hang")
        await world.pod()
        await world.until(lambda: world.deps.ledger.vms())
        await world.delete()
        took = await seconds_until_gone(world)

    assert took < 2


@pytest.mark.parametrize("operation", ["clone", "set"])
async def test_deletion_cancels_a_hanging_command(world: World, operation: str) -> None:
    await world.pod("first")
    await world.until_phase("Running", name="first")
    world.mac.faults.add(f"tart {operation}", "hang", target="default-second-*")
    await world.pod("second")
    await asyncio.sleep(20)
    await world.delete("second")
    await world.until_gone("second", within=10)


async def test_pull_of_one_pod_delays_neither_deletion_nor_boot_of_another(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        await world.pod("here")
        await world.until_phase("Running", name="here")
        slow = "registry.example/slow@sha256:" + "b" * 64
        world.mac.settings.image(slow, size_bytes=100_000_000_000)
        await world.pod("pulls", image=slow)
        await world.until(lambda: len(world.deps.ledger.vms()) == 2)

        await world.delete("here")
        await world.until_gone("here", within=60)
        await world.pod("next")
        await world.until_phase("Running", name="next", within=30)

        assert await world.phase("pulls") == "Pending"


async def test_504_pods_finished_and_deleted_are_gone(tmp_path: Path) -> None:
    """ProgramResult Pods that are deleted later with a grace period do not stay in Terminating."""
    async with a_world(tmp_path, work=5.0) as world:
        await world.kube.create(with_finalizers(a_pod(), finalizers.VM_CLEANUP, OTHERS))
        await world.until_phase("Running")
        await world.delete(grace=timedelta(seconds=300))
        await world.until_phase("Succeeded", "Failed")
        await world.until(world.nothing_left)
        await asyncio.sleep(5)
        left = await world.get_pod()
        await world.free()
        await world.until_gone(within=5)

    assert left.metadata.finalizers == [OTHERS]
    assert left.metadata.deletion_grace_period_seconds == 0


def with_finalizers(pod: Pod, *names: str) -> Pod:
    metadata = ObjectMeta(name=pod.name, namespace=pod.namespace, finalizers=list(names))
    return Pod(metadata=metadata, spec=pod.spec)


async def test_deleted_pod_without_a_record_leaves_neither_vm_nor_user_data(tmp_path: Path) -> None:
    """The record may be lost, the secrets on disk must not be left."""
    async with a_world(tmp_path, starts=False) as world:
        made = await world.kube.create(with_finalizers(a_pod(), finalizers.VM_CLEANUP))
        vm = vm_names.of_pod(NAMESPACE, made.name, made.uid)
        (world.mac.folders.tart_home / "vms" / vm).mkdir(parents=True)
        secret = world.mac.folders.user_data / vm / "tuist.env"
        secret.parent.mkdir(parents=True)
        secret.write_text("TOKEN=canary")
        await world.delete()
        world.start()
        await world.until_gone()

        assert world.nothing_left()


async def test_unsupported_pod_fails_with_a_reason_and_is_gone_when_deleted(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        two = [Container(name="a", image=IMAGE), Container(name="b", image=IMAGE)]
        await world.pod(containers=two)
        failed = await world.until_phase("Failed")
        await world.delete()
        await world.until_gone(within=5)

    assert failed.status.reason == agent.UNSUPPORTED
    assert "2 containers" in failed.status.message
    assert not failed.metadata.finalizers
    assert world.boots == 0


async def test_daemon_set_pod_that_tolerates_everything_is_rejected_and_deleted(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        pod = a_pod("daemon", tolerations=[Toleration(operator="Exists")])
        owner = OwnerReference(
            api_version="apps/v1", kind="DaemonSet", name="csi", uid="u-1", controller=True
        )
        metadata = ObjectMeta(name=pod.name, namespace=pod.namespace, owner_references=[owner])
        await world.kube.create(Pod(metadata=metadata, spec=pod.spec))
        failed = await world.until_phase("Failed", name="daemon")
        await world.delete("daemon", grace=timedelta(seconds=30))
        await world.until_gone("daemon", within=5)

    assert failed.status.reason == agent.UNSUPPORTED
    assert pod.spec.node_name == NODE
    assert labels.OS not in pod.spec.node_selector


async def test_remains_of_a_force_deleted_pod_are_removed(tmp_path: Path) -> None:
    """The finalizer is removed and the Pod deleted by force."""
    async with a_world(tmp_path, work=1000.0) as world:
        await world.pod()
        await world.until_phase("Running")
        await world.free()
        await world.delete(grace=timedelta())
        await world.until(world.nothing_left, within=60)


async def test_pod_of_the_same_name_gets_a_new_disk(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        await world.pod()
        await world.until_phase("Running")
        before = world.running()
        await world.free()
        await world.delete(grace=timedelta())
        await world.pod()
        await world.until_phase("Running")

        assert len(before) == 1
        assert len(world.running()) == 1
        assert before != world.running()


async def test_pod_with_a_foreign_finalizer_is_left_alone(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=5.0) as world:
        await world.kube.create(with_finalizers(a_pod(), OTHERS))
        await world.until_phase("Succeeded")
        await world.delete()
        await world.until(world.nothing_left)
        await asyncio.sleep(10)
        version = (await world.get_pod()).metadata.resource_version
        await asyncio.sleep(1500)

        assert (await world.get_pod()).metadata.resource_version == version
