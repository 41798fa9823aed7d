"""The results of the runs: warm capacity over time, delayed jobs and durations, compared with the goals. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.report import Report

NO_ROLL, STAGGERED, CAPPED, STAGED = "no roll", "staggered drain", "capped roll", "staged roll"
# A job that waits longer than this counts as delayed.
DELAY_SECONDS = 60
# The series that are shown have one value for each period.
PERIOD_SECONDS = 600

Series = Sequence[tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: `ready` has the seconds since the roll began and the number of Ready Pods from then on."""

    strategy: str
    replicas: int
    limit_seconds: float
    # None if the roll did not end.
    seconds: float | None
    jobs: int
    delayed: int
    lost: int
    longest_wait_seconds: float
    ready: Series

    @property
    def lowest_percent(self) -> float:
        """Return the lowest warm capacity in percent of the replicas."""
        return 100 * min(count for _, count in self.ready) / self.replicas

    @property
    def mean_percent(self) -> float:
        """Return the mean warm capacity over the run in percent of the replicas."""
        ends = [at for at, _ in self.ready[1:]] + [self.end]
        spans = zip(self.ready, ends, strict=True)
        area = sum(count * max(0.0, end - at) for (at, count), end in spans)
        return 100 * area / self.replicas / max(self.end, 1.0)

    @property
    def end(self) -> float:
        """Return how many seconds the run lasted."""
        return self.seconds if self.seconds is not None else self.ready[-1][0]

    @property
    def time_ratio(self) -> float:
        """Return the duration of the roll divided by what the bandwidth allows; infinite if it did not end."""
        return float("inf") if self.seconds is None else self.seconds / self.limit_seconds

    def lowest_per(self, period: float) -> list[tuple[float, float]]:
        """Return the lowest warm capacity of each period: its end in seconds, and percent."""
        points: list[tuple[float, float]] = []
        current, position, begin = self.ready[0][1], 0, 0.0
        while begin < self.end:
            end, lowest = begin + period, current
            while position < len(self.ready) and self.ready[position][0] < end:
                current = self.ready[position][1]
                lowest = min(lowest, current)
                position += 1
            points.append((min(end, self.end), 100 * lowest / self.replicas))
            begin = end
        return points


def since(ready: Series, began: float, ended: float) -> list[tuple[float, int]]:
    """Return the part of a series between two moments, with times since the first."""
    before = [count for at, count in ready if at <= began]
    inside = [(at - began, count) for at, count in ready if began < at <= ended]
    return [(0.0, before[-1] if before else 0), *inside]


DIP, DELAYED, TIME = (
    "dip of the staged roll, points below no roll",
    "jobs that the staged roll delayed",
    "time of the staged roll / bandwidth limit",
)


def goals(cap_percent: int) -> dict[str, tuple[str, Callable[[float], bool]]]:
    """Return the goals: as text, and as a test of the found value."""
    return {
        DIP: (f"≤ {cap_percent}", lambda points: points <= cap_percent),
        DELAYED: ("0", lambda jobs: jobs <= 0),
        TIME: ("≤ 1.2", lambda ratio: ratio <= 1.2),
    }


def ratios(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """Return the values that are compared with goals, and those of the other strategies."""
    quiet, staged = outcomes[NO_ROLL], outcomes[STAGED]
    # Without a roll the same jobs arrive for a longer or shorter time, so the share of delayed ones counts.
    expected = quiet.delayed / max(quiet.jobs, 1) * staged.jobs
    found = {
        DIP: quiet.lowest_percent - staged.lowest_percent,
        DELAYED: max(0.0, staged.delayed - expected),
        TIME: staged.time_ratio,
    }
    for name, outcome in outcomes.items():
        found[f"lowest warm capacity %, {name}"] = outcome.lowest_percent
    for name in (STAGGERED, CAPPED):
        found[f"jobs delayed beyond {DELAY_SECONDS} s, {name}"] = outcomes[name].delayed
        found[f"time / bandwidth limit, {name}"] = outcomes[name].time_ratio
    return {name: round(value, 3) for name, value in found.items()}


def report(
    outcomes: Mapping[str, Outcome], *, cap_percent: int, figures: Mapping[str, Any]
) -> Report:
    """Return the table of all strategies, and the goals of the staged roll."""
    found, targets = ratios(outcomes), goals(cap_percent)
    columns = (
        "",
        "lowest warm",
        "mean warm",
        "jobs",
        f"delayed > {DELAY_SECONDS} s",
        "time / limit",
    )
    return Report(
        bench="roll",
        columns=columns,
        rows=[row(outcome) for outcome in outcomes.values()],
        ratios=found,
        figures={**figures, "strategies": {name: details(each) for name, each in outcomes.items()}},
        goals={name: text for name, (text, _) in targets.items()},
        met={name: is_met(found[name]) for name, (_, is_met) in targets.items()},
    )


def row(outcome: Outcome) -> tuple[str, ...]:
    """Return the row of one strategy."""
    time = "" if outcome.strategy == NO_ROLL else f"{outcome.time_ratio:.2f}"
    return (
        outcome.strategy,
        f"{outcome.lowest_percent:.1f} %",
        f"{outcome.mean_percent:.1f} %",
        str(outcome.jobs),
        str(outcome.delayed),
        time,
    )


def details(outcome: Outcome) -> dict[str, Any]:
    """Return all numbers of one run, with the lowest warm capacity of each period."""
    series = [(round(at), round(percent, 1)) for at, percent in outcome.lowest_per(PERIOD_SECONDS)]
    return {**asdict(outcome), "ready": series}
