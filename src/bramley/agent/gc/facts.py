"""What the collector's plan is made of; everything that cannot be told is None, and nothing is deleted on None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from bramley.agent.gc.leases import Lease
from bramley.agent.gc.table import Evidence
from bramley.agent.ledger import ImageRecord, VmRecord
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
    processes: Evidence | None
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
