from __future__ import annotations

import asyncio

import pytest

from bramley.agent.host import Space
from bramley.agent.node.status import Check, Facts
from bramley.api import conditions
from bramley.api.core import Node, Taint
from bramley.api.names import labels
from bramley.base import errors
from bramley.kube.client import Client
from bramley.runtime.keys import Key
from tests import virtual_time
from tests.unit.agent.node import worlds
from tests.unit.agent.node.worlds import NAME, HangingTransport, a_controller, an_api, find, running

WELL = Facts(tart=Check(""), space=Space(total=1000, free=500))


async def test_host_is_registered_as_a_ready_node() -> None:
    async with an_api() as kube:
        await a_controller(kube, lambda: WELL, provider_id="scw-applesilicon://par/1").sync()

        node = await kube.get(Node, NAME)

    assert worlds.conditions(node)["Ready"] == ("True", "TartKubeletReady")
    assert node.metadata.labels[labels.RUNTIME] == "tart"
    assert [taint.key for taint in node.spec.taints] == [labels.MACOS_TAINT]
    assert node.spec.provider_id == "scw-applesilicon://par/1"
    assert node.status.addresses[0].address == "10.0.0.7"


DEDICATED = Taint(key="dedicated", value="builders", effect="NoExecute")
SOFT = Taint(key=labels.MACOS_TAINT, effect="PreferNoSchedule")


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        ((), [(labels.MACOS_TAINT, "NoSchedule")]),
        ((DEDICATED,), [(labels.MACOS_TAINT, "NoSchedule"), ("dedicated", "NoExecute")]),
        ((SOFT, DEDICATED), [(labels.MACOS_TAINT, "PreferNoSchedule"), ("dedicated", "NoExecute")]),
    ],
    ids=["none", "one", "the agent's own"],
)
async def test_new_node_has_the_configured_taints(
    configured: tuple[Taint, ...], expected: list[tuple[str, str]]
) -> None:
    async with an_api() as kube:
        controller = a_controller(kube, lambda: WELL, register_taints=configured)
        for _ in range(2):
            await controller.sync()

        node = await kube.get(Node, NAME)

    assert [(taint.key, taint.effect) for taint in node.spec.taints] == expected


async def test_taint_that_was_removed_from_a_node_is_not_registered_again() -> None:
    async with an_api() as kube:
        controller = a_controller(kube, lambda: WELL, register_taints=(DEDICATED,))
        await controller.sync()
        await kube.merge_patch(Node, NAME, {"spec": {"taints": []}})
        await a_controller(kube, lambda: WELL, register_taints=(DEDICATED,)).sync()

        node = await kube.get(Node, NAME)

    assert [taint.key for taint in node.spec.taints] == [labels.MACOS_TAINT]


async def test_deleted_node_is_registered_with_its_taints_again() -> None:
    async with an_api() as kube:
        controller = a_controller(kube, lambda: WELL, register_taints=(DEDICATED,))
        await controller.sync()
        await kube.delete(Node, NAME)
        await controller.sync()

        node = await kube.get(Node, NAME)

    assert DEDICATED.key in [taint.key for taint in node.spec.taints]


async def test_existing_node_keeps_foreign_fields() -> None:
    async with an_api() as kube:
        body = {"metadata": {"name": NAME, "labels": {"example.com/a": "1", "tuist.dev/old": "1"}}}
        taint = {"key": "example.com/t", "effect": "NoSchedule"}
        await kube.create_wire(Node.resource, {**body, "spec": {"taints": [taint]}})
        other = {"type": "NetworkUnavailable", "status": "False"}
        await kube.merge_patch(
            Node, NAME, {"status": {"conditions": [other]}}, subresource="status"
        )

        await a_controller(kube, lambda: WELL).sync()

        node = await kube.get(Node, NAME)
    assert "NetworkUnavailable" in worlds.conditions(node)
    assert node.metadata.labels["example.com/a"] == "1"
    assert "tuist.dev/old" not in node.metadata.labels
    assert [taint.key for taint in node.spec.taints] == ["example.com/t", labels.MACOS_TAINT]


async def test_node_marked_unknown_is_ready_with_the_next_heartbeat() -> None:
    async with an_api() as kube:
        controller = a_controller(kube, lambda: WELL)
        await controller.sync()
        unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        await kube.merge_patch(
            Node, NAME, {"status": {"conditions": [unknown]}}, subresource="status"
        )

        await controller.sync()

        assert worlds.conditions(await kube.get(Node, NAME))["Ready"][0] == "True"


async def test_heartbeat_is_sent_every_30_seconds() -> None:
    async with an_api() as kube, running(a_controller(kube, lambda: WELL).run):
        beats = set()
        await asyncio.sleep(1)
        for _ in range(10):
            await asyncio.sleep(30)
            ready = conditions.find((await kube.get(Node, NAME)).status.conditions, "Ready")
            assert ready
            beats.add(ready.last_heartbeat_time)

    assert len(beats) == 10


async def test_change_is_published_at_once() -> None:
    known = [Facts()]
    async with an_api() as kube:
        controller = a_controller(kube, lambda: known[0])
        async with running(controller.run):
            await asyncio.sleep(5)
            assert worlds.conditions(await kube.get(Node, NAME))["Ready"][0] == "False"

            known[0] = WELL
            controller.update_now()
            await asyncio.sleep(0.1)

            assert worlds.conditions(await kube.get(Node, NAME))["Ready"][0] == "True"


async def test_deleted_node_is_registered_again_at_once() -> None:
    async with an_api() as kube:
        controller = a_controller(kube, lambda: WELL)
        async with running(controller.run):
            await asyncio.sleep(5)
            old = await kube.get(Node, NAME)
            await kube.delete(Node, NAME)
            controller.on_change(Key("", NAME), old, None)

            await asyncio.sleep(0.1)

            node = await find(kube)
    assert node is not None
    assert node.uid != old.uid
    assert controller.uid == node.uid
    assert worlds.conditions(node)["Ready"][0] == "True"


async def test_node_deleted_without_an_event_is_registered_with_the_next_heartbeat() -> None:
    async with an_api() as kube, running(a_controller(kube, lambda: WELL).run):
        await asyncio.sleep(5)
        await kube.delete(Node, NAME)

        await asyncio.sleep(30)

        assert await find(kube) is not None


async def test_invalid_node_name_ends_the_agent() -> None:
    async with an_api() as kube:
        controller = a_controller(kube, lambda: WELL, labels={"not a label": "x"})
        with pytest.raises(errors.InvalidSpec):
            await controller.run()


async def test_unavailable_server_is_retried() -> None:
    server = HangingTransport()
    controller = a_controller(Client(server, clock=virtual_time.clock()), lambda: WELL)
    async with running(controller.run):
        await asyncio.sleep(600)

    assert not controller.registered.is_set()
    assert max(server.pauses()) <= 50
