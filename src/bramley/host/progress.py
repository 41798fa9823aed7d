"""What a run is going to do, does and did: the plan of a Mac, the progress of its steps, and the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bramley.host.commands import Command
from bramley.host.step import Step


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """The commands of one step; `refusal` is the reason why it cannot be applied."""

    step: Step
    commands: tuple[Command, ...] = ()
    refusal: str = ""
    pending: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The commands of all steps for one Mac, computed from one set of facts."""

    host: str
    steps: tuple[PlannedStep, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do; something may still be pending."""
        return not any(step.commands or step.refusal for step in self.steps)

    @property
    def pending(self) -> tuple[str, ...]:
        """Return what the steps wait for, without duplicates."""
        return tuple(dict.fromkeys(step.pending for step in self.steps if step.pending))

    @property
    def advice(self) -> tuple[str, ...]:
        """Return the advice to people, without duplicates; it does not affect whether the Mac is converged."""
        return tuple(dict.fromkeys(step.advice for step in self.steps if step.advice))

    @property
    def is_converged(self) -> bool:
        """Return whether there is nothing to do and nothing is pending."""
        return self.is_empty and not self.pending


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step was started, with this number of commands."""

    step: Step
    commands: int


@dataclass(frozen=True, slots=True)
class CommandStarted:
    """A command of a step is about to be executed."""

    step: Step
    command: Command


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A step is converged; `changed` counts its executed commands."""

    step: Step
    changed: int
    pending: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class StepSkipped:
    """A step was refused, and the run continues without it."""

    step: Step
    refusal: str


Progress = StepStarted | CommandStarted | StepFinished | StepSkipped
OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run: executed commands by step, what is pending, the advice to people, and why the Mac was rebooted."""

    host: str
    changed: dict[str, int] = field(default_factory=dict)
    pending: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    # Why the Mac was rebooted; empty if it was not.
    reboot: str = ""

    @property
    def is_changed(self) -> bool:
        """Return whether any command was executed."""
        return any(self.changed.values())
