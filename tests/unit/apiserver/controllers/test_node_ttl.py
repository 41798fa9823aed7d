"""The time that agents may keep what they read, by the size of the cluster."""

from __future__ import annotations

import asyncio

import pytest

from bramley.api.core import Node
from bramley.apiserver.controllers import ttl
from bramley.apiserver.controllers.ttl import TTL_ANNOTATION, node_ttl
from tests.unit.apiserver.controllers.controller_world import a_world_with


@pytest.mark.parametrize(
    ("nodes", "now", "expected"),
    [
        (1, 0, 0),
        (100, 0, 0),
        (101, 0, 15),
        (95, 15, 15),
        (90, 15, 0),
        (501, 15, 30),
        (460, 30, 30),
        (450, 30, 15),
        (1001, 30, 60),
        (2001, 60, 300),
        (1, 300, 0),
    ],
)
def test_ttl_grows_and_shrinks_with_hysteresis(nodes: int, now: int, expected: int) -> None:
    assert node_ttl(nodes, now) == expected


async def test_every_node_is_annotated_and_a_changed_annotation_is_restored() -> None:
    async with a_world_with(ttl.add_node_ttl) as world:
        await world.node("mac-1")
        await asyncio.sleep(1)
        assert (await world.kube.get(Node, "mac-1")).metadata.annotations[TTL_ANNOTATION] == "0"

        await world.kube.merge_patch(
            Node, "mac-1", {"metadata": {"annotations": {TTL_ANNOTATION: "77"}}}
        )
        await asyncio.sleep(1)

        assert (await world.kube.get(Node, "mac-1")).metadata.annotations[TTL_ANNOTATION] == "0"
