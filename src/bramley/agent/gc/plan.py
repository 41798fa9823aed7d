"""What to delete: a pure function of the facts, and the only place where that is decided.

Nothing that the ledger does not know is ever in a plan. An image goes when nobody has needed it for a day; sooner, the longest
unused first, when the disk is low. Then even bases that Pods name go, but never one that a VM was cloned from: its blocks are the
VM's too and would not come free. One base always stays.
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
    """A Pod of this Node: `image` is what it needs yet, empty when it is over."""

    uid: str
    image: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """What tart lists: local VMs by name, and cached images by tag and digest."""

    vms: frozenset[str]
    images: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One look at the host."""

    now: datetime
    pods: Sequence[PodFact] | None
    listed: Listed | None
    processes: ProcessTable | None
    vms: Mapping[str, VmRecord] = field(default_factory=dict)
    images: Sequence[ImageRecord] = ()
    # Golden bases that are whole, VMs that run or of which that cannot be told, digests that somebody works with.
    goldens: frozenset[str] = frozenset()
    live: frozenset[str] = frozenset()
    in_hand: frozenset[str] = frozenset()
    leases: Sequence[Lease] = ()
    # Whether the disk is below its floor, and whether somebody ran out of space.
    is_low: bool = False
    is_asked: bool = False


def of_pod(pod: Pod) -> PodFact:
    """Return what the plan needs of a Pod; one that is over or on its way out needs no image."""
    is_over = pod.status.phase in {"Succeeded", "Failed"}
    if is_over or pod.metadata.deletion_timestamp is not None or not pod.spec.containers:
        return PodFact(pod.metadata.uid)
    return PodFact(pod.metadata.uid, pod.spec.containers[0].image)


_PUSH = "push"


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """Every word of every command line, and whether one of them is a push."""

    words: frozenset[str] = frozenset()
    has_push: bool = False


def read_process_table(processes: Iterable[HostProcess], *, tart: str) -> ProcessTable:
    """Look through the command lines; `tart` is what our own tart is called."""
    lines = [process.argv for process in processes]
    programs = {"tart", PurePath(tart).name}
    return ProcessTable(
        words=frozenset(word for line in lines for word in line),
        has_push=any(_is_push(line, programs) for line in lines),
    )


def _is_push(line: tuple[str, ...], programs: set[str]) -> bool:
    """Tell whether a command line runs `tart push`, also where a script or an interpreter stands before tart."""
    pairs = itertools.pairwise(line)
    return any(second == _PUSH and PurePath(first).name in programs for first, second in pairs)


KEPT_UNUSED = timedelta(hours=24)
# A record may be younger than the list of Pods that it is judged by.
YOUNG = timedelta(minutes=5)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DeleteVm:
    """A VM of ours whose Pod is gone."""

    vm: str


@dataclass(frozen=True, slots=True)
class DeleteImage:
    """An image of ours: its golden base and what we pulled for it."""

    digest: str
    golden: str
    cached: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteCached:
    """What we pulled for an image whose golden base stays."""

    digest: str
    cached: tuple[str, ...]


