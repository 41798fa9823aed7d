"""Facts → plan → ensure: what the steps want of a Mac is found out in one round trip, and then done step by step.

A step is done when its plan, made from fresh facts, is empty; then, and only then, its part is stamped. Whatever cuts a run short,
the next one begins with facts again. Of two runs at once the later one goes on. What is refused is refused before anything is
changed, but for a step that others need not wait for: it is left out, and the run fails when the others are done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from bramley.base import errors
from bramley.host import claiming, drift, stamping
from bramley.host.claiming import Claim
from bramley.host.commands import Command, Probe, Reboot, Run, Wait
from bramley.host.connection import Connection
from bramley.host.facts import Facts
from bramley.host.step import Advising, Confirming, Curious, Pending, Separable, Step, Tidying

# Of one step, whatever its commands are: each has a deadline of its own, and together they take no longer than this.
STEP_WITHIN = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """What one step would do; `refusal` says why it cannot."""

    step: Step
    commands: tuple[Command, ...] = ()
    refusal: str = ""
    pending: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What all steps would do to a Mac, from one look at it."""

    host: str
    steps: tuple[PlannedStep, ...]

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to do; something may still be waited for."""
        return not any(one.commands or one.refusal for one in self.steps)

    @property
    def pending(self) -> tuple[str, ...]:
        """Return what is waited for, each once."""
        return tuple(dict.fromkeys(one.pending for one in self.steps if one.pending))

    @property
    def advice(self) -> tuple[str, ...]:
        """Return what people should know, each once; it is for them to decide, so the Mac is as wanted with or without it."""
        return tuple(dict.fromkeys(one.advice for one in self.steps if one.advice))

    @property
    def is_as_wanted(self) -> bool:
        """Tell whether the Mac is as wanted, and nothing of it has yet to come into force."""
        return self.is_empty and not self.pending


@dataclass(frozen=True, slots=True)
class Began:
    """A step was begun, with so many commands to do."""

    step: Step
    commands: int


@dataclass(frozen=True, slots=True)
class Doing:
    """A command of a step is about to be done."""

    step: Step
    command: Command


@dataclass(frozen=True, slots=True)
class Ended:
    """A step is as wanted; `changed` counts what was done for it."""

    step: Step
    changed: int
    pending: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A step was refused, and the others go on without it."""

    step: Step
    refusal: str


Progress = Began | Doing | Ended | LeftOut
# What else there is to do, by what was applied to the Mac.
Then = Callable[[drift.Stamps], Sequence[Step]]


