"""Converge a Mac: probe all steps in one round trip, plan, then apply step by step.

A step is done when its plan, computed from fresh facts, is empty; then, and only then, its part is stamped. After an interruption the
next run starts with fresh facts. A Mac is rebooted at most once in a run; what needs another boot is pending. Of two concurrent runs
the later one continues. Unsupported Macs are refused before any change, except by a skippable step: it is left out, and the run fails
after all other steps.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from bramley.base import errors
from bramley.host import drift
from bramley.host.claim import CLAIM_FILE, Claim
from bramley.host.commands import Command, Probe, Reboot, Run, Wait
from bramley.host.connection import Connection
from bramley.host.facts import Facts
from bramley.host.progress import (
    CommandStarted,
    OnProgress,
    Plan,
    PlannedStep,
    Report,
    StepFinished,
    StepSkipped,
    StepStarted,
)
from bramley.host.step import (
    AdvisoryStep,
    CleanupStep,
    FollowUpProbes,
    PendingStep,
    SkippableStep,
    Step,
    VerifyingStep,
)

# The limit of all commands of one step together; each command has its own timeout, too.
STEP_TIMEOUT = timedelta(hours=1)
# Further steps, chosen by the stamps of the Mac.
LaterSteps = Callable[[drift.Stamps], Sequence[Step]]


async def plan(
    mac: Connection,
    steps: Sequence[Step],
    *,
    later_steps: LaterSteps = lambda _: (),
    no_reboot: bool = False,
) -> Plan:
    """Return what is missing on a Mac; nothing is changed."""
    facts = replace(await _probe(mac, *steps), no_reboot=no_reboot)
    planned = _plan_all(mac, steps, facts)
    stamps = drift.read_stamps(facts)
    if later := later_steps(stamps):
        later_facts = replace(await _probe(mac, *later), no_reboot=no_reboot)
        later_planned = [_with_stamp(_plan_step(step, later_facts), stamps) for step in later]
        planned = replace(planned, steps=(*planned.steps, *later_planned))
    return planned


async def apply(
    mac: Connection,
    steps: Sequence[Step],
    *,
    on_progress: OnProgress = lambda _: None,
    claim: Claim | None = None,
    later_steps: LaterSteps = lambda _: (),
    facts: Facts | None = None,
    no_reboot: bool = False,
) -> Report:
    """Converge a Mac; with a claim, this run stops as soon as another run has claimed the Mac.

    The refusal of a skipped step is raised at the end, after all other steps. `facts` are the recent result of `check_all`: they
    save a round trip if nothing is to be done; otherwise the Mac is probed again. With `no_reboot`, what needs a reboot is pending.
    """
    run = _Run(mac, on_progress, claim, no_reboot=no_reboot)
    facts = replace(facts, no_reboot=no_reboot) if facts else None
    if facts is None or not _plan_all(mac, steps, facts).is_empty:
        # Also reads the claim, which earlier facts do not contain.
        facts = await run.probe(*steps)
    run.stamps = drift.read_stamps(facts)
    await run.ensure_all(steps, facts)
    if later := later_steps(run.stamps):
        await run.ensure_all(later, await run.probe(*later))
    if run.skipped:
        raise errors.UnsupportedHost(f"{run.skipped}; all other steps were done")
    pending = tuple(dict.fromkeys(run.pending))
    return Report(mac.host, run.changed, pending, tuple(run.advice), run.reboot)


async def execute(mac: Connection, command: Command) -> str:
    """Execute one command; a permanent failure is raised as a refusal. Returns the error of a command whose failure is ignored."""
    try:
        await mac.execute(command)
    except errors.CommandFailed as error:
        if isinstance(command, Run) and command.refusal:
            raise errors.UnsupportedHost(command.refusal) from error
        if isinstance(command, Run) and command.ignore_failure:
            return str(error).removeprefix(f"{mac.host}: ")
        raise
    return ""


async def check_all(mac: Connection, steps: Sequence[Step], *, also: Sequence[Probe] = ()) -> Facts:
    """Refuse an unsupported Mac, as `apply` does first, and return the facts; nothing is changed.

    `also` are the probes of a step that cannot be built yet.
    """
    facts = await _probe(mac, *steps, also=also)
    _check_supported(mac, steps, facts)
    return facts


@dataclass(slots=True)
class _Run:
    """One run over the steps of one Mac."""

    mac: Connection
    on_progress: OnProgress
    claim: Claim | None = None
    is_claimed: bool = False
    stamps: drift.Stamps = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    has_changed_mac: bool = False
    no_reboot: bool = False
    # Why the Mac was rebooted; empty if it was not.
    reboot: str = ""
    # Why a step was skipped; empty if none was.
    skipped: str = ""
    # The last ignored failure of the current step, for its error if the Mac does not converge.
    ignored_failure: str = ""

    async def ensure_all(self, steps: Sequence[Step], facts: Facts) -> None:
        """Refuse an unsupported Mac before any change, then apply step by step."""
        _check_supported(self.mac, steps, facts)
        for step in steps:
            # Commands of earlier steps may have changed the facts of this one.
            current = await self.probe(step) if self.has_changed_mac else facts
            await self.ensure(step, current)

    async def ensure(self, step: Step, facts: Facts) -> None:
        """Execute a step's plan, verify the result, and stamp its part."""
        self.ignored_failure = ""
        try:
            async with _step_deadline():
                # Again: earlier steps of this run may have changed what this one depends on.
                step.check_supported(facts)
                changed = await self._execute_plan(step, facts)
                after = await self._verify(step) if changed else facts
                # Only after the verification: a stamp asserts that the part is applied.
                changed += await self._stamp(step)
        except errors.BramleyError as error:
            await self._clean_up(step, error)
            named = with_step_name(step, self.mac, error, also=(self.ignored_failure, self.skipped))
            if not (isinstance(error, errors.UnsupportedHost) and _is_skippable(step, facts)):
                raise named from error
            self.skipped = str(named)
            self.on_progress(StepSkipped(step, str(error)))
            return
        self.changed[step.name] = changed
        pending, advice = _notices(step, after)
        self.pending += filter(None, [pending])
        self.advice += filter(None, [advice])
        self.on_progress(StepFinished(step, changed, pending, advice))

    async def _execute_plan(self, step: Step, facts: Facts) -> int:
        """Execute a plan; a reboot invalidates its facts, so the plan is computed again after one."""
        commands = list(step.plan(facts))
        self.on_progress(StepStarted(step, len(commands)))
        await self._execute(step, commands)
        if any(isinstance(command, Reboot) for command in commands):
            remaining = list(step.plan(await self.probe(step)))
            await self._execute(step, remaining)
            commands += remaining
        return len(commands)

    async def _execute(self, step: Step, commands: Sequence[Command]) -> None:
        # Without passwordless sudo no claim can be written; the step that enables sudo changes nothing else.
        self._check_reboots(commands)
        can_claim = not any(getattr(command, "sudo_password", None) for command in commands)
        for command in commands:
            self.on_progress(CommandStarted(step, command))
            if can_claim and not isinstance(command, Wait):
                await self._ensure_claim()
            # Before the command: one that fails may have changed the Mac all the same.
            self.has_changed_mac = True
            if isinstance(command, Reboot):
                self.reboot = command.purpose
            self.ignored_failure = await execute(self.mac, command) or self.ignored_failure

    async def probe(self, *steps: Step) -> Facts:
        """Probe for these steps, and check that no other run has claimed the Mac."""
        facts = await _probe(self.mac, *steps, also=(CLAIM_FILE,) if self.claim else ())
        if self.claim:
            self.claim = self.claim.check_owner(facts, is_held=self.is_claimed)
        return replace(facts, is_rebooted=bool(self.reboot), no_reboot=self.no_reboot)

    def _check_reboots(self, commands: Sequence[Command]) -> None:
        """Refuse a second reboot, and any with --no-reboot, before the first command that prepares it."""
        reboots = [command.purpose for command in commands if isinstance(command, Reboot)]
        if reboots and (self.no_reboot or self.reboot or len(reboots) > 1):
            reason = f"this run has done so already ({self.reboot})" if self.reboot else ""
            raise errors.NotConverged(
                f"{reboots[-1]}: {reason or 'this run must not do that'}; run this again"
            )

    async def _ensure_claim(self) -> None:
        """Claim the Mac before its first change; before every other one, check that the claim is still ours."""
        if self.claim is None:
            return
        if self.is_claimed:
            self.claim.check_owner(await self.mac.probe([CLAIM_FILE]), is_held=True)
            return
        await self.mac.execute(self.claim.write())
        self.is_claimed = True

    async def _clean_up(self, step: Step, error: errors.BramleyError) -> None:
        """Remove what must not stay after a failure; if the Mac is unreachable, the next plan does it."""
        # After a Conflict the files belong to the other run.
        if isinstance(error, errors.HostUnreachable | errors.Conflict):
            return
        for command in step.clean_up() if isinstance(step, CleanupStep) else ():
            with contextlib.suppress(errors.BramleyError):
                await self.mac.execute(command)

    async def _verify(self, step: Step) -> Facts:
        after = await self.probe(step)
        if isinstance(step, VerifyingStep):
            step.verify(after)
        step.check_supported(after)
        if remaining := [command.purpose for command in step.plan(after)]:
            raise errors.NotConverged(
                f"all commands succeeded and the Mac has still not converged; remaining: {'; '.join(remaining)}. "
                "Check whether something else on this Mac reverts it"
            )
        return after

    async def _stamp(self, step: Step) -> int:
        part = step.desired()
        if part is None or self.stamps.get(part.part) == part.stamp:
            return 0
        self.stamps = drift.with_part(self.stamps, part)
        # If only the stamp is missing, this is the first change of the run.
        await self._ensure_claim()
        self.has_changed_mac = True
        for command in drift.write_stamps(self.stamps):
            await self.mac.execute(command)
        return 1


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


