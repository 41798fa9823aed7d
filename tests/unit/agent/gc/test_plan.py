"""What the collector deletes and what it never does, as a table over the pure plan."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.agent.gc.leases import Lease
from bramley.agent.gc.plan import (
    MAX_UNUSED_AGE,
    DeleteCached,
    DeleteImage,
    DeleteVm,
    Facts,
    Listed,
    PodFact,
    ProcessTable,
    Step,
    decide,
)
from bramley.agent.ledger import ImageRecord, VmRecord, VmState

NOW = datetime(2026, 1, 2, tzinfo=UTC)
DAY = timedelta(days=1)
REPOSITORY = "ghcr.io/tuist/runner"


def digest(letter: str) -> str:
    return "sha256:" + 64 * letter


def pinned(letter: str) -> str:
    return f"{REPOSITORY}@{digest(letter)}"


def a_vm(name: str, **changes: Any) -> VmRecord:
    record = VmRecord(
        vm=name,
        namespace="n",
        pod=name,
        uid=f"uid-{name}",
        image=pinned("a"),
        state=VmState.ENDED,
        created_at=NOW - DAY,
    )
    return msgspec.structs.replace(record, **changes)


def an_image(letter: str, **changes: Any) -> ImageRecord:
    record = ImageRecord(
        digest=digest(letter),
        references=(pinned(letter), f"{REPOSITORY}:{letter}"),
        golden=f"golden-{letter}",
        is_pulled=True,
        last_used=NOW - timedelta(hours=1),
    )
    return msgspec.structs.replace(record, **changes)


OTHER = PodFact("uid-other")


def facts(**changes: Any) -> Facts:
    """Return the facts of an idle host with one irrelevant Pod, because an empty list of Pods is not trusted."""
    seen = Facts(
        now=NOW, pods=[OTHER], listed=Listed(frozenset(), frozenset()), processes=ProcessTable()
    )
    return dataclasses.replace(seen, **changes)


def with_images(*images: ImageRecord, **changes: Any) -> Facts:
    cached = {f"{REPOSITORY}@{image.digest}" for image in images}
    return facts(
        images=images,
        goldens=frozenset(image.golden for image in images),
        listed=Listed(frozenset(image.golden for image in images), frozenset(cached)),
        **changes,
    )


def steps(seen: Facts) -> tuple[Step, ...]:
    return decide(seen).steps


def whole(letter: str) -> DeleteImage:
    return DeleteImage(digest(letter), f"golden-{letter}", (pinned(letter),))


ORPHAN = {"vms": {"mine": a_vm("mine")}, "listed": Listed(frozenset({"mine"}), frozenset())}
STALE = an_image("a", last_used=NOW - DAY)


def test_own_vm_whose_pod_is_gone_is_deleted() -> None:
    assert steps(facts(**ORPHAN)) == (DeleteVm("mine"),)


def test_record_without_a_vm_is_deleted() -> None:
    assert steps(facts(vms={"mine": a_vm("mine")})) == (DeleteVm("mine"),)


def test_vm_that_is_not_in_the_ledger_is_never_deleted() -> None:
    listed = Listed(
        frozenset({"tuist-runner", "ns-pod", "tuist-golden-0123456789abcdef"}), frozenset()
    )

    assert steps(facts(listed=listed, is_low=True, needs_space=True)) == ()


def test_image_that_is_not_in_the_ledger_is_never_deleted() -> None:
    listed = Listed(frozenset(), frozenset({pinned("a"), f"{REPOSITORY}:a"}))

    assert steps(facts(listed=listed, is_low=True, needs_space=True)) == ()


@pytest.mark.parametrize(
    "unknown",
    [{"pods": None}, {"listed": None}, {"processes": None}, {"pods": []}, {"leases": [Lease()]}],
    ids=["no list of Pods", "no list of VMs", "no processes", "empty list", "lease for all"],
)
def test_nothing_is_deleted_on_incomplete_facts(unknown: dict[str, Any]) -> None:
    seen = facts(**{**ORPHAN, "images": [STALE], "is_low": True, "needs_space": True, **unknown})
    plan = decide(seen)

    assert plan.steps == ()
    assert plan.blocked_by


@pytest.mark.parametrize(
    "protection",
    [
        {"pods": [PodFact("uid-mine")]},
        {"running": frozenset({"mine"})},
        {"leases": [Lease(vms=("mine",))]},
        {"processes": ProcessTable(frozenset({"tart", "push", "mine"}), has_push=True)},
        {"vms": {"mine": a_vm("mine", created_at=NOW - timedelta(minutes=1))}},
    ],
    ids=["its Pod is here", "it lives", "it is leased", "a process names it", "it is young"],
)
def test_protected_vm_is_kept(protection: dict[str, Any]) -> None:
    assert steps(facts(**{**ORPHAN, **protection})) == ()


def test_lease_protects_only_its_vm() -> None:
    assert steps(facts(**ORPHAN, leases=[Lease(vms=("other",))])) == (DeleteVm("mine"),)


def test_similar_name_in_the_process_table_protects_nothing() -> None:
    named = ProcessTable(frozenset({"tart", "run", "mine-2"}))

    assert steps(facts(**ORPHAN, processes=named)) == (DeleteVm("mine"),)


def test_image_unused_for_a_day_is_deleted_with_base_and_cache() -> None:
    assert steps(with_images(STALE)) == (whole("a"),)


def test_unused_image_is_kept_for_a_day() -> None:
    young = an_image("a", last_used=NOW - MAX_UNUSED_AGE + timedelta(seconds=1))

    assert steps(with_images(young)) == ()


@pytest.mark.parametrize("pressure", [{"is_low": True}, {"needs_space": True}])
def test_unused_image_is_deleted_at_once_when_space_is_short(pressure: dict[str, bool]) -> None:
    assert steps(with_images(an_image("a"), **pressure)) == (whole("a"),)


def test_longest_unused_image_is_deleted_first() -> None:
    images = [
        an_image(letter, last_used=NOW - hours)
        for letter, hours in (
            ("a", timedelta(hours=2)),
            ("b", timedelta(hours=9)),
            ("c", timedelta(hours=4)),
        )
    ]

    assert steps(with_images(*images, is_low=True)) == (whole("b"), whole("c"), whole("a"))


@pytest.mark.parametrize(
    "used",
    [
        {"pods": [PodFact("u", pinned("a"))]},
        {"pods": [PodFact("u", f"{REPOSITORY}:a")]},
        {"pods": [PodFact("u", f"quay.io/copy@{digest('a')}")]},
        {"pods": [PodFact("uid-vm")], "vms": {"vm": a_vm("vm", digest=digest("a"))}},
        {"pods": [PodFact("uid-vm")], "vms": {"vm": a_vm("vm", golden="golden-a")}},
        {"in_use": frozenset({digest("a")})},
        {"running": frozenset({"golden-a"})},
        {"processes": ProcessTable(frozenset({"golden-a"}))},
        {"leases": [Lease(vms=("any",))]},
        {"processes": ProcessTable(has_push=True)},
    ],
    ids=[
        "named by digest",
        "named by tag",
        "named in another repository",
        "cloned, by digest",
        "cloned, by base",
        "in hand",
        "a process runs it",
        "a process names it",
        "any lease",
        "any push",
    ],
)
def test_image_in_use_is_kept_however_old(used: dict[str, Any]) -> None:
    assert steps(with_images(STALE, **used)) == ()


def test_staged_image_is_kept() -> None:
    assert steps(with_images(msgspec.structs.replace(STALE, is_staged=True))) == ()


def test_image_newer_than_the_list_of_pods_is_kept() -> None:
    new = an_image("a", last_used=NOW - timedelta(minutes=1))

    assert steps(with_images(new, is_low=True, needs_space=True)) == ()


def test_new_base_is_kept_on_a_low_disk() -> None:
    made = [msgspec.structs.replace(each, pulled_at=NOW) for each in THREE]

    assert steps(with_images(*made, **NEEDED, is_low=True)) == ()


def test_foreign_pull_is_kept_when_our_base_of_it_is_deleted() -> None:
    foreign = msgspec.structs.replace(STALE, is_pulled=False)

    assert steps(with_images(foreign)) == (DeleteImage(digest("a"), "golden-a"),)


NEEDED = {"pods": [PodFact("u", pinned(letter)) for letter in "abc"]}
THREE = [an_image(letter) for letter in "abc"]


def test_low_disk_deletes_idle_bases_but_never_the_last() -> None:
    executed = steps(with_images(*THREE, **NEEDED, is_low=True))

    assert executed[:3] == tuple(DeleteCached(digest(each), (pinned(each),)) for each in "abc")
    assert executed[3:] == (whole("a"), whole("b"))


def test_missing_space_deletes_no_base_that_a_pod_names() -> None:
    assert steps(with_images(*THREE, **NEEDED, needs_space=True)) == ()


def test_base_of_a_vm_is_never_deleted() -> None:
    vms = {"vm": a_vm("vm", digest=digest("a"), golden="golden-a")}
    pods = [*NEEDED["pods"], PodFact("uid-vm")]
    executed = steps(with_images(*THREE, pods=pods, vms=vms, is_low=True))

    assert whole("a") not in executed
    assert executed[3:] == (whole("b"), whole("c"))


def test_only_base_is_kept_on_a_low_disk() -> None:
    executed = steps(with_images(THREE[0], **NEEDED, is_low=True))

    assert executed == (DeleteCached(digest("a"), (pinned("a"),)),)


def test_staged_bases_are_deleted_before_those_that_pods_name() -> None:
    staged = an_image("c", is_staged=True, last_used=NOW - timedelta(minutes=30))
    pods = [PodFact("u", pinned(letter)) for letter in "ab"]
    executed = steps(with_images(*THREE[:2], staged, pods=pods, is_low=True))

    assert [step for step in executed if isinstance(step, DeleteImage)] == [whole("c"), whole("a")]


def test_converged_plan_is_empty() -> None:
    assert steps(with_images(*THREE, **NEEDED)) == ()
    assert steps(facts()) == ()


LETTERS = st.sampled_from("abcd")


@given(
    images=st.lists(
        st.builds(
            an_image,
            LETTERS,
            last_used=st.integers(0, 50).map(lambda hours: NOW - timedelta(hours=hours)),
            is_staged=st.booleans(),
            is_pulled=st.booleans(),
        ),
        unique_by=lambda image: image.digest,
        max_size=4,
    ),
    by_tag=st.lists(LETTERS),
    by_digest=st.lists(LETTERS),
    is_low=st.booleans(),
    needs_space=st.booleans(),
)
def test_image_of_a_pod_is_deleted_only_on_a_low_disk(
    images: list[ImageRecord],
    by_tag: list[str],
    by_digest: list[str],
    *,
    is_low: bool,
    needs_space: bool,
) -> None:
    named = [f"{REPOSITORY}:{letter}" for letter in by_tag] + [pinned(each) for each in by_digest]
    pods = [OTHER, *(PodFact(f"u{index}", image) for index, image in enumerate(named))]
    seen = with_images(*images, pods=pods, is_low=is_low, needs_space=needs_space)
    executed = [step for step in steps(seen) if isinstance(step, DeleteImage)]

    lost = {step.digest for step in executed} & {digest(each) for each in by_tag + by_digest}
    assert not lost or is_low
    if lost:
        assert len(seen.goldens - {step.golden for step in executed}) >= 1
