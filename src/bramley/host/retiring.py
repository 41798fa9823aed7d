"""Parts that a Mac was given once and that are wanted no more: taken away, and their stamps with them.

What carries no stamp of ours was not brought by us, or is gone already, and is left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from bramley.host import drift, removing, stamping
from bramley.host.commands import Command, Probe
from bramley.host.drift import Part
from bramley.host.facts import Facts
from bramley.host.step import Step


@dataclass(frozen=True, slots=True)
class Retiring:
    """Take one part away that is wanted no more."""

    part: Part
    undoing: Step

    @property
    def name(self) -> str:
        """Return a name that no other step has."""
        return f"without-{self.undoing.name}"

    @property
    def title(self) -> str:
        """Return what is taken away."""
        return f"no more: {self.undoing.title}"

    def wanted(self) -> None:
        """Stamp nothing."""

    def looks(self) -> list[Probe]:
        """Ask for what would be taken away, and for the stamps."""
        return [stamping.FILE, *self.undoing.looks()]

    def refuse(self, seen: Facts) -> None:
        """Refuse what would end somebody's work."""
        self.undoing.refuse(seen)

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Take it away, and its stamp last: as long as that is there, a cut is seen."""
        yield from self.undoing.plan(seen)
        stamps = stamping.read(seen)
        if self.part in stamps:
            yield from stamping.write(drift.removed(stamps, self.part))


def steps(
    wanted: Sequence[Step], stamps: drift.Stamps, *, skip: Collection[str] = ()
) -> list[Step]:
    """Return what takes away the parts that were applied once and that none of these steps wants, but for those to be skipped."""
    parts = [part for step in wanted if (part := step.wanted())]
    retired = drift.retired(parts, stamps)
    undoing = [(part, one) for part in retired if (one := removing.of_part(part))]
    return [Retiring(part, one) for part, one in undoing if one.name not in skip]
