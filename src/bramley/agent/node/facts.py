"""What is known of this host when the Node is written: cached answers of the probes, and what other parts hold in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bramley.agent.host import Space
from bramley.agent.ledger.records import ImageRecord


@dataclass(frozen=True, slots=True)
class Check:
    """The last answer of a check: None before there is one, empty when all is well, else what is wrong."""

    trouble: str | None = None

    @property
    def is_well(self) -> bool:
        """Tell whether somebody looked and all was well."""
        return not self.trouble and self.trouble is not None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the Node tells; building it waits for nobody."""

    tart: Check = field(default_factory=Check)
    # None where no GUI session is looked after.
    session: Check | None = None
    # None while nobody could measure it.
    space: Space | None = None
    guest_disks: Mapping[str, float] = field(default_factory=dict)
    images: Sequence[ImageRecord] = ()
    leaks: Sequence[str] = ()
    boot_id: str = ""
    kubelet_port: int = 0
