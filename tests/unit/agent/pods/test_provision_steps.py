"""Invariants of the steps that create a running VM."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.pods import context, provision_steps
from bramley.agent.pods.context import PodContext
from bramley.api.pod import Container, ResourceRequirements
from tests.unit.agent.pods.world import IMAGE, World, a_world


async def until_cloned(world: World) -> PodContext:
    """Create a Pod whose clone waits, because there is no session to run it in."""
    world.mac.session.end()
    world.mac.session.logs_in = False
    await world.pod()
    states = world.deps.ledger.vms
    await world.until(lambda: any(each.state is VmState.CLONED for each in states().values()))
    pod = await world.get_pod()
    return PodContext(world.deps, context.pod_ref(pod, world.deps.ledger))


async def test_pod_deleted_during_its_preparation_is_not_started(world: World) -> None:
    context = await until_cloned(world)
    await world.kube.delete(type(context.pod), context.pod.name, namespace=context.pod.namespace)
    await world.until_gone()
    world.mac.session.logs_in = True
    world.mac.session.log_in()
    # This reconcile began before the deletion.
    world.deps.ledger.put(_cloned(context))
    await provision_steps.start(context)

    assert not world.deps.runs.exists(context.vm)


def _cloned(context: PodContext) -> VmRecord:
    return VmRecord(
        vm=context.vm,
        namespace=context.key.namespace,
        pod=context.key.name,
        uid=context.uid,
        image=IMAGE,
        state=VmState.CLONED,
    )


async def test_record_is_started_before_the_run_begins(tmp_path: Path) -> None:
    seen: list[VmState] = []

    async with a_world(tmp_path) as world:

        def record_state(checkpoint: str) -> None:
            if checkpoint == "before run":
                seen.extend(each.state for each in world.deps.ledger.vms().values())

        world.agent.side.on_checkpoint = record_state
        await world.pod()
        await world.until_phase("Running")

    assert seen == [VmState.STARTED]


async def test_vm_has_the_size_of_its_pod(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        size = ResourceRequirements(
            limits={"cpu": "6", "memory": "12Gi"}, requests={"cpu": "4", "memory": "8Gi"}
        )
        await world.pod(containers=[Container(name="runner", image=IMAGE, resources=size)])
        await world.until_phase("Running")
        (vm,) = world.vms()
        facts = await world.deps.tart.get(vm)

    assert facts is not None
    assert (facts.cpu, facts.memory_mb) == (6, 12 * 1024)


async def test_hanging_command_is_killed_at_its_deadline_and_the_pod_gets_its_vm(
    world: World,
) -> None:
    world.mac.faults.add("tart clone", "hang", target="default-*", times=1)
    await world.pod()
    await world.until_phase("Running", within=timedelta(minutes=10).total_seconds())
    await asyncio.sleep(1)

    assert world.agent.value("tart_kubelet_tart_timeouts_total", operation="clone") == 1


async def test_start_from_a_present_base_waits_only_for_what_it_needs(tmp_path: Path) -> None:
    checkpoints: list[str] = []

    async with a_world(tmp_path) as world:
        await world.pod("first")
        await world.until_phase("Running", name="first")
        world.agent.side.on_checkpoint = checkpoints.append
        await world.pod("second")
        await world.until(lambda: "after run" in checkpoints)

    until_run = checkpoints[: checkpoints.index("before run")]
    begun = [each.removeprefix("before ") for each in until_run if "before" in each]
    programs = [each for each in begun if not each.startswith(("POST", "PATCH", "put"))]
    assert sorted(programs) == ["sudo -n", "tart clone", "tart set"], begun
    assert [each for each in begun if each.startswith("PATCH")] == [
        "PATCH /api/v1/namespaces/default/pods/second"
    ]
    # Probed while the clone runs, not after it.
    assert until_run.index("before sudo -n") < until_run.index("after tart clone")


async def test_vm_boots_although_its_base_was_suspended(tmp_path: Path) -> None:
    """A clone with another identity cannot restore the saved state of its source."""
    async with a_world(tmp_path, work=5.0) as world:
        await world.pod("first")
        await world.until_phase("Succeeded", name="first")
        (record,) = world.deps.images.present()
        base = world.mac.folders.tart_home / "vms" / record.golden
        (base / "state.vzvmsave").write_text('{"hardware": [4]}')
        await world.pod("second")
        await world.until_phase("Running", name="second", within=120)
        running = world.mac.folders.tart_home / "vms" / world.mac.tart.started_vms[-1]

        assert not (running / "state.vzvmsave").exists()
        assert world.boots == 2
