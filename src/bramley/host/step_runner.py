"""The runner of steps: executes their plans under a claim, verifies the results, and stamps what was applied.

The commands of a step share a round trip with the probes that verify it, with those of the next step and with the stamps of earlier
ones. So a step with something to do takes one round trip, unless it streams a file, needs a password or reboots the Mac. A stamp that
was not written before an interruption is missing and not wrong: the next run finds the part applied and stamps it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from bramley.base import errors
from bramley.host import drift
from bramley.host.claim import CLAIM_FILE, Claim, Guard
from bramley.host.commands import Command, Probe, Reboot, Run, Wait
from bramley.host.connection import Batch, Connection
from bramley.host.facts import Facts
from bramley.host.progress import (
    CommandStarted,
    OnProgress,
    StepFinished,
    StepSkipped,
    StepStarted,
)
from bramley.host.step import (
    AdvisoryStep,
    CleanupStep,
    FollowUpProbes,
    PendingStep,
    SecretStep,
    SkippableStep,
    Step,
    VerifyingStep,
)

# The limit of all commands of one step together; each command has its own timeout, too.
STEP_TIMEOUT = timedelta(hours=1)


@dataclass(slots=True)
class StepRunner:
    """One run over the steps of one Mac."""

    mac: Connection
    on_progress: OnProgress
    claim: Claim | None = None
    is_claimed: bool = False
    # The claim of another run that this one may replace.
    foreign_claim: bytes | None = None
    # Results that are newer than all commands; None after a failure.
    facts: Facts | None = None
    stamps: drift.Stamps = field(default_factory=dict)
    is_stamp_missing: bool = False
    changed: dict[str, int] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    no_reboot: bool = False
    # Why the Mac was rebooted; empty if it was not.
    reboot: str = ""
    # Why a step was skipped; empty if none was.
    skipped: str = ""
    # The last ignored failure of the current step, for its error if the Mac does not converge.
    ignored_failure: str = ""

    async def ensure_all(self, steps: Sequence[Step], facts: Facts) -> None:
        """Refuse an unsupported Mac before any change, then apply step by step."""
        check_supported(self.mac, steps, facts)
        self.facts = facts
        for number, step in enumerate(steps):
            current = await self._facts_for(steps[number:])
            await self.ensure(step, current, following=steps[number + 1 : number + 2])
        await self._write_stamps()

    async def ensure(self, step: Step, facts: Facts, *, following: Sequence[Step] = ()) -> None:
        """Execute a step's plan, verify the result, and stamp its part."""
        self.ignored_failure = ""
        try:
            async with _step_deadline():
                # Again: earlier steps of this run may have changed what this one depends on.
                step.check_supported(facts)
                if isinstance(step, SecretStep):
                    step = await step.with_secret(facts)
                changed, after = await self._execute_plan(step, facts, following)
                if changed:
                    _verify(step, after)
                # Only after the verification: a stamp asserts that the part is applied.
                changed += self._stamp(step)
        except errors.BramleyError as error:
            await self._clean_up(step, error)
            named = with_step_name(step, self.mac, error, also=(self.ignored_failure, self.skipped))
            if not (isinstance(error, errors.UnsupportedHost) and _is_skippable(step, facts)):
                raise named from error
            self.skipped = str(named)
            self.on_progress(StepSkipped(step, str(error)))
            return
        self.changed[step.name] = changed
        pending, advice = notices(step, after)
        self.pending += filter(None, [pending])
        self.advice += filter(None, [advice])
        self.on_progress(StepFinished(step, changed, pending, advice))

    async def _execute_plan(
        self, step: Step, facts: Facts, following: Sequence[Step]
    ) -> tuple[int, Facts]:
        """Execute a plan and return the facts after it; a reboot invalidates them, so the plan is computed again after one."""
        commands = list(step.plan(facts))
        self.on_progress(StepStarted(step, len(commands)))
        if not commands:
            return 0, facts
        after = await self._execute(step, commands, following)
        if any(isinstance(command, Reboot) for command in commands):
            remaining = list(step.plan(after))
            after = await self._execute(step, remaining, following) if remaining else after
            commands += remaining
        return len(commands), after

    async def _execute(
        self, step: Step, commands: Sequence[Command], following: Sequence[Step]
    ) -> Facts:
        """Execute commands, and in the last round trip probe for this step and the following ones."""
        self._check_reboots(commands)
        # Stamps of earlier steps need no round trip of their own; a command with a password comes before passwordless sudo.
        stamps = [] if _with_password(commands) else self._stamp_commands()
        guard = self._guard((*stamps, *commands))
        probes = dict.fromkeys(
            probe for each in (step, *following) for probe in self._probes_of(each)
        )
        # Before the commands: one that fails may have changed the Mac all the same.
        self.facts = None
        batch = Batch(commands=(*stamps, *commands), probes=[*probes], guard=guard)
        started = _StartedCommands(self, step, batch.commands, own=len(stamps))
        try:
            result = await self.mac.execute_all(batch, on_started=started)
        except errors.CommandFailed as error:
            raise refusal_of(started.last, error) from error
        self._set_executed(batch)
        self.ignored_failure = result.ignored_failure or self.ignored_failure
        self.facts = await self._with_follow_ups(self._marked(result.facts), step)
        return self.facts

    def _set_executed(self, batch: Batch) -> None:
        """Record what a batch has written: the claim, until the next boot, and stamps."""
        if batch.guard:
            self.is_claimed = True
        if any(isinstance(command, Reboot) for command in batch.commands):
            self.is_claimed, self.foreign_claim = False, None
        if any(command in batch.commands for command in drift.write_stamps(self.stamps)):
            self.is_stamp_missing = False

    def _guard(self, commands: Sequence[Command]) -> Guard | None:
        """Return the guard of these commands; the first ones claim the Mac."""
        # Without passwordless sudo no claim can be written; the step that enables sudo changes nothing else. Waiting changes nothing.
        changes = any(not isinstance(command, Wait) for command in commands)
        if self.claim is None or _with_password(commands) or not changes:
            return None
        guard = self.claim.guard()
        return guard if self.is_claimed else guard.acquiring(self.foreign_claim)

    async def _facts_for(self, steps: Sequence[Step]) -> Facts:
        """Return facts that are newer than all commands and sufficient for the first of these steps."""
        if self.facts is None or not _covers(self.facts, steps[0]):
            # For all of them: the next ones may have nothing to do.
            self.facts = await self.probe(*steps)
        else:
            self.facts = await self._with_follow_ups(self.facts, steps[0])
        return self.facts

    async def _with_follow_ups(self, facts: Facts, step: Step) -> Facts:
        missing = [probe for probe in _follow_ups(step, facts) if probe not in facts.results]
        return facts.merged(await self.mac.probe(missing)) if missing else facts

    def _probes_of(self, step: Step) -> list[Probe]:
        """Return the probes of a step, with the further ones that it needed before."""
        known = self.facts is not None and _covers(self.facts, step)
        return [*step.probes(), *(_follow_ups(step, self.facts) if known and self.facts else ())]

    async def probe(self, *steps: Step) -> Facts:
        """Probe for these steps, and check that no other run has claimed the Mac."""
        facts = await probe_all(self.mac, *steps, also=(CLAIM_FILE,) if self.claim else ())
        if self.claim:
            self.claim = self.claim.check_owner(facts, is_held=self.is_claimed)
            self.foreign_claim = facts.file(CLAIM_FILE)
        return self._marked(facts)

    async def take_over(self, steps: Sequence[Step]) -> Facts:
        """Claim a Mac that another run has claimed before, and probe it again: that run may have changed it after our facts."""
        assert self.claim is not None  # noqa: S101 - for the type checker; there is a foreign claim
        probes = dict.fromkeys(probe for step in steps for probe in self._probes_of(step))
        guard = self.claim.guard().acquiring(self.foreign_claim)
        batch = Batch(probes=[drift.STAMPS_FILE, *probes], guard=guard)
        result = await self.mac.execute_all(batch)
        self._set_executed(batch)
        self.facts = self._marked(result.facts)
        for step in steps:
            self.facts = await self._with_follow_ups(self.facts, step)
        return self.facts

    def _marked(self, facts: Facts) -> Facts:
        return replace(facts, is_rebooted=bool(self.reboot), no_reboot=self.no_reboot)

    def _check_reboots(self, commands: Sequence[Command]) -> None:
        """Refuse a second reboot, and any with --no-reboot, before the first command that prepares it."""
        reboots = [command.purpose for command in commands if isinstance(command, Reboot)]
        if reboots and (self.no_reboot or self.reboot or len(reboots) > 1):
            reason = f"this run has done so already ({self.reboot})" if self.reboot else ""
            raise errors.NotConverged(
                f"{reboots[-1]}: {reason or 'this run must not do that'}; run this again"
            )

    async def _clean_up(self, step: Step, error: errors.BramleyError) -> None:
        """Remove what must not stay after a failure; if the Mac is unreachable, the next plan does it."""
        # After a Conflict the files belong to the other run.
        if isinstance(error, errors.HostUnreachable | errors.Conflict):
            return
        cleaning = list(step.clean_up()) if isinstance(step, CleanupStep) else []
        # Stamps of earlier steps, too: what was applied must not be applied again because of this step.
        for commands in (cleaning, self._stamp_commands()):
            if commands:
                batch = Batch(commands=commands, guard=self._guard(commands))
                with contextlib.suppress(errors.BramleyError):
                    await self.mac.execute_all(batch)
                    self._set_executed(batch)

    async def _write_stamps(self) -> None:
        """Write stamps that no other command has written."""
        if commands := self._stamp_commands():
            self.facts = None
            batch = Batch(commands=commands, guard=self._guard(commands))
            await self.mac.execute_all(batch)
            self._set_executed(batch)

    def _stamp_commands(self) -> list[Command]:
        return list(drift.write_stamps(self.stamps)) if self.is_stamp_missing else []

    def _stamp(self, step: Step) -> int:
        """Add the stamp of a step; it is written with the next commands."""
        part = step.desired()
        if part is None or self.stamps.get(part.part) == part.stamp:
            return 0
        self.stamps = drift.with_part(self.stamps, part)
        self.is_stamp_missing = True
        return 1


