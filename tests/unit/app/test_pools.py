"""The pool controllers of `bramley up`: definitions, and a sample pool that is created once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import yaml

from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.runner_pool import RunnerPool
from bramley.app import embedded, pools, sample_images
from bramley.app.pools import PoolControllers
from bramley.cli import up
from bramley.kube.client import Client
from tests import virtual_time

EXAMPLE = Path(__file__).parents[3] / "examples/runnerpool.yaml"


def test_sample_pool_is_the_example_and_can_be_rolled() -> None:
    sample = pools.sample_pool(3)

    assert sample == yaml.safe_load(EXAMPLE.read_text())
    assert {sample["spec"]["image"], up.NEXT_IMAGE} == {sample_images.FIRST, sample_images.SECOND}
    assert {sample_images.FIRST, sample_images.SECOND} < set(sample_images.SIMULATED_TART["images"])
    assert sample["metadata"]["name"] == up.SAMPLE


async def run_for_a_while(api: embedded.Api, connect: pools.Connect, mark: Path) -> int:
    """Run the controllers for a minute and return the revision of the server afterwards."""
    controllers = PoolControllers(
        connect, virtual_time.clock(), random.Random(1), sample_replicas=2, sample_mark=mark
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(controllers.run())
        await controllers.ready.wait()
        await asyncio.sleep(60)
        controllers.stop()
    return api.store.revision


async def test_sample_pool_is_created_once_and_a_second_start_changes_no_definition(
    tmp_path: Path,
) -> None:
    clock = virtual_time.clock()
    async with embedded.running(clock=clock) as (api, token):

        def connect() -> Client:
            return Client(api.transport(token), clock=clock)

        kube = connect()
        await run_for_a_while(api, connect, tmp_path / "data" / "mark")
        first = await kube.get(RunnerPool, pools.SAMPLE_NAME, namespace=pools.NAMESPACE)
        definitions = (await kube.list(CustomResourceDefinition)).items
        finalizers = {"metadata": {"finalizers": None}}
        await kube.delete(RunnerPool, first.name, namespace=pools.NAMESPACE)
        await kube.merge_patch(RunnerPool, first.name, finalizers, namespace=pools.NAMESPACE)
        before = api.store.revision

        after = await run_for_a_while(api, connect, tmp_path / "data" / "mark")
        left = (await kube.list(RunnerPool)).items

    assert first.spec.replicas == 2
    assert first.status.conditions
    assert {each.spec.names.kind for each in definitions} >= {"RunnerPool"}
    assert left == []
    assert after == before
