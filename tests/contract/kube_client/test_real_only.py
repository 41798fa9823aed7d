"""What our server does not serve yet: apply, evictions, token requests, logs and rights."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from bramley.api.core import ConfigMap, ServiceAccount
from bramley.api.meta import ObjectMeta, Resource
from bramley.api.pod import Pod
from bramley.base import errors
from tests.contract.kube_client import fake_kubelet
from tests.contract.kube_client.conftest import REAL
from tests.contract.kube_client.kinds import Widget, a_pod
from tests.contract.kube_client.targets import World, eventually

pytestmark = pytest.mark.parametrize("target", [REAL], indirect=True)

BUDGET = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", namespaced=True)


async def apply(world: World, manager: str, size: int, *, force: bool = False) -> Widget:
    return await world.kube.apply(
        Widget,
        "a",
        {"spec": {"size": size}},
        manager=manager,
        force=force,
        namespace=world.namespace,
    )


async def test_apply_creates_changes_and_owns_its_fields(world: World) -> None:
    made = await apply(world, "one", 1)
    changed = await apply(world, "one", 2)
    assert (made.spec.size, changed.spec.size) == (1, 2)

    with pytest.raises(errors.Conflict, match='conflict with "one"'):
        await apply(world, "two", 3)
    forced = await apply(world, "two", 3, force=True)
    assert forced.spec.size == 3
    assert forced.uid == made.uid


async def test_apply_removes_fields_no_longer_applied(world: World) -> None:
    for data in ({"a": "1", "b": "2"}, {"a": "1"}):
        found = await world.kube.apply(
            ConfigMap, "c", {"data": data}, manager="me", namespace=world.namespace
        )

    assert found.data == {"a": "1"}


async def test_status_can_be_applied(world: World) -> None:
    await world.widget("a")

    found = await world.kube.apply(
        Widget,
        "a",
        {"status": {"phase": "Ready"}},
        manager="me",
        namespace=world.namespace,
        subresource="status",
    )

    assert found.status.phase == "Ready"


async def test_an_eviction_deletes_the_pod(world: World) -> None:
    await world.pod("a", node=world.mac)

    await world.kube.evict("a", world.namespace, grace=timedelta(0))

    with pytest.raises(errors.NotFound):
        await world.kube.get(Pod, "a", namespace=world.namespace)
    with pytest.raises(errors.NotFound):
        await world.kube.evict("a", world.namespace)


async def test_disruption_budget_delays_an_eviction(world: World) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    }
    await world.kube.create_wire(BUDGET, budget, namespace=world.namespace)
    await world.pod("a", node=world.mac)
    running = {
        "metadata": {"labels": {"app": "a"}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    await world.kube.merge_patch(Pod, "a", running, namespace=world.namespace)
    await world.kube.merge_patch(Pod, "a", running, namespace=world.namespace, subresource="status")

    with pytest.raises(errors.RateLimited, match="disruption budget"):
        await world.kube.evict("a", world.namespace)

    assert not (await world.kube.get(Pod, "a", namespace=world.namespace)).deleting


async def test_a_token_expires_at_the_requested_time(world: World) -> None:
    account = ServiceAccount(metadata=ObjectMeta(name="runner", namespace=world.namespace))
    await world.kube.create(account)

    issued = await world.kube.request_token(
        "runner", world.namespace, audiences=["x"], expires=timedelta(hours=1)
    )

    left = issued.expires - datetime.now(UTC)
    assert timedelta(minutes=50) < left <= timedelta(hours=1, minutes=1)


async def test_a_token_bound_to_a_pod_is_invalid_after_its_deletion(world: World) -> None:
    account = ServiceAccount(metadata=ObjectMeta(name="runner", namespace=world.namespace))
    await world.kube.create(account)
    obj = a_pod("a", world.namespace, node=world.mac)
    pod = await world.kube.create(with_account(obj, "runner"))

    issued = await world.kube.request_token(
        "runner", world.namespace, audiences=[], expires=timedelta(hours=1), bound_to=pod
    )
    async with world.server.client(token=issued.token.reveal()) as runner:
        with pytest.raises(errors.Forbidden):
            await runner.list(ConfigMap, namespace=world.namespace)
        await world.kube.delete(Pod, "a", namespace=world.namespace, grace=timedelta(0))

        async def is_dead() -> bool:
            try:
                await runner.list(ConfigMap, namespace=world.namespace)
            except errors.Unauthorized:
                return True
            except errors.Forbidden:
                return False
            return False

        # The server remembers a token that it accepted for some seconds.
        await eventually(is_dead, seconds=180)


def with_account(pod: Pod, name: str) -> Pod:
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, service_account_name=name)
    )


async def test_a_token_for_another_audience_is_refused(world: World) -> None:
    account = ServiceAccount(metadata=ObjectMeta(name="runner", namespace=world.namespace))
    await world.kube.create(account)
    issued = await world.kube.request_token(
        "runner", world.namespace, audiences=["tuist-runners-dispatch"], expires=timedelta(hours=1)
    )

    async with world.server.client(token=issued.token.reveal()) as runner:
        with pytest.raises(errors.Unauthorized):
            await runner.list(ConfigMap, namespace=world.namespace)


async def test_logs_are_unchanged(world: World, tmp_path: Path) -> None:
    node = f"node-of-{world.namespace}"
    async with fake_kubelet.running(world, node, tmp_path) as kubelet:
        await world.pod("a", node=node)

        chunks = [chunk async for chunk in world.kube.logs("a", world.namespace, container="vm")]

    assert b"".join(chunks) == b"one\ntwo\n"
    assert f"/containerLogs/{world.namespace}/a/vm" in kubelet.requests[0]


async def test_followed_logs_end_when_the_client_disconnects(world: World, tmp_path: Path) -> None:
    node = f"node-of-{world.namespace}"
    async with fake_kubelet.running(world, node, tmp_path) as kubelet:
        await world.pod("a", node=node)

        read = b""
        async with aclosing(
            world.kube.logs("a", world.namespace, container="vm", follow=True, tail=2)
        ) as chunks:
            while len(read) < 8:
                read += await anext(chunks)

        async with asyncio.timeout(180):
            await kubelet.disconnected.wait()

    assert read == b"one\ntwo\n"
    assert "tailLines=2" in kubelet.requests[0]


async def test_logs_of_a_pod_without_a_node_are_empty(world: World) -> None:
    await world.pod("a", node="")

    assert [chunk async for chunk in world.kube.logs("a", world.namespace)] == []
    with pytest.raises(errors.NotFound):
        [chunk async for chunk in world.kube.logs("none", world.namespace)]


async def test_a_client_without_roles_is_forbidden(world: World) -> None:
    account = ServiceAccount(metadata=ObjectMeta(name="unbound", namespace=world.namespace))
    await world.kube.create(account)
    issued = await world.kube.request_token(
        "unbound", world.namespace, audiences=[], expires=timedelta(hours=1)
    )

    async with world.server.client(token=issued.token.reveal()) as unbound:
        with pytest.raises(errors.Forbidden, match="cannot list resource"):
            await unbound.list(Widget, namespace=world.namespace)
        with pytest.raises(errors.Forbidden, match="cannot create resource"):
            await unbound.create(
                ConfigMap(metadata=ObjectMeta(name="a")), namespace=world.namespace
            )
        with pytest.raises(errors.Forbidden, match="cannot watch resource"):
            async with unbound.watch(Widget, namespace=world.namespace):
                pass
