"""`kubectl top` on our server, and the same usage where a scraper of a real cluster reads it."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.contract.kubelet.stage import TIMEOUT_SECONDS, Stage, Target, staged
from tests.unit.access.embedded_api import a_node

RAW = "/apis/metrics.k8s.io/v1beta1"


async def output(stage: Stage, *arguments: str, with_: str = "") -> str:
    """Return the output of kubectl once it contains this text: a slow agent is left out for some seconds."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            # In a thread, because other tasks run in this loop.
            done = await asyncio.to_thread(stage.kubectl, *arguments)
            if done.returncode == 0 and done.stdout and with_ in done.stdout:
                return done.stdout
            await asyncio.sleep(0.2)


async def usage_row(stage: Stage, *arguments: str) -> list[str]:
    """Return the row that `kubectl top` shows, once there is one."""
    return (await output(stage, "top", *arguments, "--no-headers")).split()


@pytest.mark.side_by_side
async def test_top_shows_the_usage_of_nodes_and_pods(
    embedded: Target, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with staged(embedded, tmp_path_factory.mktemp("agent")) as stage:
        await stage.begin()

        name, cpu, cpu_share, memory, memory_share = await usage_row(stage, "node", stage.node)
        assert (name, cpu[-1], cpu_share[-1], memory_share[-1]) == (stage.node, "m", "%", "%")
        assert int(memory.removesuffix("Mi")) > 0
        pod, cpu, memory = await usage_row(stage, "pod", "p")
        assert (pod, cpu[-1]) == ("p", "m")
        assert int(memory.removesuffix("Mi")) > 0
        container = await usage_row(stage, "pod", "--containers")
        assert container[:2] == ["p", "vm"]
        assert stage.shown("top", "pod", "-l", "no=such", "--no-headers") == ""


@pytest.mark.side_by_side
async def test_group_is_discovered_explained_and_read_raw(
    embedded: Target, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with staged(embedded, tmp_path_factory.mktemp("agent")) as stage:
        await stage.begin()
        await usage_row(stage, "pod", "p")

        path = f"{RAW}/namespaces/{stage.namespace}/pods"
        listed = json.loads(await output(stage, "get", "--raw", path, with_='"name":"p"'))
        assert (listed["kind"], listed["items"][0]["metadata"]["name"]) == ("PodMetricsList", "p")
        one = json.loads(await output(stage, "get", "--raw", f"{RAW}/nodes/{stage.node}"))
        assert (one["kind"], one["window"]) == ("NodeMetrics", "10s")
        named = f"nodemetrics.metrics.k8s.io/{stage.node}\n"
        await output(stage, "get", "nodes.metrics.k8s.io", "-o", "name", with_=named)
        assert "usage" in stage.shown("explain", "nodes", "--api-version=metrics.k8s.io/v1beta1")
        gone = stage.refused("get", "--raw", f"{RAW}/nodes/missing")
        assert 'nodes.metrics.k8s.io "missing" not found' in gone


@pytest.mark.side_by_side
async def test_node_that_does_not_answer_is_left_out(
    embedded: Target, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with staged(embedded, tmp_path_factory.mktemp("agent")) as stage:
        silent = await a_node(stage.kube, f"{stage.node}-silent")
        await usage_row(stage, "node", stage.node)

        shown = await output(stage, "get", "--raw", f"{RAW}/nodes", with_=f'"name":"{stage.node}"')

        names = [each["metadata"]["name"] for each in json.loads(shown)["items"]]
        assert stage.node in names
        assert silent.name not in names