@dataclass(frozen=True, slots=True)
class Report:
    """What was done to a Mac: commands by step, what still waits, and what people should know."""

    host: str
    changed: dict[str, int] = field(default_factory=dict)
    pending: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Tell whether anything was done."""
        return any(self.changed.values())


async def plan(mac: Connection, steps: Sequence[Step], *, then: Then = lambda _: ()) -> Plan:
    """Return what is missing on a Mac; nothing is changed."""
    seen = await _look(mac, *steps)
    planned = _planned_all(mac, steps, seen)
    stamps = stamping.read(seen)
    if later := then(stamps):
        after = await _look(mac, *later)
        further = [_with_stamp(_planned(step, after), stamps) for step in later]
        planned = replace(planned, steps=(*planned.steps, *further))
    return planned


async def apply(
    mac: Connection,
    steps: Sequence[Step],
    *,
    tell: Callable[[Progress], None] = lambda _: None,
    claim: Claim | None = None,
    then: Then = lambda _: (),
    seen: Facts | None = None,
) -> Report:
    """Make a Mac as wanted, and tell how it goes; with a claim no other run works on it meanwhile, or this one stops.

    What was left out because it was refused is raised in the end, when everything else is done. `seen` is what `require` saw a moment
    ago: it saves a question if nothing is to be done, and whoever has something to do looks again.
    """
    run = _Applying(mac, tell, claim)
    if seen is None or not _planned_all(mac, steps, seen).is_empty:
        seen = await run.look(*steps)
    run.stamps = stamping.read(seen)
    await run.ensure_all(steps, seen)
    if later := then(run.stamps):
        await run.ensure_all(later, await run.look(*later))
    if run.left_out:
        raise errors.UnsupportedHost(f"{run.left_out}; all other steps were done")
    return Report(mac.host, run.changed, tuple(dict.fromkeys(run.pending)), tuple(run.advice))


async def do(mac: Connection, command: Command) -> str:
    """Do one command; a failure that another try would not mend is a refusal. Returns that of a command which may fail."""
    try:
        await mac.do(command)
    except errors.CommandFailed as error:
        if isinstance(command, Run) and command.refusal:
            raise errors.UnsupportedHost(command.refusal) from error
        if isinstance(command, Run) and command.else_go_on:
            return str(error).removeprefix(f"{mac.host}: ")
        raise
    return ""


async def require(mac: Connection, steps: Sequence[Step], *, also: Sequence[Probe] = ()) -> Facts:
    """Refuse what cannot be, as `apply` does at first, and return what was seen; nothing is changed.

    `also` are the questions of a step that cannot be made yet.
    """
    seen = await _look(mac, *steps, also=also)
    _refuse_all(mac, steps, seen)
    return seen


async def stamps_of(mac: Connection) -> drift.Stamps:
    """Return what was applied to a Mac, in one small question."""
    return stamping.read(await mac.look([stamping.FILE]))


@dataclass(slots=True)
class _Applying:
    """One run over the steps of one Mac."""

    mac: Connection
    tell: Callable[[Progress], None]
    claim: Claim | None = None
    is_claimed: bool = False
    stamps: drift.Stamps = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    begun_count: int = 0
    # Why a step was left out; empty if none was.
    left_out: str = ""
    # What a command of this step said that may fail; told only if the Mac is not as wanted in the end.
    in_vain: str = ""

    @property
    def changed_anything(self) -> bool:
        return self.begun_count > 0

    async def ensure_all(self, steps: Sequence[Step], seen: Facts) -> None:
        """Refuse what cannot be before anything is changed, then do step by step what is missing."""
        _refuse_all(self.mac, steps, seen)
        for step in steps:
            # What earlier steps did may have changed the answers to this one's questions.
            fresh = await self.look(step) if self.changed_anything else seen
            await self.ensure(step, fresh)

    async def ensure(self, step: Step, seen: Facts) -> None:
        """Do what a step's plan says, look whether it is done, and stamp its part."""
        self.in_vain = ""
        try:
            async with _deadline():
                step.refuse(seen)
                done = await self._do_all(step, seen)
                after = await self._verified(step) if done else seen
                done += await self._stamp(step)
        except errors.BramleyError as error:
            await self._tidy(step, error)
            told = named(step, self.mac, error, besides=(self.in_vain, self.left_out))
            if not (isinstance(error, errors.UnsupportedHost) and _is_separable(step, seen)):
                raise told from error
            self.left_out = str(told)
            self.tell(LeftOut(step, str(error)))
            return
        self.changed[step.name] = done
        waiting, advice = _words(step, after)
        if waiting:
            self.pending.append(waiting)
        if advice:
            self.advice.append(advice)
        self.tell(Ended(step, done, waiting, advice))

    async def _do_all(self, step: Step, seen: Facts) -> int:
        """Do what a plan says; a restart ends what it was made from, so what is missing after one is done, too."""
        commands = list(step.plan(seen))
        self.tell(Began(step, len(commands)))
        await self._do(step, commands)
        if any(isinstance(command, Reboot) for command in commands):
            later = list(step.plan(await self.look(step)))
            await self._do(step, later)
            commands += later
        return len(commands)

    async def _do(self, step: Step, commands: Sequence[Command]) -> None:
        # Whoever has no sudo yet cannot claim anything; what opens it changes nothing else.
        is_open = not any(getattr(command, "sudo_password", None) for command in commands)
        for command in commands:
            self.tell(Doing(step, command))
            if is_open and not isinstance(command, Wait):
                await self._hold()
            self.begun_count += 1
            self.in_vain = await do(self.mac, command) or self.in_vain

    async def look(self, *steps: Step) -> Facts:
        """Ask what steps want to know, and whose the Mac is."""
        seen = await _look(self.mac, *steps, also=(claiming.FILE,) if self.claim else ())
        if self.claim:
            self.claim = self.claim.heed(seen, is_held=self.is_claimed)
        return seen

    async def _hold(self) -> None:
        """Claim the Mac before its first change; before every other, see that it is still ours."""
        if self.claim is None:
            return
        if self.is_claimed:
            self.claim.heed(await self.mac.look([claiming.FILE]), is_held=True)
            return
        await self.mac.do(self.claim.write())
        self.is_claimed = True

    async def _tidy(self, step: Step, error: errors.BramleyError) -> None:
        """Take away what must not stay after a failure; where the line is lost, the next plan does."""
        if isinstance(error, errors.HostUnreachable) or not isinstance(step, Tidying):
            return
        if isinstance(error, errors.Conflict):
            # What lies there is the other run's by now.
            return
        for command in step.tidy():
            with contextlib.suppress(errors.BramleyError):
                await self.mac.do(command)

    async def _verified(self, step: Step) -> Facts:
        after = await self.look(step)
        if isinstance(step, Confirming):
            step.confirm(after)
        step.refuse(after)
        if left := [command.purpose for command in step.plan(after)]:
            raise errors.NotConverged(
                f"all was done, and the Mac is still not as wanted; still to do: {'; '.join(left)}. "
                "Look whether something else on this Mac changes it back"
            )
        return after

    async def _stamp(self, step: Step) -> int:
        part = step.wanted()
        if part is None or self.stamps.get(part.part) == part.stamp:
            return 0
        self.stamps = drift.applied(self.stamps, part)
        await self._hold()
        self.begun_count += 1
        for command in stamping.write(self.stamps):
            await self.mac.do(command)
        return 1


