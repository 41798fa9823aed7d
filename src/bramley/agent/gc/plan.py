"""Decides what to delete: a pure function of the observed facts.

Only VMs and images of the ledger are ever deleted. An image is deleted when it was not needed for a day, or earlier, least recently
used first, when the disk is low. Under disk pressure even golden bases that Pods refer to are deleted, but never one that a VM was
cloned from: it shares its blocks with the VM, so deleting it would free nothing. One base is always kept. A fact that could not be
observed is None, and nothing is deleted on None.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import PurePath

from bramley.agent.gc.leases import Lease
from bramley.agent.host import HostProcess
from bramley.agent.ledger import ImageRecord, VmRecord
from bramley.agent.tart import references
from bramley.api.core import Pod


@dataclass(frozen=True, slots=True)
class PodFact:
    """A Pod of this Node; `image` is empty once the Pod no longer needs it."""

    uid: str
    image: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """The output of `tart list`: local VMs by name, and cached images by tag and digest."""

    vms: frozenset[str]
    images: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The observed state of the host."""

    now: datetime
    pods: Sequence[PodFact] | None
    listed: Listed | None
    processes: ProcessTable | None
    vms: Mapping[str, VmRecord] = field(default_factory=dict)
    images: Sequence[ImageRecord] = ()
    # Complete golden bases; VMs that run or may run; digests with an operation in progress.
    goldens: frozenset[str] = frozenset()
    running: frozenset[str] = frozenset()
    in_use: frozenset[str] = frozenset()
    leases: Sequence[Lease] = ()
    # Whether free disk space is below the floor, and whether an operation ran out of space.
    is_low: bool = False
    needs_space: bool = False


def pod_fact(pod: Pod) -> PodFact:
    """Return the facts of a Pod; one that is finished or being deleted needs no image."""
    is_finished = pod.status.phase in {"Succeeded", "Failed"}
    if is_finished or pod.metadata.deletion_timestamp is not None or not pod.spec.containers:
        return PodFact(pod.metadata.uid)
    return PodFact(pod.metadata.uid, pod.spec.containers[0].image)


_PUSH = "push"


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """The process table: every argument of every command line, and whether a `tart push` runs.

    tart's own lock does not protect a VM that is being pushed.
    """

    arguments: frozenset[str] = frozenset()
    has_push: bool = False


def read_process_table(processes: Iterable[HostProcess], *, tart: str) -> ProcessTable:
    """Read the command lines; `tart` is the name of the agent's own tart."""
    commands = [process.argv for process in processes]
    programs = {"tart", PurePath(tart).name}
    return ProcessTable(
        arguments=frozenset(argument for argv in commands for argument in argv),
        has_push=any(_is_push(argv, programs) for argv in commands),
    )


def _is_push(argv: tuple[str, ...], programs: set[str]) -> bool:
    """Return whether a command line runs `tart push`, also below a script or an interpreter."""
    pairs = itertools.pairwise(argv)
    return any(verb == _PUSH and PurePath(program).name in programs for program, verb in pairs)


MAX_UNUSED_AGE = timedelta(hours=24)
# A record may be younger than the list of Pods that it is compared with.
MIN_AGE = timedelta(minutes=5)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DeleteVm:
    """Delete a VM whose Pod is gone."""

    vm: str


@dataclass(frozen=True, slots=True)
class DeleteImage:
    """Delete an image: its golden base and what the agent pulled for it."""

    digest: str
    golden: str
    cached: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteCached:
    """Delete what the agent pulled for an image, and keep the golden base."""

    digest: str
    cached: tuple[str, ...]


