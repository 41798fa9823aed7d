"""Preconditions: a Mac that cannot become a Node is refused with all reasons, and what to do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from bramley.host import ensuring
from bramley.host.commands import Command, Probe
from bramley.host.facts import Facts, Said
from bramley.host.step import Step
from bramley.host.steps.preconditions import TIME, Limits, Preconditions
from tests.unit.host.steps import cases
from tests.unit.host.steps.cases import Case


@dataclass(frozen=True)
class NewYear:
    """A clock that stands still."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0


STEP: Step = Preconditions("m1", NewYear())


@pytest.mark.parametrize("case", cases.load("preconditions"), ids=str)
def test_a_mac_is_taken_or_refused(case: Case) -> None:
    case.check(STEP)


@dataclass
class SlowMac:
    """Tells the time of two minutes ago where many questions are asked at once; its clock may be as wrong as that."""

    seen: Facts
    is_wrong: bool = False
    host: str = "mac-1"

    async def look(self, probes: Collection[Probe]) -> Facts:
        is_old = self.is_wrong or len(probes) > 1
        now = int(NewYear().now().timestamp()) - (120 if is_old else 0)
        time = Facts({TIME: Said(0, str(now).encode())})
        answers = self.seen.and_then(time).answers
        return Facts({probe: answers.get(probe) for probe in probes})

    async def do(self, command: Command) -> None:
        raise AssertionError(command)


@pytest.mark.parametrize("is_wrong", [False, True])
async def test_a_mac_that_takes_long_to_answer_is_not_taken_for_one_whose_clock_is_wrong(
    is_wrong: bool,
) -> None:
    mac = SlowMac(cases.load("preconditions")[0].facts(STEP), is_wrong)
    (planned,) = (await ensuring.plan(mac, [STEP])).steps
    assert ("the clock of the Mac is 120 s behind" in planned.refusal) is is_wrong
    assert bool(planned.refusal) is is_wrong


def test_the_limits_can_be_set() -> None:
    right = cases.load("preconditions")[0]
    strict = Case(
        name="strict", right=right.right, refused="macOS 26.3 is older than 27.1, the first"
    )

    strict.check(Preconditions("m1", NewYear(), Limits(oldest_macos=(27, 1))))
