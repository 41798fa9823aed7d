"""Images of Pods: requested without waiting, pulled once, kept by digest, and never lost to a failed clone."""

from __future__ import annotations

import asyncio
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent.images.image_manager import NotPresent
from bramley.agent.images.image_requests import (
    Failed,
    ImageRequest,
    Pulling,
    PullPolicy,
    Ready,
    policy_of,
)
from bramley.agent.ledger import ImageRecord, LedgerUnavailable, VmRecord, VmState
from bramley.agent.tart.driver import Credentials
from bramley.agent.tart.failures import NoSpace, TartFailed
from bramley.api.names import agent
from bramley.base import errors
from bramley.base.secret import Secret
from tests.unit.agent.images.image_world import (
    GB,
    TAGGED,
    ImageWorld,
    assemble,
    digest,
    image_world,
    pinned,
    until,
)

B = pinned("b")


async def test_image_is_pulled_and_cloned_to_a_golden_base_once(world: ImageWorld) -> None:
    first = world.request(B)
    assert isinstance(first, Pulling)
    answer = await world.ready(B)

    assert answer == Ready(agent.golden_vm(B), digest("b"), is_warm=False)
    assert world.request(B, "pod-2") == Ready(answer.golden, digest("b"), is_warm=True)
    assert world.vms() == {answer.golden}
    assert [record.digest for record in world.images.present()] == [digest("b")]


async def test_request_never_waits_and_returns_progress(world: ImageWorld) -> None:
    began = asyncio.get_running_loop().time()
    world.request(B)
    assert asyncio.get_running_loop().time() == began

    await asyncio.sleep(60)
    answer = world.request(B)
    assert isinstance(answer, Pulling)
    assert answer.percent is not None
    assert 0 < answer.percent < 100
    assert "pod-1" in world.changes


async def test_two_pods_of_one_image_cause_one_pull(world: ImageWorld) -> None:
    world.request(B, "pod-1")
    world.request(B, "pod-2")
    await asyncio.gather(world.ready(B, "pod-1"), world.ready(B, "pod-2"))

    assert len(world.called("pull")) == 1
    assert len(world.called("clone")) == 1


async def test_second_registry_does_not_wait_for_the_first(tmp_path: Path) -> None:
    other = pinned("c", "quay.io/tuist/runner")
    async with image_world(tmp_path) as world:
        world.mac.settings.image(other, size_bytes=GB)
        world.request(B)
        await asyncio.sleep(1)
        await world.ready(other, "pod-2")

        assert isinstance(world.request(B), Pulling)


async def test_tag_is_one_name_of_its_digest(world: ImageWorld) -> None:
    by_tag = await world.ready(TAGGED)
    by_digest = await world.ready(pinned("a"), "pod-2")

    assert by_tag.golden == by_digest.golden == agent.golden_vm(pinned("a"))
    record = world.ledger.image(digest("a"))
    assert record is not None
    assert set(record.references) >= {TAGGED, pinned("a")}
    assert record.is_pulled
    assert len(world.called("pull")) == 1


async def test_moved_tag_is_resolved_again_only_under_always(world: ImageWorld) -> None:
    old = await world.ready(TAGGED)
    world.mac.settings.image(TAGGED, digest=digest("e"))

    kept = await world.ready(TAGGED, "pod-2")
    fresh = await world.ready(TAGGED, "pod-3", policy=PullPolicy.ALWAYS)

    assert kept.golden == old.golden
    assert fresh.digest == digest("e")
    assert (await world.ready(TAGGED, "pod-4")).digest == digest("e")
    assert world.vms() == {old.golden, fresh.golden}


async def test_always_queries_the_registry_once_per_pod(world: ImageWorld) -> None:
    for owner in ("pod-1", "pod-1", "pod-2"):
        await world.ready(TAGGED, owner, policy=PullPolicy.ALWAYS)

    assert len(world.called("pull")) == 2
    assert len(world.called("clone")) == 1


async def test_resolving_a_present_tag_waits_for_no_pull(world: ImageWorld) -> None:
    await world.ready(TAGGED)
    world.mac.settings.image(B, size_bytes=2000 * GB)
    assert isinstance(world.request(B, "pod-2"), Pulling)
    await asyncio.sleep(60)
    async with asyncio.timeout(30):
        await world.ready(TAGGED, "pod-3", policy=PullPolicy.ALWAYS)

    assert isinstance(world.request(B, "pod-2"), Pulling)