@dataclass(slots=True)
class _StartedCommands:
    """Reports the commands of a step as they begin; those before `own` are stamps of earlier steps."""

    runner: StepRunner
    step: Step
    commands: Sequence[Command]
    own: int
    last: Command | None = None

    def __call__(self, number: int) -> None:
        self.last = self.commands[number]
        if isinstance(self.last, Reboot):
            self.runner.reboot = self.last.purpose
        if number >= self.own:
            self.runner.on_progress(CommandStarted(self.step, self.last))


@contextlib.asynccontextmanager
async def _step_deadline() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(STEP_TIMEOUT.total_seconds()):
            yield
    except TimeoutError as error:
        minutes = STEP_TIMEOUT.total_seconds() / 60
        raise errors.TimedOut(
            f"not done within {minutes:.0f} minutes; run this again, it continues where it stopped"
        ) from error


async def probe_all(mac: Connection, *steps: Step, also: Sequence[Probe] = ()) -> Facts:
    """Probe for all of these steps, in one round trip if none needs a further one."""
    first = dict.fromkeys(probe for step in steps for probe in step.probes())
    facts = await mac.probe([drift.STAMPS_FILE, *also, *first])
    followers = [step for step in steps if isinstance(step, FollowUpProbes)]
    further = dict.fromkeys(probe for step in followers for probe in step.follow_up_probes(facts))
    return facts.merged(await mac.probe(list(further))) if further else facts