Step = DeleteVm | DeleteImage | DeleteCached


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in their order, and the digests that a Pod or a VM needs; `held_back` says why there are no steps at all."""

    steps: tuple[Step, ...] = ()
    needed: frozenset[str] = frozenset()
    held_back: str = ""


def decide(facts: Facts) -> Plan:
    """Return what to delete."""
    held_back = _held_back(facts)
    if held_back:
        return Plan(held_back=held_back)
    needed = frozenset(each.digest for each in facts.images if _is_needed(each, facts))
    return Plan(tuple(_orphans(facts)) + tuple(_images(facts, needed)), needed)


def _held_back(facts: Facts) -> str:
    if facts.pods is None:
        return "there is no complete list of Pods"
    if facts.listed is None:
        return "there is no complete list of VMs"
    if facts.processes is None:
        return "the process table cannot be read"
    if not facts.pods and facts.vms:
        # A right that was lost, or a wrong selector, looks just like this.
        return "there are VMs and not one Pod"
    if any(lease.is_for_all for lease in facts.leases):
        return "everything is leased"
    return ""


def _orphans(facts: Facts) -> Iterator[DeleteVm]:
    present = {pod.uid for pod in facts.pods or ()}
    owners = {vm: record.uid for vm, record in facts.vms.items()}
    local = facts.listed.vms if facts.listed else frozenset()
    for vm in sorted(local | owners.keys()):
        if vm not in owners:
            # Somebody else's: a bake, or a VM made by hand.
            continue
        if owners.get(vm) not in present and not _is_spared(vm, facts):
            yield DeleteVm(vm)


def _is_spared(vm: str, facts: Facts) -> bool:
    is_leased = any(vm in lease.vms for lease in facts.leases)
    is_named = facts.processes is None or vm in facts.processes.words
    return is_leased or is_named or vm in facts.live or _is_young(facts.vms.get(vm), facts.now)


def _is_young(record: VmRecord | None, now: datetime) -> bool:
    return record is not None and _is_new(record.created_at, now)


def _images(facts: Facts, needed: frozenset[str]) -> Iterator[Step]:
    if facts.leases or facts.processes is None or facts.processes.has_push:
        # A bake or a push reads images that it never named to us.
        return
    free = [each for each in _oldest_first(facts) if not _is_touched(each, facts)]
    unused = [each for each in free if each.digest not in needed and not each.is_staged]
    # Somebody may have come for it after the Pods were listed.
    unused = [each for each in unused if not _is_new(each.last_used, facts.now)]
    for record in unused:
        if facts.is_low or facts.is_asked or _is_stale(record, facts.now):
            yield _whole(record, facts)
    if facts.is_low:
        left = facts.goldens - {record.golden for record in unused}
        kept = [each for each in free if each.digest in needed or each.is_staged]
        yield from _relief(facts, kept, bases_left=len(left))


def _relief(facts: Facts, kept: list[ImageRecord], *, bases_left: int) -> Iterator[Step]:
    """Yield what hurts, for a disk that is low with nothing unused on it: what is only staged before what a Pod names."""
    bases = [each for each in kept if each.golden in facts.goldens]
    # What was only just made is about to be cloned.
    bases = [each for each in bases if not _is_new(each.pulled_at, facts.now)]
    for record in bases:
        if cached := _cached(record, facts):
            yield DeleteCached(record.digest, cached)
    idle = [record for record in bases if not _is_cloned(record, facts)]
    idle.sort(key=lambda record: _is_named(record, facts))
    # One base stays.
    for record in idle[: max(bases_left - 1, 0)]:
        yield _whole(record, facts)


def _is_touched(record: ImageRecord, facts: Facts) -> bool:
    """Tell whether somebody works with this image at this moment."""
    words = facts.processes.words if facts.processes is not None else frozenset()
    is_seen = record.golden in facts.live or record.golden in words
    return is_seen or record.digest in facts.in_hand


def _is_new(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and now - moment < YOUNG


def _oldest_first(facts: Facts) -> list[ImageRecord]:
    return sorted(facts.images, key=lambda each: (each.last_used or _LONG_AGO, each.digest))


def _is_stale(record: ImageRecord, now: datetime) -> bool:
    return now - (record.last_used or _LONG_AGO) >= KEPT_UNUSED


def _is_needed(record: ImageRecord, facts: Facts) -> bool:
    return _is_named(record, facts) or _is_cloned(record, facts)


def _is_named(record: ImageRecord, facts: Facts) -> bool:
    """Tell whether a Pod names this image, by tag or by digest: tart lists digests and Pods name tags."""
    return any(_names(pod.image, record) for pod in facts.pods or ())


def _names(image: str, record: ImageRecord) -> bool:
    reference = references.parse(image)
    digest = reference.digest if reference is not None else ""
    return image in record.references or digest == record.digest


def _is_cloned(record: ImageRecord, facts: Facts) -> bool:
    return any(
        record.digest == vm.digest or (record.golden and record.golden == vm.golden)
        for vm in facts.vms.values()
    )


def _whole(record: ImageRecord, facts: Facts) -> DeleteImage:
    return DeleteImage(record.digest, record.golden, _cached(record, facts))


def _cached(record: ImageRecord, facts: Facts) -> tuple[str, ...]:
    """Return the cached images of this digest under names of ours; what somebody else pulled stays."""
    if not record.is_pulled or facts.listed is None:
        return ()
    parsed = (references.parse(name) for name in record.references)
    ours = {reference.at(record.digest) for reference in parsed if reference is not None}
    return tuple(sorted(ours & facts.listed.images))