async def test_moved_tag_is_pulled_in_turn(world: ImageWorld) -> None:
    await world.ready(TAGGED)
    assert isinstance(world.request(B, "pod-2"), Pulling)
    await asyncio.sleep(1)
    world.mac.settings.image(TAGGED, digest=digest("e"))
    fresh = await world.ready(TAGGED, "pod-3", policy=PullPolicy.ALWAYS)
    await world.ready(B, "pod-2")

    assert fresh.digest == digest("e")
    assert not world.left_in_tmp()


async def test_always_does_not_resolve_a_digest_again(world: ImageWorld) -> None:
    await world.ready(B, policy=PullPolicy.ALWAYS)
    await world.ready(B, "pod-2", policy=PullPolicy.ALWAYS)

    assert len(world.called("pull")) == 1


async def test_never_uses_a_present_image_and_fails_otherwise(world: ImageWorld) -> None:
    answer = world.request(B, policy=PullPolicy.NEVER)
    assert isinstance(answer, Failed)
    assert isinstance(answer.error, NotPresent)
    await world.ready(B, "pod-2")

    assert isinstance(world.request(B, policy=PullPolicy.NEVER), Ready)


@pytest.mark.parametrize(
    ("image", "given", "expected"),
    [
        ("ghcr.io/a/b", "", PullPolicy.ALWAYS),
        ("ghcr.io/a/b:latest", "", PullPolicy.ALWAYS),
        ("ghcr.io:5000/a/b:1", "", PullPolicy.IF_NOT_PRESENT),
        (B, "", PullPolicy.IF_NOT_PRESENT),
        (B, "Always", PullPolicy.ALWAYS),
        ("ghcr.io/a/b", "Never", PullPolicy.NEVER),
    ],
)
def test_default_policy_follows_the_tag(image: str, given: str, expected: PullPolicy) -> None:
    assert policy_of(image, given) is expected


async def test_local_name_is_no_image(world: ImageWorld) -> None:
    answer = world.request("my-vm")

    assert isinstance(answer, Failed)
    assert isinstance(answer.error, errors.InvalidSpec)


async def test_bug_during_a_pull_fails_only_that_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ValueError("embedded null byte")

    async with image_world(tmp_path) as world:
        with monkeypatch.context() as patch:
            patch.setattr(world.keys, "find", broken)
            answer = await world.failed(B)
        await world.ready(TAGGED)

    assert "embedded null byte" in str(answer.error)


async def test_credentials_reach_tart_by_environment_only(world: ImageWorld) -> None:
    world.mac.settings.image(B, needs_login=True)
    world.keys.found = Credentials("ghcr.io", "robot", Secret("hunter2"))
    await world.ready(B, namespace="team", pull_secrets=("one", "two"))

    assert world.keys.queries == [("team", ("one", "two"))]
    assert not any("hunter2" in call for call in world.calls)


async def test_another_pods_credentials_are_tried_although_the_first_ones_failed(
    world: ImageWorld,
) -> None:
    world.mac.settings.image(B, needs_login=True)
    await world.failed(B, namespace="poor")
    world.keys.found = Credentials("ghcr.io", "robot", Secret("hunter2"))

    assert isinstance(world.request(B, namespace="poor"), Failed)
    await world.ready(B, "pod-2", namespace="rich")


async def test_failed_pull_backs_off(world: ImageWorld) -> None:
    answer = await world.failed("ghcr.io/tuist/none:1")
    assert timedelta() < answer.retry_after <= timedelta(seconds=10)
    pulls = len(world.called("pull"))

    world.request("ghcr.io/tuist/none:1")
    assert len(world.called("pull")) == pulls
    await asyncio.sleep(answer.retry_after.total_seconds())
    assert isinstance(world.request("ghcr.io/tuist/none:1"), Pulling)


async def test_manually_deleted_golden_base_is_created_again_without_a_pull(
    world: ImageWorld,
) -> None:
    answer = await world.ready(B)
    shutil.rmtree(world.mac.folders.tart_home / "vms" / answer.golden)

    assert world.images.present() == []
    await world.ready(B, "pod-2")
    assert len(world.called("pull")) == 1


async def test_incomplete_golden_base_is_deleted_and_created_again(world: ImageWorld) -> None:
    world.mac.settings.fault("clone", "half", times=1)
    failed = await world.failed(B)
    assert isinstance(failed.error, TartFailed)
    assert world.vms() == set()

    assert (await world.ready(B)).golden in world.vms()
    assert len(world.called("pull")) == 1


