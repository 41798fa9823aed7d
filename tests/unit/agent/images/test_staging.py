"""Staging by the Node's annotations, on the embedded API and a simulated Mac."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bramley.agent.images.credentials import SecretForbidden
from bramley.agent.images.image_requests import Pulling, Ready
from bramley.agent.images.staging import Staging, StagingSettings
from bramley.agent.tart.driver import Credentials
from bramley.api import names
from bramley.api import staging as api_staging
from bramley.api.core import Node
from bramley.api.meta import ObjectMeta, to_wire
from bramley.app import embedded
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.kube.client import Client
from bramley.runtime.keys import Key
from tests import virtual_time
from tests.unit.agent.images.image_world import GB, ImageWorld, digest, image_world, pinned, until

NODE = "mac-1"
B, C = pinned("b"), pinned("c")


@dataclass
class Stage:
    image_world: ImageWorld
    kube: Client
    staging: Staging
    writes: int = 0

    async def stage(self, value: Any) -> None:
        """Write the annotation and notify the agent, as its watch would."""
        text = value if isinstance(value, str | None) else json.dumps(value)
        noted = {names.annotations.STAGE_IMAGES: text}
        await self.kube.merge_patch(Node, NODE, {"metadata": {"annotations": noted}})
        await self.notify()

    async def notify(self) -> None:
        node = await self.kube.get(Node, NODE)
        self.staging.on_change(Key("", NODE), None, node)

    async def report(self) -> dict[str, Any]:
        node = await self.kube.get(Node, NODE)
        text = node.metadata.annotations.get(names.annotations.STAGED_IMAGES, "{}")
        report: dict[str, Any] = json.loads(text)
        return report

    async def states(self) -> list[str]:
        return [image["state"] for image in (await self.report()).get("images", ())]

    async def staged(self, count: int, seconds: float = 20_000) -> None:
        async with asyncio.timeout(seconds):
            while (await self.states()) != count * ["Staged"]:
                await asyncio.sleep(5)


@asynccontextmanager
async def stage(tmp_path: Path, **settings: Any) -> AsyncIterator[Stage]:
    clock = virtual_time.clock()
    async with (
        image_world(tmp_path) as world,
        embedded.running(clock=clock) as (api, token),
        Client(api.transport(token), clock=clock) as kube,
        asyncio.TaskGroup() as group,
    ):
        node = Node(metadata=ObjectMeta(name=NODE))
        await kube.create_wire(Node.resource, to_wire(node))
        staging = Staging(
            NODE,
            kube,
            images=world.images,
            store=world.store,
            host=world.side.host,
            clock=clock,
            settings=StagingSettings(**settings),
        )
        running = group.create_task(staging.run())
        yield Stage(world, kube, staging)
        running.cancel()


@pytest.fixture
def world(tmp_path: Path) -> AbstractAsyncContextManager[Stage]:
    return stage(tmp_path)


async def test_requested_images_are_staged_one_after_the_other_with_progress(world: Stage) -> None:
    text = json.dumps({"images": [B, C]})
    await world.stage(text)
    await asyncio.sleep(30)

    report = await world.report()
    assert report["request"] == api_staging.request_id(text)
    assert [image["state"] for image in report["images"]] == ["Pulling", "Waiting"]
    assert report["images"][0]["percent"] > 0

    await world.staged(2)
    assert [image["digest"] for image in (await world.report())["images"]] == [
        digest("b"),
        digest("c"),
    ]
    assert all(record.is_staged for record in world.image_world.images.present())
    assert isinstance(world.image_world.request(B), Ready)


@pytest.mark.parametrize(("own", "wished", "rate"), [(20, None, 20), (None, 10, 10), (10, 40, 10)])
async def test_smaller_of_both_limits_applies(
    tmp_path: Path, own: float | None, wished: float | None, rate: float
) -> None:
    async with stage(tmp_path, megabytes_per_second=own) as world:
        world.image_world.mac.settings.image(B, size_bytes=4 * GB)
        began = asyncio.get_running_loop().time()
        await world.stage({"images": [B], "megabytesPerSecond": wished})
        await world.staged(1)

        took = asyncio.get_running_loop().time() - began
        assert 2e9 / (rate * 1e6) * 0.97 <= took <= 2e9 / (rate * 1e6) * 1.2 + 20


async def test_withdrawn_request_cancels_its_pull_and_leaves_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path, megabytes_per_second=20) as world:
        await world.stage({"images": [B]})
        await asyncio.sleep(60)
        assert world.image_world.left_in_tmp()
        await world.stage(None)
        await asyncio.sleep(15)

        assert world.image_world.mac.table.living() == []
        assert world.image_world.left_in_tmp() == []
        assert await world.report() == {}


async def test_image_that_is_no_longer_requested_loses_its_protection(world: Stage) -> None:
    await world.stage({"images": [B, C]})
    await world.staged(2)
    await world.stage({"images": [C]})
    await asyncio.sleep(15)

    staged = {record.digest: record.is_staged for record in world.image_world.images.present()}
    assert staged == {digest("b"): False, digest("c"): True}


async def test_nothing_is_staged_below_the_floor(world: Stage) -> None:
    world.image_world.mac.settings.host(other_bytes=400 * GB)
    await world.stage({"images": [B]})
    await asyncio.sleep(60)

    image = (await world.report())["images"][0]
    assert image["state"] == "Failed"
    assert image["message"].startswith("BelowFloor: ")
    assert world.image_world.called("pull") == []


async def test_stage_that_reaches_the_floor_fails_and_leaves_no_files(world: Stage) -> None:
    # 75 GB are free and 69 must stay so.
    world.image_world.mac.settings.host(other_bytes=385 * GB)
    await world.stage({"images": [B]})
    await asyncio.sleep(3600)

    assert await world.states() == ["Failed"]
    assert len(world.image_world.called("pull")) == 1
    assert world.image_world.left_in_tmp() == []
    assert world.image_world.mac.table.living() == []


async def test_refused_image_is_staged_once_the_disk_has_room(world: Stage) -> None:
    world.image_world.mac.settings.host(other_bytes=385 * GB)
    await world.stage({"images": [B]})
    await asyncio.sleep(600)
    assert await world.states() == ["Failed"]

    # A little more is no reason to pull again: it would most likely reach the floor once more.
    world.image_world.mac.settings.host(other_bytes=370 * GB)
    await asyncio.sleep(600)
    assert len(world.image_world.called("pull")) == 1

    world.image_world.mac.settings.host(other_bytes=200 * GB)
    await world.staged(1)


async def test_short_registry_failure_is_retried(world: Stage) -> None:
    world.image_world.mac.settings.fault("pull", "status", code=503, percent=0, times=7)
    await world.stage({"images": [B]})

    await world.staged(1)


SECRETS = {"namespace": "runners", "pullSecrets": ["ghcr", "other"]}
LOGIN = Credentials("ghcr.io", "robot", Secret("hunter2"))


async def test_private_image_is_staged_with_the_pull_secrets_of_the_request(world: Stage) -> None:
    world.image_world.mac.settings.image(B, needs_login=True)
    world.image_world.keys.found = LOGIN
    await world.stage({"images": [B], **SECRETS})

    await world.staged(1)
    assert world.image_world.keys.queries == [("runners", ("ghcr", "other"))]


async def test_host_that_may_not_read_the_pull_secret_says_what_to_do(world: Stage) -> None:
    world.image_world.mac.settings.image(B, needs_login=True)
    world.image_world.keys.forbidden = SecretForbidden("set registryCredentialsFile")
    await world.stage({"images": [B], **SECRETS})
    await asyncio.sleep(60)

    message = (await world.report())["images"][0]["message"]
    assert message.startswith(f"{api_staging.NO_ACCESS}: set registryCredentialsFile. Without")
    assert "HTTP 401" in message
    # Once a Pod of the pool is on the host, it is tried again.
    world.image_world.keys.forbidden, world.image_world.keys.found = None, LOGIN
    await world.staged(1, seconds=900)


async def test_public_image_is_staged_although_its_pull_secret_may_not_be_read(
    world: Stage,
) -> None:
    world.image_world.keys.forbidden = SecretForbidden("set registryCredentialsFile")
    await world.stage({"images": [B], **SECRETS})

    await world.staged(1)


async def test_pod_does_not_wait_for_the_backoff_of_staging(world: Stage) -> None:
    world.image_world.mac.settings.image(B, needs_login=True)
    world.image_world.keys.forbidden = SecretForbidden("set registryCredentialsFile")
    await world.stage({"images": [B], **SECRETS})
    await asyncio.sleep(600)

    world.image_world.keys.forbidden, world.image_world.keys.found = None, LOGIN
    state = world.image_world.request(B, namespace="runners", pull_secrets=("ghcr", "other"))

    assert isinstance(state, Pulling)


async def test_failed_image_does_not_delay_the_next(world: Stage) -> None:
    await world.stage({"images": ["ghcr.io/tuist/none:1", C]})
    await until(lambda: world.image_world.store.is_complete(names.agent.golden_vm(C)))


async def test_staged_image_that_the_collector_deleted_is_not_pulled_again(world: Stage) -> None:
    await world.stage({"images": [B]})
    await world.staged(1)
    await world.image_world.tart.delete(names.agent.golden_vm(B))
    await asyncio.sleep(3600)

    assert len(world.image_world.called("pull")) == 1


async def test_converged_staging_writes_nothing(world: Stage) -> None:
    await world.stage({"images": [B]})
    await world.staged(1)
    version = (await world.kube.get(Node, NODE)).metadata.resource_version
    await world.notify()
    await asyncio.sleep(600)

    assert (await world.kube.get(Node, NODE)).metadata.resource_version == version


async def test_nothing_is_unstaged_before_the_node_was_read(world: Stage) -> None:
    await world.image_world.ready(B)
    record = world.image_world.ledger.image(digest("b"))
    assert record is not None
    world.image_world.store.set_staged(record, is_staged=True)
    await asyncio.sleep(600)

    assert world.image_world.images.present()[0].is_staged


@pytest.mark.parametrize(
    "text",
    [
        *("{", '"x"', '{"images": 3}', '{"images": [], "megabytesPerSecond": 0}'),
        '{"images": [], "pullSecrets": ["ghcr"]}',
    ],
)
async def test_invalid_request_is_reported(world: Stage, text: str) -> None:
    await world.stage(text)
    await asyncio.sleep(15)

    assert (await world.report())["message"]


def test_too_many_images_are_refused() -> None:
    with pytest.raises(errors.BadRequest):
        api_staging.parse_request(
            json.dumps({"images": [pinned(f"{index:x}"[-1]) + str(index) for index in range(17)]})
        )
