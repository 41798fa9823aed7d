"""Failures while a VM is created are reported and retried, and never boot a disk twice."""

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


async def test_failed_clone_is_reported_and_retried(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.faults.add(
            "tart clone", "fail", target="default-*", stderr="the disk is upset", times=2
        )
        await world.pod()
        await world.until_phase("Running", within=120)
        messages = await world.event_messages(events.CREATE_FAILED)

    assert any("the disk is upset" in message for message in messages)
    assert world.boots == 1


async def test_pod_that_cannot_be_created_stays_pending_with_a_reason(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.faults.add("tart clone", "fail", target="default-*", stderr="the disk is upset")
        await world.pod()
        await asyncio.sleep(300)
        pod = await world.get_pod()
        tries = len(await world.event_messages(events.CREATE_FAILED))

    assert (pod.status.phase, pod.status.reason) == ("Pending", agent.CREATE_FAILED)
    assert "the disk is upset" in pod.status.message
    assert tries <= 2  # alike ones are counted, not repeated


async def test_incomplete_clone_never_runs(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.faults.add("tart clone", "half", target="default-*", times=1)
        await world.pod()
        await world.until_phase("Running", within=120)

    assert world.boots == 1


async def test_refused_start_discards_the_disk_and_is_retried(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=5.0, code=0) as world:
        world.mac.faults.add("tart run", "no_session", times=2)
        await world.pod()
        await world.until_phase("Succeeded", within=180)
        clones = await world.event_messages(events.CLONED_VM)
        messages = await world.event_messages(events.CREATE_FAILED)
        await world.until(world.nothing_left)

    assert world.boots == 1
    assert len(clones) >= 1
    assert any("VZErrorDomain" in message or "session" in message for message in messages)


async def test_dead_session_is_reported_and_restarted(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.session.end()
        world.mac.session.logs_in = False
        await world.pod()
        await asyncio.sleep(40)
        messages = await world.event_messages(events.CREATE_FAILED)
        world.mac.session.logs_in = True
        await world.until_phase("Running", within=900)

    assert any("logged in" in message or "session" in message for message in messages)


async def test_session_that_cannot_be_read_is_reported_and_not_ended(tmp_path: Path) -> None:
    """A restart of loginwindow would end it."""
    async with a_world(tmp_path) as world:
        error = "sudo: unable to fork: Resource temporarily unavailable"
        world.mac.faults.add("sudo", "fail", code=1, stderr=error, times=2)
        await world.pod()
        await world.until_phase("Running", within=900)
        messages = await world.event_messages(events.CREATE_FAILED)

    assert any(error in message for message in messages)
    assert world.mac.session.loginwindow_commands == []


async def test_failed_identity_change_is_reported_and_the_vm_runs(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.faults.add("tart set", "fail", stderr="no identity today", times=1)
        await world.pod()
        await world.until_phase("Running")
        messages = await world.event_messages(events.IDENTITY_REGEN_SKIPPED)

    assert any("no identity today" in message for message in messages)


async def test_refused_size_fails_the_creation(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        small = ResourceRequirements(limits={"cpu": "1", "memory": "4Gi"})
        await world.pod(containers=[Container(name="runner", image=IMAGE, resources=small)])
        await asyncio.sleep(30)
        pod = await world.get_pod()

    assert pod.status.reason == agent.CREATE_FAILED
    assert "at minimum" in pod.status.message
    assert world.boots == 0


async def test_late_secret_is_waited_for(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        ref = EnvVarSource(secret_key_ref=KeySelector(name="late", key="token"))
        variable = EnvVar(name="TOKEN", value_from=ref)
        await world.pod(containers=[Container(name="runner", image=IMAGE, env=[variable])])
        await asyncio.sleep(60)
        pod = await world.get_pod()
        metadata = ObjectMeta(name="late", namespace=NAMESPACE)
        await world.kube.create(Secret(metadata=metadata, data={"token": b"canary"}))
        await world.until_phase("Running", within=120)

    assert pod.status.reason == agent.CREATE_FAILED
    assert "secret late" in pod.status.message


async def test_missing_image_is_reported_with_its_name(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.pod(image="registry.example/none@sha256:" + "c" * 64)
        await asyncio.sleep(120)
        pod = await world.get_pod()

    assert pod.status.reason == agent.CREATE_FAILED
    assert "404" in pod.status.message


class DroppingTransport:
    """A transport on which one kind of watch event is lost."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.send = inner.send
        self.close = inner.close

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self._inner.stream(request) as stream:
            yield Stream(stream.status, stream.headers, self._filtered(stream))

    async def _filtered(self, stream: Stream) -> AsyncIterator[bytes]:
        async for chunk in stream.chunks:
            lines = chunk.splitlines(keepends=True)
            yield b"".join(line for line in lines if b'"MODIFIED"' not in line[:40])


async def test_lost_watch_event_after_the_finalizer_does_not_block_the_pod(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False) as world:
        transport = world.transport
        world.transport = lambda: DroppingTransport(transport())
        world.start()
        await asyncio.sleep(5)
        await world.pod()
        await world.until(lambda: world.boots == 1, within=60)


class Refusing:
    """A transport on which statuses of ended Pods get no response for a while."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.stream = inner.stream
        self.close = inner.close
        self.refuses = True
        self.requests = 0

    async def send(self, request: Request) -> Response:
        if (
            self.refuses
            and request.path.endswith("/status")
            and b"terminated" in (request.body or b"")
        ):
            self.requests += 1
            raise errors.ApiUnavailable("no answer")
        return await self._inner.send(request)


def refusing(world: World) -> list[Refusing]:
    transport, transports = world.transport, list[Refusing]()

    def made() -> Refusing:
        transports.append(Refusing(transport()))
        return transports[-1]

    world.transport = made
    return transports


async def test_nothing_is_deleted_before_the_end_is_acknowledged(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False, work=5.0, code=6) as world:
        transports = refusing(world)
        world.start()
        await world.pod()
        await world.until(lambda: transports[0].requests > 3)
        kept = (world.vms(), world.user_data(), list(world.deps.ledger.vms()))
        await world.kill()
        world.start()
        transports[1].refuses = False
        ended = await world.until_phase("Failed", within=30)
        await world.until(world.nothing_left)

    assert all(len(each) == 1 for each in kept)
    terminated = ended.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert terminated.exit_code == 6
    assert world.boots == 1


async def test_deleted_vm_is_kept_until_its_end_is_acknowledged(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False, work=1000.0) as world:
        transports = refusing(world)
        world.start()
        await world.pod(termination_grace_period_seconds=10)
        await world.until_phase("Running")
        await world.delete()
        await world.until(lambda: transports[0].requests > 3)
        kept, ran = world.vms(), world.running()
        transports[0].refuses = False
        await world.until_gone(within=60)

    assert len(kept) == 1
    assert not ran


@pytest.mark.parametrize("set_back", [timedelta(), timedelta(hours=1)])
async def test_late_failure_of_a_run_is_an_exit_and_not_a_refused_start(
    tmp_path: Path, set_back: timedelta
) -> None:
    """A guest may have used this disk: nothing is retried, whatever the clock says."""
    async with a_world(tmp_path, starts=False, work=1000.0, code=None, has_address=False) as world:
        world.mac.clock = clock = SetClock(world.mac.clock)
        world.start()
        await world.pod()
        await world.until(lambda: world.boots == 1)
        await asyncio.sleep(30)
        clock.jump(-set_back)
        (supervised,) = world.mac.supervised.values()
        assert supervised.tart is not None
        # As tart exits when its network helper dies.
        supervised.tart.exit_code.set_result(1)
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
    """A transport on which some writes are forbidden for a while."""

    def __init__(self, inner: Transport, is_forbidden: Callable[[Request], bool]) -> None:
        self._inner = inner
        self._is_forbidden = is_forbidden
        self.stream = inner.stream
        self.close = inner.close

    async def send(self, request: Request) -> Response:
        if self._is_forbidden(request):
            raise errors.Forbidden("not yours yet")
        return await self._inner.send(request)


async def test_late_permission_is_waited_for(tmp_path: Path) -> None:
    """On a real cluster the permission for a Pod follows its binding a moment later."""
    async with a_world(tmp_path, starts=False, work=5.0) as world:
        transport, lacks = world.transport, ["/pods/runner"]
        world.transport = lambda: Forbidding(
            transport(),
            lambda request: request.method == "PATCH" and request.path.endswith(tuple(lacks)),
        )
        world.start()
        await world.pod()
        await asyncio.sleep(30)
        pending = await world.get_pod()
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


async def test_removal_continues_when_tart_works_again(tmp_path: Path) -> None:
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