async def _probe(mac: Connection, *steps: Step, also: Sequence[Probe] = ()) -> Facts:
    first = dict.fromkeys(probe for step in steps for probe in step.probes())
    facts = await mac.probe([drift.STAMPS_FILE, *also, *first])
    followers = [step for step in steps if isinstance(step, FollowUpProbes)]
    further = dict.fromkeys(probe for step in followers for probe in step.follow_up_probes(facts))
    return facts.merged(await mac.probe(list(further))) if further else facts


def _is_skippable(step: Step, facts: Facts) -> bool:
    return isinstance(step, SkippableStep) and step.is_skippable(facts)


def _check_supported(mac: Connection, steps: Sequence[Step], facts: Facts) -> None:
    for step in steps:
        if _is_skippable(step, facts):
            continue
        try:
            step.check_supported(facts)
        except errors.BramleyError as error:
            raise with_step_name(step, mac, error) from error


def _plan_all(mac: Connection, steps: Sequence[Step], facts: Facts) -> Plan:
    stamps = drift.read_stamps(facts)
    return Plan(mac.host, tuple(_with_stamp(_plan_step(step, facts), stamps) for step in steps))


def _plan_step(step: Step, facts: Facts) -> PlannedStep:
    try:
        step.check_supported(facts)
    except errors.Refused as error:
        return PlannedStep(step, refusal=str(error))
    pending, advice = _notices(step, facts)
    return PlannedStep(step, tuple(step.plan(facts)), pending=pending, advice=advice)


def _notices(step: Step, facts: Facts) -> tuple[str, str]:
    """Return what a step waits for, and its advice."""
    pending = step.pending(facts) if isinstance(step, PendingStep) else ""
    return pending, step.advice(facts) if isinstance(step, AdvisoryStep) else ""


def _with_stamp(planned: PlannedStep, stamps: drift.Stamps) -> PlannedStep:
    part = planned.step.desired()
    if planned.refusal or part is None or stamps.get(part.part) == part.stamp:
        return planned
    stamp = drift.write_stamps(drift.with_part(stamps, part))
    return replace(planned, commands=(*planned.commands, *stamp))


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
