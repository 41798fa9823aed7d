"""What `tart list` and `tart get` tell, reduced to what can be believed: State is not, sizes come in two types."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ListedVm:
    """One row of `tart list`; local VMs by name, cached images by tag and again by digest."""

    name: str
    is_local: bool
    size_gb: float = 0.0


@dataclass(frozen=True, slots=True)
class VmFacts:
    """What `tart get` tells of one local VM."""

    cpu: int
    memory_mb: int
    disk_gb: int = 0
    is_suspended: bool = False