def _follow_ups(step: Step, facts: Facts) -> Sequence[Probe]:
    return step.follow_up_probes(facts) if isinstance(step, FollowUpProbes) else ()


def _covers(facts: Facts, step: Step) -> bool:
    return all(probe in facts.results for probe in step.probes())


def _with_password(commands: Sequence[Command]) -> bool:
    return any(getattr(command, "sudo_password", None) for command in commands)


def refusal_of(command: Command | None, error: errors.CommandFailed) -> errors.BramleyError:
    """Return the error of a failed command; a permanent failure is a refusal."""
    refusal = command.refusal if isinstance(command, Run) else ""
    return errors.UnsupportedHost(refusal) if refusal else error


def _verify(step: Step, after: Facts) -> None:
    """Raise the reason why the Mac is not converged after all commands of a step."""
    if isinstance(step, VerifyingStep):
        step.verify(after)
    step.check_supported(after)
    if remaining := [command.purpose for command in step.plan(after)]:
        raise errors.NotConverged(
            f"all commands succeeded and the Mac has still not converged; remaining: {'; '.join(remaining)}. "
            "Check whether something else on this Mac reverts it"
        )


def _is_skippable(step: Step, facts: Facts) -> bool:
    return isinstance(step, SkippableStep) and step.is_skippable(facts)


def check_supported(mac: Connection, steps: Sequence[Step], facts: Facts) -> None:
    """Refuse a Mac that one of these steps does not support, unless that step is skippable."""
    for step in steps:
        if _is_skippable(step, facts):
            continue
        try:
            step.check_supported(facts)
        except errors.BramleyError as error:
            raise with_step_name(step, mac, error) from error


def notices(step: Step, facts: Facts) -> tuple[str, str]:
    """Return what a step waits for, and its advice."""
    pending = step.pending(facts) if isinstance(step, PendingStep) else ""
    return pending, step.advice(facts) if isinstance(step, AdvisoryStep) else ""


def with_step_name(
    step: Step, mac: Connection, error: errors.BramleyError, *, also: Sequence[str] = ()
) -> errors.BramleyError:
    """Return the error prefixed with host and step; its class is kept, since callers depend on it."""
    message = str(error).removeprefix(f"{mac.host}: ")
    suffix = "".join(f"; also: {text.removeprefix(f'{mac.host}: ')}" for text in also if text)
    renamed = type(error).__new__(type(error), *error.args)
    renamed.__dict__.update(error.__dict__)
    renamed.args = (f"{mac.host}: step {step.name}: {message}{suffix}",)
    return renamed
