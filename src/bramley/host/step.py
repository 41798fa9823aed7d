"""What a step is: a part of a Mac that asks its questions, refuses what cannot be, and says which commands are missing.

A plan is made from facts alone and may be made twice; an empty one means that the Mac is as wanted. Commands are ordered so that
a cut between any two of them is seen by the next plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from bramley.host import drift
from bramley.host.commands import Command, Probe
from bramley.host.facts import Facts


class Step(Protocol):
    """One part of a Mac."""

    @property
    def name(self) -> str:
        """Return the step's name in kebab case, as --only, --skip, progress and errors call it."""
        ...

    @property
    def title(self) -> str:
        """Return what the step is for, in a few words for people."""
        ...

    def wanted(self) -> drift.Wanted | None:
        """Return what is stamped when the step has been applied; None for a step that is no part of drift."""
        ...

    def looks(self) -> Sequence[Probe]:
        """Return the questions that the plan needs answered."""
        ...

    def refuse(self, seen: Facts) -> None:
        """Raise UnsupportedHost, saying what to do, if the Mac cannot become what is wanted; before anything is changed."""
        ...

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Yield what is missing, in order."""
        ...


@runtime_checkable
class Pending(Protocol):
    """A step that may be as wanted and still wait for something that it must not do now, such as a reboot while VMs run."""

    def pending(self, seen: Facts) -> str:
        """Return what is waited for, as a CamelCase reason, a colon and a sentence; empty if nothing is."""
        ...


@runtime_checkable
class Advising(Protocol):
    """A step that may be as wanted on a Mac which still lacks something that no step can bring, such as a newer macOS."""

    def advice(self, seen: Facts) -> str:
        """Return what people should know of this Mac, as a CamelCase reason, a colon and a sentence; empty if nothing."""
        ...


@runtime_checkable
class Curious(Protocol):
    """A step with questions that come of the first answers; they cost another round trip, so most have none."""

    def looks_further(self, seen: Facts) -> Sequence[Probe]:
        """Return what is still to be asked; nothing, if the first answers are enough."""
        ...


@runtime_checkable
class Confirming(Protocol):
    """A step that can tell why it did not help, where people would else only be told that it did not."""

    def confirm(self, seen: Facts) -> None:
        """Raise what says why the Mac is not as wanted, though everything was done; asked after the step's own commands."""
        ...


@runtime_checkable
class Tidying(Protocol):
    """A step that puts something on the Mac which must not stay there when it fails in the middle, such as a key."""

    def tidy(self) -> Iterator[Command]:
        """Yield what takes it away; done after a failure, as far as the Mac can still be reached."""
        ...


@runtime_checkable
class Separable(Protocol):
    """A step without which the others are still worth doing, on some Macs: there, what it refuses stops nothing else."""

    def is_separable(self, seen: Facts) -> bool:
        """Tell whether the others are done all the same; the run fails in the end, and says why."""
        ...
