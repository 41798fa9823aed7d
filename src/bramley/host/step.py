"""The protocol of a step: the probes it needs, the Macs it does not support, and the commands that converge a Mac.

A plan depends on facts alone and may be computed more than once; an empty plan means that the Mac is converged. Commands are ordered
so that the next plan detects an interruption between any two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from bramley.host import drift
from bramley.host.commands import Command, Probe
from bramley.host.facts import Facts


class Step(Protocol):
    """One part of a Mac's configuration. Steps inherit from it for the defaults of `desired` and `check_supported`."""

    @property
    def name(self) -> str:
        """Return the name in kebab case, as used by --only, --skip, progress and errors."""
        ...

    @property
    def title(self) -> str:
        """Return a short description for people."""
        ...

    def desired(self) -> drift.DesiredPart | None:
        """Return what is stamped once the step is applied; None (the default) if probes alone detect drift."""
        return None

    def probes(self) -> Sequence[Probe]:
        """Return the probes that the plan needs."""
        ...

    def check_supported(self, facts: Facts) -> None:  # noqa: ARG002 - for the steps that override it
        """Raise UnsupportedHost, with a remedy, if this Mac cannot be converged; runs before any change. The default accepts all."""
        return

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Yield the missing commands, in order."""
        ...


@runtime_checkable
class PendingStep(Protocol):
    """A step that may be converged and still wait for something it must not do now, such as a reboot while VMs run."""

    def pending(self, facts: Facts) -> str:
        """Return what it waits for, as a CamelCase reason, a colon and a sentence; empty if nothing."""
        ...


@runtime_checkable
class AdvisoryStep(Protocol):
    """A step that may be converged on a Mac that lacks something no step can provide, such as a newer macOS."""

    def advice(self, facts: Facts) -> str:
        """Return what people should know, as a CamelCase reason, a colon and a sentence; empty if nothing."""
        ...


@runtime_checkable
class FollowUpProbes(Protocol):
    """A step whose further probes depend on the first results; they cost another round trip, so most steps have none."""

    def follow_up_probes(self, facts: Facts) -> Sequence[Probe]:
        """Return the further probes; none if the first results suffice."""
        ...


@runtime_checkable
class VerifyingStep(Protocol):
    """A step that can explain why its commands had no effect."""

    def verify(self, facts: Facts) -> None:
        """Raise the reason why the Mac is not converged although all commands ran; called after the step's own commands."""
        ...


@runtime_checkable
class CleanupStep(Protocol):
    """A step that puts something on the Mac that must not stay after a failure, such as a key."""

    def clean_up(self) -> Iterator[Command]:
        """Yield the commands that remove it; they run after a failure, if the Mac is still reachable."""
        ...


@runtime_checkable
class SkippableStep(Protocol):
    """A step that, on some Macs, other steps do not depend on: if it is refused there, the others still run."""

    def is_skippable(self, facts: Facts) -> bool:
        """Return whether the other steps run without this one; the run still fails at the end, with the reason."""
        ...


@runtime_checkable
class SecretStep(Protocol):
    """A step with a secret that is created only if its plan needs it, because it is short-lived."""

    async def with_secret(self, facts: Facts) -> Step:
        """Return the step with the secret, or itself if its plan needs none; called directly before its commands are executed."""
        ...
