"""What the commands about pools read and write, on the embedded API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bramley.api import crds, names
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.core import Node
from bramley.api.meta import ObjectMeta
from bramley.api.names import labels
from bramley.api.pod import Container, Pod, PodSpec
from bramley.api.runner_pool import RunnerPool, RunnerPoolSpec
from bramley.app import embedded
from bramley.app.pool_queries import Queries
from bramley.base import errors
from bramley.base.errors import BadConfiguration
from bramley.kube.client import Client
from bramley.runners.hosts import node_selector
from tests import virtual_time

IMAGE = "ghcr.io/example/runner:1"


@asynccontextmanager
async def queries(*, has_kind: bool = True) -> AsyncIterator[Queries]:
    clock = virtual_time.clock()
    async with (
        embedded.running(clock=clock) as (api, token),
        Client(api.transport(token), clock=clock) as kube,
    ):
        for manifest in crds.manifests() if has_kind else ():
            await kube.create_wire(CustomResourceDefinition.resource, manifest)
        yield Queries(kube, "default")


async def create_pool(kube: Client) -> RunnerPool:
    spec = RunnerPoolSpec(
        image=IMAGE, fleet_selector="demo", dispatch_label="a", runner_labels=[], replicas=2
    )
    metadata = ObjectMeta(name="macos", namespace="default", annotations={"kept": "yes"})
    return await kube.create(RunnerPool(metadata=metadata, spec=spec))


async def test_unknown_pool_lists_those_that_exist() -> None:
    async with queries() as found:
        await create_pool(found.kube)

        with pytest.raises(BadConfiguration, match="existing pools: default/macos"):
            await found.pool("nope")


async def test_server_without_pools_says_how_to_install_them() -> None:
    async with queries(has_kind=False) as found:
        with pytest.raises(BadConfiguration, match=r"bramley crds \| kubectl apply -f -"):
            await found.fleets()


async def test_only_the_annotations_given_change_and_never_the_image() -> None:
    async with queries() as found:
        pool = await create_pool(found.kube)
        await found.annotate(pool, ROLLOUT_UNDO=IMAGE, ROLLOUT_PROMOTE=None)
        await found.annotate(pool, ROLLOUT_PROMOTE=IMAGE, ROLLOUT_UNDO=None)
        changed = await found.pool("macos")

    assert changed.metadata.annotations == {"kept": "yes", names.annotations.ROLLOUT_PROMOTE: IMAGE}
    assert changed.spec == pool.spec


async def test_image_that_was_undone_before_is_undone_again_once_the_controller_has_forgotten_it() -> (
    None
):
    async with queries() as found:
        pool = await create_pool(found.kube)
        await _store_undone(found, IMAGE)
        await found.annotate(pool, ROLLOUT_UNDO=IMAGE)

        async with asyncio.TaskGroup() as group:
            undo = group.create_task(found.undo(await found.pool("macos")))
            await asyncio.sleep(2)
            between = (await found.pool("macos")).metadata.annotations
            await _store_undone(found, "")
        after = (await found.pool("macos")).metadata.annotations

    assert undo.done()
    assert names.annotations.ROLLOUT_UNDO not in between
    assert after[names.annotations.ROLLOUT_UNDO] == IMAGE


async def test_undo_that_the_controller_does_not_see_says_what_to_check() -> None:
    async with queries() as found:
        await create_pool(found.kube)
        await _store_undone(found, IMAGE)

        with pytest.raises(errors.TimedOut, match="check that bramley runners runs"):
            await found.undo(await found.pool("macos"))


async def _store_undone(found: Queries, image: str) -> None:
    patch = {"status": {"undoneImage": image}}
    await found.kube.merge_patch(
        RunnerPool, "macos", patch, namespace="default", subresource="status"
    )


async def test_pools_pods_and_hosts_are_explained_from_the_api() -> None:
    now = virtual_time.clock().now()
    async with queries() as found:
        await create_pool(found.kube)
        host = ObjectMeta(name="mac-1", labels=node_selector("demo"))
        await found.kube.create(Node(metadata=host))
        own = {labels.RUNNER: labels.TRUE, labels.RUNNER_POOL: "macos"}
        await found.kube.create(
            Pod(
                metadata=ObjectMeta(name="a", namespace="default", labels=own),
                spec=PodSpec(containers=[Container(name="runner", image=IMAGE)]),
            )
        )

        pool = await found.explain_pool("macos", now=now)
        pod = await found.explain_pod("a", now=now)
        progress = await found.progress("macos")
        with pytest.raises(BadConfiguration, match="Pod b does not exist"):
            await found.explain_pod("b", now=now)

    assert [each.name for each in pool.pods] == ["a"]
    assert [each.state for each in pool.hosts] == ["is not Ready"]
    assert pod.summary == "waits for a host"
    assert "pool macos" in pod.notes
    assert (progress.hosts, progress.desired) == (1, 2)
