"""Converge a Mac: probe all steps in one round trip, plan, then apply step by step.

A step is done when its plan, computed from fresh facts, is empty; then, and only then, its part is stamped. After an interruption the
next run starts with fresh facts. A Mac is rebooted at most once in a run; what needs another boot is pending. Of two concurrent runs
the later one continues. Unsupported Macs are refused before any change, except by a skippable step: it is left out, and the run fails
after all other steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bramley.base import errors
from bramley.host import drift
from bramley.host.claim import Claim
from bramley.host.commands import Command, Probe, Wait
from bramley.host.connection import Connection
from bramley.host.facts import Facts
from bramley.host.progress import OnProgress, Plan, PlannedStep, Report
from bramley.host.step import Step
from bramley.host.step_runner import (
    StepRunner,
    check_supported,
    notices,
    probe_all,
    refusal_of,
)

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
    facts = replace(await probe_all(mac, *steps), no_reboot=no_reboot)
    planned = _plan_all(mac, steps, facts)
    stamps = drift.read_stamps(facts)
    if later := later_steps(stamps):
        later_facts = replace(await probe_all(mac, *later), no_reboot=no_reboot)
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
    run = StepRunner(mac, on_progress, claim, no_reboot=no_reboot)
    facts = replace(facts, no_reboot=no_reboot) if facts else None
    if facts is None or not _plan_all(mac, steps, facts).is_empty:
        # Also reads the claim, which earlier facts do not contain.
        facts = await run.probe(*steps)
        if run.foreign_claim and _changes(_plan_all(mac, steps, facts)):
            check_supported(mac, steps, facts)
            facts = await run.take_over(steps)
    run.stamps = drift.read_stamps(facts)
    await run.ensure_all(steps, facts)
    if later := later_steps(run.stamps):
        await run.ensure_all(later, await run.probe(*later))
    if run.skipped:
        raise errors.UnsupportedHost(f"{run.skipped}; all other steps were done")
    pending = tuple(dict.fromkeys(run.pending))
    return Report(mac.host, run.changed, pending, tuple(run.advice), run.reboot)


async def execute(mac: Connection, command: Command) -> None:
    """Execute one command; a permanent failure is raised as a refusal."""
    try:
        await mac.execute(command)
    except errors.CommandFailed as error:
        raise refusal_of(command, error) from error


async def check_all(mac: Connection, steps: Sequence[Step], *, also: Sequence[Probe] = ()) -> Facts:
    """Refuse an unsupported Mac, as `apply` does first, and return the facts; nothing is changed.

    `also` are the probes of a step that cannot be built yet.
    """
    facts = await probe_all(mac, *steps, also=also)
    check_supported(mac, steps, facts)
    return facts


def _changes(planned: Plan) -> bool:
    """Return whether a plan changes a Mac on which commands need no password."""
    commands = [command for step in planned.steps for command in step.commands]
    changes = any(not isinstance(command, Wait) for command in commands)
    return changes and not any(getattr(command, "sudo_password", None) for command in commands)


def _plan_all(mac: Connection, steps: Sequence[Step], facts: Facts) -> Plan:
    stamps = drift.read_stamps(facts)
    return Plan(mac.host, tuple(_with_stamp(_plan_step(step, facts), stamps) for step in steps))


def _plan_step(step: Step, facts: Facts) -> PlannedStep:
    try:
        step.check_supported(facts)
    except errors.Refused as error:
        return PlannedStep(step, refusal=str(error))
    pending, advice = notices(step, facts)
    return PlannedStep(step, tuple(step.plan(facts)), pending=pending, advice=advice)


def _with_stamp(planned: PlannedStep, stamps: drift.Stamps) -> PlannedStep:
    part = planned.step.desired()
    if planned.refusal or part is None or stamps.get(part.part) == part.stamp:
        return planned
    stamp = drift.write_stamps(drift.with_part(stamps, part))
    return replace(planned, commands=(*planned.commands, *stamp))
