"""What must not happen on the way to a running VM, whatever comes in between."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.pods import context, provision_steps
from bramley.agent.pods.context import Turn
from bramley.api.pod import Container, ResourceRequirements
from tests.unit.agent.pods.world import IMAGE, World, a_world


async def until_cloned(world: World) -> Turn:
    """Have a Pod whose clone waits, because there is no session to run it in."""
    world.mac.session.end()
    world.mac.session.logs_in = False
    await world.pod()
    states = world.means.ledger.vms
    await world.until(lambda: any(each.state is VmState.CLONED for each in states().values()))
    pod = await world.see()
    return Turn(world.means, context.pod_ref(pod, world.means.ledger))


async def test_pod_that_was_deleted_while_its_start_was_prepared_is_not_started(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        turn = await until_cloned(world)
        await world.kube.delete(type(turn.pod), turn.pod.name, namespace=turn.pod.namespace)
        await world.until_gone()
        world.mac.session.logs_in = True
        world.mac.session.log_in()
        # The turn began before the deletion and knows nothing of it.
        world.means.ledger.put(_cloned(turn))
        await provision_steps.start(turn)

        assert not world.means.runs.is_begun(turn.vm)


def _cloned(turn: Turn) -> VmRecord:
    return VmRecord(
        vm=turn.vm,
        namespace=turn.key.namespace,
        pod=turn.key.name,
        uid=turn.uid,
        image=IMAGE,
        state=VmState.CLONED,
    )


async def test_record_says_started_before_the_run_begins(tmp_path: Path) -> None:
    seen: list[VmState] = []

    async with a_world(tmp_path) as world:

        def look(moment: str) -> None:
            if moment == "before run":
                seen.extend(each.state for each in world.means.ledger.vms().values())

        world.life.side.on_moment = look
        await world.pod()
        await world.until_phase("Running")

    assert seen == [VmState.STARTED]


async def test_vm_has_the_size_that_its_pod_asks_for(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        size = ResourceRequirements(
            limits={"cpu": "6", "memory": "12Gi"}, requests={"cpu": "4", "memory": "8Gi"}
        )
        await world.pod(containers=[Container(name="runner", image=IMAGE, resources=size)])
        await world.until_phase("Running")
        (vm,) = world.vms()
        facts = await world.means.tart.get(vm)

    assert facts is not None
    assert (facts.cpu, facts.memory_mb) == (6, 12 * 1024)


async def test_hanging_call_is_killed_at_its_deadline_and_the_pod_gets_its_vm(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        world.mac.faults.add("tart clone", "hang", target="default-*", times=1)
        await world.pod()
        await world.until_phase("Running", within=timedelta(minutes=10).total_seconds())
        await asyncio.sleep(1)

        assert world.life.value("tart_kubelet_tart_timeouts_total", operation="clone") == 1


async def test_a_start_from_a_warm_base_waits_for_no_more_than_it_needs(tmp_path: Path) -> None:
    moments: list[str] = []

    async with a_world(tmp_path) as world:
        await world.pod("first")
        await world.until_phase("Running", name="first")
        world.life.side.on_moment = moments.append
        await world.pod("second")
        await world.until(lambda: "after run" in moments)

    until_run = moments[: moments.index("before run")]
    begun = [moment.removeprefix("before ") for moment in until_run if "before" in moment]
    programs = [each for each in begun if not each.startswith(("POST", "PATCH", "put"))]
    assert sorted(programs) == ["sudo -n", "tart clone", "tart set"], begun
    assert [each for each in begun if each.startswith("PATCH")] == [
        "PATCH /api/v1/namespaces/default/pods/second"
    ]
    # Looked at while the clone is made, not after it.
    assert until_run.index("before sudo -n") < until_run.index("after tart clone")