@contextlib.asynccontextmanager
async def _deadline() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(STEP_WITHIN.total_seconds()):
            yield
    except TimeoutError as error:
        minutes = STEP_WITHIN.total_seconds() / 60
        raise errors.TimedOut(
            f"not done within {minutes:.0f} minutes; run it again, it goes on where it was"
        ) from error


async def _look(mac: Connection, *steps: Step, also: Sequence[Probe] = ()) -> Facts:
    wanted = {probe: None for step in steps for probe in step.looks()}
    seen = await mac.look([stamping.FILE, *also, *wanted])
    curious = [step for step in steps if isinstance(step, Curious)]
    further = {probe: None for step in curious for probe in step.looks_further(seen)}
    return seen.and_then(await mac.look(list(further))) if further else seen


def _is_separable(step: Step, seen: Facts) -> bool:
    return isinstance(step, Separable) and step.is_separable(seen)


def _refuse_all(mac: Connection, steps: Sequence[Step], seen: Facts) -> None:
    for step in steps:
        if not _is_separable(step, seen):
            _refuse(mac, step, seen)


def _refuse(mac: Connection, step: Step, seen: Facts) -> None:
    try:
        step.refuse(seen)
    except errors.BramleyError as error:
        raise named(step, mac, error) from error


def _planned_all(mac: Connection, steps: Sequence[Step], seen: Facts) -> Plan:
    stamps = stamping.read(seen)
    return Plan(mac.host, tuple(_with_stamp(_planned(step, seen), stamps) for step in steps))


def _planned(step: Step, seen: Facts) -> PlannedStep:
    try:
        step.refuse(seen)
    except errors.Refused as error:
        return PlannedStep(step, refusal=str(error))
    waiting, advice = _words(step, seen)
    return PlannedStep(step, tuple(step.plan(seen)), pending=waiting, advice=advice)


def _words(step: Step, seen: Facts) -> tuple[str, str]:
    """Return what a step waits for, and what it advises."""
    waiting = step.pending(seen) if isinstance(step, Pending) else ""
    return waiting, step.advice(seen) if isinstance(step, Advising) else ""


def _with_stamp(one: PlannedStep, stamps: drift.Stamps) -> PlannedStep:
    part = one.step.wanted()
    if one.refusal or part is None or stamps.get(part.part) == part.stamp:
        return one
    stamped = stamping.write(drift.applied(stamps, part))
    return replace(one, commands=(*one.commands, *stamped))


def named(
    step: Step, mac: Connection, error: errors.BramleyError, *, besides: Sequence[str] = ()
) -> errors.BramleyError:
    """Return the error with the names of the host and the step in front; its kind stays, since callers act on it."""
    told = str(error).removeprefix(f"{mac.host}: ")
    earlier = "".join(f"; besides, {one.removeprefix(f'{mac.host}: ')}" for one in besides if one)
    again = type(error).__new__(type(error), *error.args)
    again.__dict__.update(error.__dict__)
    again.args = (f"{mac.host}: step {step.name}: {told}{earlier}",)
    return again