async def test_base_of_an_agent_without_a_ledger_is_adopted(world: ImageWorld) -> None:
    await world.tart.pull(B)
    await world.tart.clone(B, agent.golden_vm(B))
    world.calls.clear()
    await world.ready(B)

    assert world.called("pull") == world.called("clone") == []


async def test_image_that_another_process_pulled_is_used_and_not_owned(world: ImageWorld) -> None:
    await world.tart.pull(B)
    await world.tart.pull(TAGGED)
    world.calls.clear()
    await world.ready(B)
    await world.ready(TAGGED, policy=PullPolicy.ALWAYS)

    records = [world.ledger.image(digest(letter)) for letter in "ba"]
    assert [record.is_pulled for record in records if record] == [False, False]


async def test_pull_by_tag_that_outlived_its_agent_is_still_owned(tmp_path: Path) -> None:
    def die_after_the_pull(moment: str) -> None:
        if moment == "after tart pull":
            world.side.kill()

    async with image_world(tmp_path) as world:
        world.side.on_checkpoint = die_after_the_pull
        world.request(TAGGED)
        await until(lambda: not world.side.is_alive)
        successor = assemble(world.mac)
        assert successor.ledger.image(digest("a")) is None
        successor.images._finish_interrupted_pulls()

        record = successor.ledger.image(digest("a"))
        assert record is not None
        assert record.is_pulled
        assert successor.store.interrupted_pulls() == []


async def test_present_image_is_used_when_its_record_cannot_be_written(tmp_path: Path) -> None:
    def refuse(record: ImageRecord) -> None:
        raise LedgerUnavailable("no space left on device")

    async with image_world(tmp_path) as world:
        await world.ready(B)
        await asyncio.sleep(3600)
        world.ledger.put_image = refuse  # type: ignore[method-assign]

        assert isinstance(world.request(B, "pod-2"), Ready)
        failed = await world.failed(pinned("c"), "pod-3")
        assert isinstance(failed.error, LedgerUnavailable)


async def test_clone_creates_a_vm(world: ImageWorld) -> None:
    answer = await world.ready(B)
    await world.images.clone(answer.golden, "vm-1")

    assert world.vms() == {answer.golden, "vm-1"}


@pytest.mark.parametrize("do", ["fail", "no_space", "half"])
async def test_failed_clone_keeps_the_golden_base(world: ImageWorld, do: str) -> None:
    answer = await world.ready(B)
    world.mac.settings.fault("clone", do)
    with pytest.raises(TartFailed):
        await world.images.clone(answer.golden, "vm-1")

    assert world.store.is_complete(answer.golden)
    assert isinstance(world.request(B), Ready)


async def test_clone_without_space_frees_space_and_retries_once(tmp_path: Path) -> None:
    queries: list[str] = []

    async def reclaim(needed: int | None = None) -> bool:
        queries.append("room")
        return True

    async with image_world(tmp_path, reclaim=reclaim) as world:
        answer = await world.ready(B)
        world.mac.settings.fault("clone", "no_space", times=1)
        await world.images.clone(answer.golden, "vm-1")
        assert queries == ["room"]

        world.mac.settings.fault("clone", "no_space", times=2)
        with pytest.raises(NoSpace):
            await world.images.clone(answer.golden, "vm-2")


async def test_clone_replaces_only_a_clone_of_ours_that_never_ran(world: ImageWorld) -> None:
    answer = await world.ready(B)
    golden = answer.golden
    for vm, state in (("claimed", VmState.CLAIMED), ("used", VmState.STARTED)):
        await world.images.clone(golden, vm)
        world.ledger.put(VmRecord(vm=vm, namespace="n", pod="p", uid=vm, image=B, state=state))
    await world.images.clone(golden, "by-hand")

    await world.images.clone(golden, "claimed")
    for vm in ("used", "by-hand"):
        with pytest.raises(errors.AlreadyExists):
            await world.images.clone(golden, vm)


async def test_request_joins_a_pull_that_has_not_started(world: ImageWorld) -> None:
    request = ImageRequest(B, "pod-1")
    answers = [world.images.request(request, on_change=lambda: None) for _ in range(3)]
    await world.ready(B)

    assert all(isinstance(answer, Pulling) for answer in answers)
    assert len(world.called("pull")) == 1