Step = DeleteVm | DeleteImage | DeleteCached


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order, and the digests that a Pod or a VM needs; `blocked_by` is the reason why there are no steps."""

    steps: tuple[Step, ...] = ()
    needed: frozenset[str] = frozenset()
    blocked_by: str = ""


def decide(facts: Facts) -> Plan:
    """Return what to delete."""
    blocked_by = _blocked_by(facts)
    if blocked_by:
        return Plan(blocked_by=blocked_by)
    needed = frozenset(each.digest for each in facts.images if _is_needed(each, facts))
    return Plan(tuple(_orphans(facts)) + tuple(_images(facts, needed)), needed)


def _blocked_by(facts: Facts) -> str:
    if facts.pods is None:
        return "there is no complete list of Pods"
    if facts.listed is None:
        return "there is no complete list of VMs"
    if facts.processes is None:
        return "the process table cannot be read"
    if not facts.pods and facts.vms:
        # A lost permission or a wrong selector looks the same.
        return "there are VMs and no Pods"
    if any(lease.covers_everything for lease in facts.leases):
        return "everything is leased"
    return ""


def _orphans(facts: Facts) -> Iterator[DeleteVm]:
    present = {pod.uid for pod in facts.pods or ()}
    owners = {vm: record.uid for vm, record in facts.vms.items()}
    local = facts.listed.vms if facts.listed else frozenset()
    for vm in sorted(local | owners.keys()):
        if vm not in owners:
            # Not the agent's: an image build, or a VM made by hand.
            continue
        if owners.get(vm) not in present and not _is_protected(vm, facts):
            yield DeleteVm(vm)


def _is_protected(vm: str, facts: Facts) -> bool:
    is_leased = any(vm in lease.vms for lease in facts.leases)
    is_named = facts.processes is None or vm in facts.processes.arguments
    return is_leased or is_named or vm in facts.running or _is_young(facts.vms.get(vm), facts.now)


def _is_young(record: VmRecord | None, now: datetime) -> bool:
    return record is not None and _is_new(record.created_at, now)


def _images(facts: Facts, needed: frozenset[str]) -> Iterator[Step]:
    if facts.leases or facts.processes is None or facts.processes.has_push:
        # An image build or a push may read any image.
        return
    idle = [each for each in _oldest_first(facts) if not _is_in_use(each, facts)]
    unused = [each for each in idle if each.digest not in needed and not each.is_staged]
    # A Pod may have requested it after the Pods were listed.
    unused = [each for each in unused if not _is_new(each.last_used, facts.now)]
    for record in unused:
        if facts.is_low or facts.needs_space or _is_stale(record, facts.now):
            yield _delete_image(record, facts)
    if facts.is_low:
        remaining = facts.goldens - {record.golden for record in unused}
        retained = [each for each in idle if each.digest in needed or each.is_staged]
        yield from _under_disk_pressure(facts, retained, remaining_bases=len(remaining))


def _under_disk_pressure(
    facts: Facts, retained: list[ImageRecord], *, remaining_bases: int
) -> Iterator[Step]:
    """Yield images in use, for a disk that is low without anything unused: staged images before those that Pods refer to."""
    bases = [each for each in retained if each.golden in facts.goldens]
    # A base that was just made is about to be cloned.
    bases = [each for each in bases if not _is_new(each.pulled_at, facts.now)]
    for record in bases:
        if cached := _cached(record, facts):
            yield DeleteCached(record.digest, cached)
    idle = [record for record in bases if not _has_clone(record, facts)]
    idle.sort(key=lambda record: _is_referenced(record, facts))
    # One base is always kept.
    for record in idle[: max(remaining_bases - 1, 0)]:
        yield _delete_image(record, facts)


def _is_in_use(record: ImageRecord, facts: Facts) -> bool:
    """Return whether an operation with this image is in progress."""
    arguments = facts.processes.arguments if facts.processes is not None else frozenset()
    is_visible = record.golden in facts.running or record.golden in arguments
    return is_visible or record.digest in facts.in_use


def _is_new(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and now - moment < MIN_AGE


def _oldest_first(facts: Facts) -> list[ImageRecord]:
    return sorted(facts.images, key=lambda each: (each.last_used or _LONG_AGO, each.digest))


def _is_stale(record: ImageRecord, now: datetime) -> bool:
    return now - (record.last_used or _LONG_AGO) >= MAX_UNUSED_AGE


def _is_needed(record: ImageRecord, facts: Facts) -> bool:
    return _is_referenced(record, facts) or _has_clone(record, facts)


def _is_referenced(record: ImageRecord, facts: Facts) -> bool:
    """Return whether a Pod refers to this image, by tag or by digest."""
    return any(_refers_to(pod.image, record) for pod in facts.pods or ())


def _refers_to(image: str, record: ImageRecord) -> bool:
    reference = references.parse(image)
    digest = reference.digest if reference is not None else ""
    return image in record.references or digest == record.digest


def _has_clone(record: ImageRecord, facts: Facts) -> bool:
    return any(
        record.digest == vm.digest or (record.golden and record.golden == vm.golden)
        for vm in facts.vms.values()
    )


def _delete_image(record: ImageRecord, facts: Facts) -> DeleteImage:
    return DeleteImage(record.digest, record.golden, _cached(record, facts))


def _cached(record: ImageRecord, facts: Facts) -> tuple[str, ...]:
    """Return the cached images of this digest under names that the agent pulled; those of other programs are kept."""
    if not record.is_pulled or facts.listed is None:
        return ()
    parsed = (references.parse(name) for name in record.references)
    ours = {reference.with_digest(record.digest) for reference in parsed if reference is not None}
    return tuple(sorted(ours & facts.listed.images))
