"""One run per strategy with the same jobs, each in one process; then the table, the goals and the chart."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

from bench.report import Report
from bench.roll import chart, results
from bench.roll.chart import Chart, Line
from bench.roll.fleet import NEW, Fleet, Scenario, a_fleet
from bench.roll.results import CAPPED, NO_ROLL, STAGED, STAGGERED, Outcome
from bench.roll.strategies import Bramley, Capped, ExistingController, Staggered, Strategy
from bramley.sim.fleet.jobs import delayed
from tests import virtual_time

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
COLOURS = {STAGGERED: "#cf222e", CAPPED: "#bf8700", STAGED: "#1a7f37"}
# How much longer than the bandwidth allows a roll may take before it counts as stuck.
PATIENCE = 3.0
_CHECK_SECONDS = 60.0
# In the order of the table.
_STRATEGIES: Mapping[str, Callable[[Scenario], Strategy]] = {
    NO_ROLL: lambda scenario: ExistingController(Capped(scenario.cap)),
    STAGGERED: lambda _: ExistingController(Staggered()),
    CAPPED: lambda scenario: ExistingController(Capped(scenario.cap)),
    STAGED: lambda _: Bramley(),
}


def run(arguments: Sequence[str]) -> Report:
    """Run all strategies and compare the staged roll with the goals."""
    parser = argparse.ArgumentParser(prog="python -m bench roll")
    parser.add_argument("--seed", type=int, default=1, help="the seed of jobs and boot times")
    parser.add_argument("--hosts", type=int, default=200, help="number of hosts, one Pod each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--plot", action="store_true", help="write the chart to docs/figures")
    options = parser.parse_args(arguments)
    scenario = Scenario(hosts=options.hosts, seed=options.seed)
    with ProcessPoolExecutor(options.jobs) as pool:
        # The staged roll takes longest, so it starts first.
        futures = {
            name: pool.submit(simulate, scenario, name) for name in reversed(tuple(_STRATEGIES))
        }
        outcomes = {name: futures[name].result() for name in _STRATEGIES}
    if options.plot:
        for file in chart.write(a_chart(scenario, outcomes), FIGURES, "roll-capacity").values():
            report_progress(f"wrote {file.name}")
    figures = {"scenario": {key: str(value) for key, value in asdict(scenario).items()}}
    return results.report(outcomes, cap_percent=scenario.cap_percent, figures=figures)


def simulate(scenario: Scenario, strategy: str) -> Outcome:
    """Run one strategy under virtual time."""
    report_progress(f"running {strategy}")
    outcome = virtual_time.run(_measure(scenario, strategy), seed=scenario.seed)
    report_progress(f"finished {strategy}")
    return outcome


async def _measure(scenario: Scenario, name: str) -> Outcome:
    strategy = _STRATEGIES[name](scenario)
    async with a_fleet(scenario) as fleet:
        await fleet.create_pool()
        async with strategy.running(fleet):
            await asyncio.sleep(scenario.warm_up.total_seconds())
            began = fleet.clock.monotonic()
            if name == NO_ROLL:
                await asyncio.sleep(scenario.bandwidth_limit.total_seconds())
                ended: float | None = fleet.clock.monotonic()
            else:
                await strategy.roll(fleet)
                ended = await _await_end(fleet, began)
            return _outcome(fleet, name, began, ended)


async def _await_end(fleet: Fleet, began: float) -> float | None:
    """Wait until no Pod is stale and every host has the new image; return when that was."""
    limit = began + PATIENCE * fleet.scenario.bandwidth_limit.total_seconds()
    while fleet.clock.monotonic() < limit:
        await asyncio.sleep(_CHECK_SECONDS)
        hosts = fleet.hosts.hosts.values()
        if not fleet.observer.stale() and all(NEW in host.images.on_disk for host in hosts):
            return fleet.clock.monotonic()
    return None


def _outcome(fleet: Fleet, name: str, began: float, ended: float | None) -> Outcome:
    scenario, now = fleet.scenario, fleet.clock.now()
    start = now - timedelta(seconds=fleet.clock.monotonic() - began)
    jobs = [job for job in fleet.jobs.jobs if job.queued_at >= start]
    late = delayed(jobs, beyond=timedelta(seconds=results.DELAY_SECONDS), now=now)
    waits = [job.delay(now).total_seconds() for job in jobs]
    return Outcome(
        strategy=name,
        replicas=scenario.hosts,
        limit_seconds=scenario.bandwidth_limit.total_seconds(),
        seconds=None if ended is None else ended - began,
        jobs=len(jobs),
        delayed=len(late),
        lost=sum(job.lost for job in jobs),
        longest_wait_seconds=max(waits, default=0.0),
        ready=results.since(fleet.observer.ready, began, fleet.clock.monotonic()),
    )


def a_chart(scenario: Scenario, outcomes: Mapping[str, Outcome]) -> Chart:
    """Return the chart of warm capacity over time."""
    lines = [
        Line(
            name,
            curve(outcomes[name]),
            colour,
            # Drawn first and wider, so that it shows where it has the same values as the next one.
            width=4.5 if name == STAGGERED else 2.0,
        )
        for name, colour in COLOURS.items()
    ]
    longest = max(outcomes[name].end for name in COLOURS)
    gigabytes = scenario.image_bytes / 1e9
    return Chart(
        title="Warm capacity while a new image is rolled out",
        subtitle=(
            f"{scenario.hosts} Macs behind one uplink of {scenario.bytes_per_second * 8 / 1e9:g} Gbit/s, "
            f"an image of {gigabytes:g} GB, jobs on {100 * scenario.busy_share:g} % of the Macs; "
            "lowest share of Ready runners in 10 minutes"
        ),
        lines=lines,
        hours=int(longest // 3600) + 1,
        mark=100 - scenario.cap_percent,
        mark_text=f"cap of {scenario.cap_percent} %",
    )


def curve(outcome: Outcome) -> list[tuple[float, float]]:
    """Return the line of one run: hours, and the lowest warm capacity of each period in percent."""
    first = (0.0, 100 * outcome.ready[0][1] / outcome.replicas)
    points = outcome.lowest_per(results.PERIOD_SECONDS)
    return [first, *((at / 3600, percent) for at, percent in points)]


def report_progress(line: str) -> None:
    """Print the progress to stderr."""
    print(line, file=sys.stderr, flush=True)
