"""What goes wrong on the way to a VM is told, retried, and never boots a disk twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.api.core import Secret
from bramley.api.meta import ObjectMeta
from bramley.api.names import agent, events
from bramley.api.pod import Container, EnvVar, EnvVarSource, KeySelector, ResourceRequirements
from bramley.base import errors
from bramley.kube.transport import Request, Response, Stream, Transport
from tests.unit.agent.clocks import SetClock
from tests.unit.agent.pods.world import IMAGE, NAMESPACE, World, a_world


async def test_failed_clone_is_told_and_tried_again(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.faults.add(
            "tart clone", "fail", target="default-*", stderr="the disk is upset", times=2
        )
        await world.pod()
        await world.until_phase("Running", within=120)
        told = await world.told(events.CREATE_FAILED)

    assert any("the disk is upset" in message for message in told)
    assert world.boots == 1


async def test_pod_that_cannot_be_made_stays_pending_and_says_why(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.faults.add("tart clone", "fail", target="default-*", stderr="the disk is upset")
        await world.pod()
        await asyncio.sleep(300)
        pod = await world.see()
        tries = len(await world.told(events.CREATE_FAILED))

    assert (pod.status.phase, pod.status.reason) == ("Pending", agent.CREATE_FAILED)
    assert "the disk is upset" in pod.status.message
    assert tries <= 2  # alike ones are counted, not repeated


async def test_half_made_clone_never_runs(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.faults.add("tart clone", "half", target="default-*", times=1)
        await world.pod()
        await world.until_phase("Running", within=120)

    assert world.boots == 1


async def test_start_that_tart_refuses_costs_the_disk_and_is_tried_again(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=5.0, code=0) as world:
        world.mac.faults.add("tart run", "no_session", times=2)
        await world.pod()
        await world.until_phase("Succeeded", within=180)
        clones = await world.told(events.CLONED_VM)
        told = await world.told(events.CREATE_FAILED)
        await world.until(world.nothing_left)

    assert world.boots == 1
    assert len(clones) >= 1
    assert any("VZErrorDomain" in message or "session" in message for message in told)


async def test_dead_session_is_told_and_healed(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.session.end()
        world.mac.session.logs_in = False
        await world.pod()
        await asyncio.sleep(40)
        told = await world.told(events.CREATE_FAILED)
        world.mac.session.logs_in = True
        await world.until_phase("Running", within=900)

    assert any("logged in" in message or "session" in message for message in told)


async def test_identity_that_cannot_be_given_is_told_and_the_vm_runs(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.faults.add("tart set", "fail", stderr="no identity today", times=1)
        await world.pod()
        await world.until_phase("Running")
        told = await world.told(events.IDENTITY_REGEN_SKIPPED)

    assert any("no identity today" in message for message in told)


async def test_size_that_the_image_refuses_is_no_vm(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        small = ResourceRequirements(limits={"cpu": "1", "memory": "4Gi"})
        await world.pod(containers=[Container(name="runner", image=IMAGE, resources=small)])
        await asyncio.sleep(30)
        pod = await world.see()

    assert pod.status.reason == agent.CREATE_FAILED
    assert "at minimum" in pod.status.message
    assert world.boots == 0


async def test_secret_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        ref = EnvVarSource(secret_key_ref=KeySelector(name="late", key="token"))
        variable = EnvVar(name="TOKEN", value_from=ref)
        await world.pod(containers=[Container(name="runner", image=IMAGE, env=[variable])])
        await asyncio.sleep(60)
        pod = await world.see()
        metadata = ObjectMeta(name="late", namespace=NAMESPACE)
        await world.kube.create(Secret(metadata=metadata, data={"token": b"canary"}))
        await world.until_phase("Running", within=120)

    assert pod.status.reason == agent.CREATE_FAILED
    assert "secret late" in pod.status.message


async def test_missing_image_is_told_with_its_name(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.pod(image="registry.example/none@sha256:" + "c" * 64)
        await asyncio.sleep(120)
        pod = await world.see()

    assert pod.status.reason == agent.CREATE_FAILED
    assert "404" in pod.status.message


class Deaf:
    """A way to the API on which one kind of watch event gets lost."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.send = inner.send
        self.close = inner.close

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self._inner.stream(request) as stream:
            yield Stream(stream.status, stream.headers, self._heard(stream))

    async def _heard(self, stream: Stream) -> AsyncIterator[bytes]:
        async for chunk in stream.chunks:
            lines = chunk.splitlines(keepends=True)
            yield b"".join(line for line in lines if b'"MODIFIED"' not in line[:40])


async def test_lost_event_after_the_finalizer_strands_no_pod(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False) as world:
        transport = world.transport
        world.transport = lambda: Deaf(transport())
        world.start()
        await asyncio.sleep(5)
        await world.pod()
        await world.until(lambda: world.boots == 1, within=60)


