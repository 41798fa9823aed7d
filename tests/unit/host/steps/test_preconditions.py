"""Preconditions: a Mac that cannot become a Node is refused with all reasons and remedies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from bramley.host import converge
from bramley.host.commands import Command, Probe
from bramley.host.connection import Batch, BatchResult, OnStarted
from bramley.host.facts import Facts, RunResult
from bramley.host.step import Step
from bramley.host.steps.preconditions import TIME, Limits, Preconditions
from tests.unit.host.steps import cases
from tests.unit.host.steps.cases import Case


@dataclass(frozen=True)
class FixedClock:
    """A clock that stands still."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0


STEP: Step = Preconditions("m1", FixedClock())


@pytest.mark.parametrize("case", cases.load("preconditions"), ids=str)
def test_plan_matches_case(case: Case) -> None:
    case.check(STEP)


@dataclass
class SlowMac:
    """Returns the time of two minutes ago if probed for more than the time; with `is_wrong` its clock is really behind."""

    facts: Facts
    is_wrong: bool = False
    host: str = "mac-1"

    async def probe(self, probes: Collection[Probe]) -> Facts:
        is_old = self.is_wrong or len(probes) > 1
        now = int(FixedClock().now().timestamp()) - (120 if is_old else 0)
        time = Facts({TIME: RunResult(0, str(now).encode())})
        answers = self.facts.merged(time).results
        return Facts({probe: answers.get(probe) for probe in probes})

    async def execute(self, command: Command) -> None:
        raise AssertionError(command)

    async def execute_all(
        self, batch: Batch, *, on_started: OnStarted = lambda _: None
    ) -> BatchResult:
        raise AssertionError(batch, on_started)


@pytest.mark.parametrize("is_wrong", [False, True])
async def test_slow_answer_does_not_count_as_clock_skew(is_wrong: bool) -> None:
    mac = SlowMac(cases.load("preconditions")[0].facts(STEP), is_wrong)
    (planned,) = (await converge.plan(mac, [STEP])).steps
    assert ("the clock of the Mac is 120 s behind" in planned.refusal) is is_wrong
    assert bool(planned.refusal) is is_wrong


def test_limits_are_configurable() -> None:
    converged = cases.load("preconditions")[0]
    strict = Case(
        name="strict",
        converged=converged.converged,
        refused="macOS 26.3 is older than 27.1, the first",
    )

    strict.check(Preconditions("m1", FixedClock(), Limits(oldest_macos=(27, 1))))