class Refusing:
    """A way to the API on which statuses of ended Pods get no answer for a while."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.stream = inner.stream
        self.close = inner.close
        self.refuses = True
        self.asked = 0

    async def send(self, request: Request) -> Response:
        if (
            self.refuses
            and request.path.endswith("/status")
            and b"terminated" in (request.body or b"")
        ):
            self.asked += 1
            raise errors.ApiUnavailable("no answer")
        return await self._inner.send(request)


def refusing(world: World) -> list[Refusing]:
    transport, lines = world.transport, list[Refusing]()

    def made() -> Refusing:
        lines.append(Refusing(transport()))
        return lines[-1]

    world.transport = made
    return lines


async def test_nothing_goes_before_the_end_is_acknowledged(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False, work=5.0, code=6) as world:
        lines = refusing(world)
        world.start()
        await world.pod()
        await world.until(lambda: lines[0].asked > 3)
        kept = (world.vms(), world.user_data(), list(world.deps.ledger.vms()))
        await world.kill()
        world.start()
        lines[1].refuses = False
        ended = await world.until_phase("Failed", within=30)
        await world.until(world.nothing_left)

    assert all(len(each) == 1 for each in kept)
    terminated = ended.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert terminated.exit_code == 6
    assert world.boots == 1


async def test_deleted_vm_is_kept_until_its_end_is_acknowledged(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False, work=1000.0) as world:
        lines = refusing(world)
        world.start()
        await world.pod(termination_grace_period_seconds=10)
        await world.until_phase("Running")
        await world.delete()
        await world.until(lambda: lines[0].asked > 3)
        kept, ran = world.vms(), world.running()
        lines[0].refuses = False
        await world.until_gone(within=60)

    assert len(kept) == 1
    assert not ran


@pytest.mark.parametrize("set_back", [timedelta(), timedelta(hours=1)])
async def test_error_after_a_while_is_an_end_and_no_refusal(
    tmp_path: Path, set_back: timedelta
) -> None:
    """A guest may have worked on this disk: nothing is tried again, whatever the clock says."""
    async with a_world(tmp_path, starts=False, work=1000.0, code=None, has_address=False) as world:
        world.mac.clock = clock = SetClock(world.mac.clock)
        world.start()
        await world.pod()
        await world.until(lambda: world.boots == 1)
        await asyncio.sleep(30)
        clock.jump(-set_back)
        (supervised,) = world.mac.supervised.values()
        assert supervised.tart is not None
        # As tart ends when its network helper dies.
        supervised.tart.ended.set_result(1)
        for let_go in supervised.tart.on_exit:
            let_go()
        del world.mac.table._processes[supervised.tart.pid]
        failed = await world.until_phase("Failed", within=30)
        await asyncio.sleep(60)

    terminated = failed.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert terminated.exit_code == 1
    assert world.boots == 1


class Forbidding:
    """A way to the API on which some writes are forbidden for a while."""

    def __init__(self, inner: Transport, is_forbidden: Callable[[Request], bool]) -> None:
        self._inner = inner
        self._is_forbidden = is_forbidden
        self.stream = inner.stream
        self.close = inner.close

    async def send(self, request: Request) -> Response:
        if self._is_forbidden(request):
            raise errors.Forbidden("not yours yet")
        return await self._inner.send(request)


async def test_right_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    """On a real cluster the right to a Pod follows its binding a moment later."""
    async with a_world(tmp_path, starts=False, work=5.0) as world:
        transport, lacks = world.transport, ["/pods/runner"]
        world.transport = lambda: Forbidding(
            transport(),
            lambda asked: asked.method == "PATCH" and asked.path.endswith(tuple(lacks)),
        )
        world.start()
        await world.pod()
        await asyncio.sleep(30)
        pending = await world.see()
        lacks[:] = ["/status"]
        await world.until(lambda: world.boots == 1, within=120)
        await asyncio.sleep(300)
        kept = world.vms()
        lacks.clear()
        await world.until_phase("Succeeded", within=120)
        await world.until(world.nothing_left)

    assert pending.status.reason == agent.CREATE_FAILED
    assert "not yours yet" in pending.status.message
    assert len(kept) == 1


async def test_removal_goes_on_when_tart_is_there_again(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=5.0) as world:
        await world.pod()
        await world.until_phase("Running")
        programs = world.mac._programs
        tart = programs.pop("tart")
        await world.until_phase("Succeeded")
        await asyncio.sleep(60)
        kept = world.vms()
        programs["tart"] = tart
        await world.until(world.nothing_left, within=90)

    assert len(kept) == 1
