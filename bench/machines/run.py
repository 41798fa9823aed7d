"""One run: machines at rest, the roll of a fleet, the same with a copy of the artifacts per call, and the goals."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.apiserver.servers import process_folder
from bench.machines import measurements
from bench.machines.measurements import Rest, Roll
from bench.machines.stage import staged
from bench.report import Report
from bench.streaming import memory
from bench.streaming.artifacts import MEGABYTE

SIZE = 96 * MEGABYTE
FEW = 10
# One list of a zone per interval of 30 seconds.
LISTS_PER_HOUR = 120
# Of deletions before a roll.
_SECONDS_BEFORE = 30.0
REQUESTS = "API requests per machine and hour at rest"
LISTS = "lists of the zone per hour at rest"
ABOVE = "RSS above idle MB, roll of a fleet"
DELETION = "p99 seconds of a deletion meanwhile"
GOALS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    REQUESTS: ("≤ 20", lambda requests: requests <= 20),
    LISTS: (f"≤ {LISTS_PER_HOUR}", lambda lists: lists <= LISTS_PER_HOUR),
    ABOVE: ("≤ 64", lambda megabytes: megabytes <= 64),
    DELETION: ("≤ 1", lambda seconds: seconds <= 1),
}


@dataclass(frozen=True, slots=True)
class Results:
    """All measurements of one run."""

    rest: Rest | None
    roll: Roll | None
    copies: Roll | None
    size: int
    load: float = 0.0
    is_undisturbed: bool = False

    def ratios(self) -> dict[str, float]:
        """Return the values with goals, and what explains them."""
        values: dict[str, float] = {}
        if self.rest is not None:
            values |= {
                REQUESTS: self.rest.requests_per_machine_hour,
                LISTS: self.rest.lists_per_hour,
                "the same, one list per machine and reconcile": self.rest.reconciles_per_hour,
                f"RSS MB with {self.rest.machines} machines": self.rest.resident / MEGABYTE,
                "CPU % at rest": self.rest.cpu_percent,
            }
        if self.roll is not None:
            values |= {
                ABOVE: self.roll.above_idle / MEGABYTE,
                DELETION: _quantile(self.roll.deletions, 0.99),
                "median seconds of a deletion meanwhile": _quantile(self.roll.deletions, 0.5),
                "p99 seconds of a deletion before": _quantile(self.roll.deletions_before, 0.99),
                f"seconds of the roll, {self.roll.hosts} hosts": self.roll.seconds,
            }
        if self.copies is not None:
            name = f"RSS above idle MB, roll of {self.copies.hosts} hosts, a copy per call"
            values[name] = self.copies.above_idle / MEGABYTE
        return {name: round(value, 3) for name, value in values.items()}

    def report(self) -> Report:
        """Return the values, with the goals and whether they are met."""
        ratios = self.ratios()
        goals = {name: text for name, (text, _) in GOALS.items() if name in ratios}
        met = {name: GOALS[name][1](ratios[name]) for name in goals}
        rows = [
            (name, f"{value:.2f}", goals.get(name, ""), _verdict(met.get(name)))
            for name, value in ratios.items()
        ]
        columns = ("", "found", "goal", "")
        return Report("machines", columns, rows, ratios, self.figures(), goals, met)

    def figures(self) -> Mapping[str, Any]:
        """Return all measured values."""
        return {
            "bytes": self.size,
            "rest": self.rest and asdict(self.rest),
            "roll": self.roll and asdict(self.roll),
            "a copy per call": self.copies and asdict(self.copies),
            "load": round(self.load, 2),
            "undisturbed": self.is_undisturbed,
        }


def _quantile(values: Sequence[float], part: float) -> float:
    """Return a value that at most this part of the sorted values reach."""
    return values[min(int(part * len(values)), len(values) - 1)]


def _verdict(met: bool | None) -> str:  # noqa: FBT001 - the only argument
    return {True: "met", False: "MISSED", None: ""}[met]


def run(arguments: Sequence[str]) -> Report:
    """Run all measurements, or those that are selected."""
    options = _parse(arguments)
    if options.undisturbed:
        # Inherited by all child processes.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    return asyncio.run(_measure(options)).report()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench machines",
        description="The machine controller with many machines at rest, and during the update of a whole fleet over SSH.",
        epilog="The hosts of the roll are real SSH servers whose Macs are models: they read the scripts, answer without a shell, verify all "
        "streamed bytes and drop them. The worst case is configured: all hosts of the fleet at once, after the first one. At rest nothing "
        "but the manager uses the API: no agents, and none of a cluster's controllers.",
    )
    parser.add_argument("--machines", type=int, default=500, help="machines at rest")
    parser.add_argument("--hosts", type=int, default=100, help="hosts of the roll")
    parser.add_argument(
        "--seconds",
        type=float,
        default=300.0,
        help="duration of the measurement at rest; every machine is reconciled once in 300 seconds",
    )
    parser.add_argument("--only", choices=("rest", "roll", "copies"), help="measure only this")
    parser.add_argument(
        "--undisturbed",
        action="store_true",
        help="run with real-time priority, as on an idle machine; needs root",
    )
    options = parser.parse_args(arguments)
    if not memory.is_supported():
        parser.error("memory is read from Linux's /proc, which this system does not have")
    return options


async def _measure(options: argparse.Namespace) -> Results:
    rest = await _rest(options) if options.only in {None, "rest"} else None
    copies = await _roll(FEW, copy_per_call=True) if options.only in {None, "copies"} else None
    roll = await _roll(options.hosts) if options.only in {None, "roll"} else None
    return Results(rest, roll, copies, SIZE, os.getloadavg()[0], options.undisturbed)


async def _rest(options: argparse.Namespace) -> Rest:
    show(f"measuring {options.machines} machines at rest for {options.seconds:.0f} s")
    with process_folder("machines") as folder:
        async with staged(folder, options.machines, MEGABYTE) as stage:
            return await measurements.measure_rest(stage, options.seconds)


async def _roll(hosts: int, *, copy_per_call: bool = False) -> Roll:
    way = " with a copy per call" if copy_per_call else ""
    show(f"rolling {hosts} hosts with {SIZE / MEGABYTE:.0f} MB{way}")
    with process_folder("machines") as folder:
        async with staged(folder, hosts, SIZE) as stage:
            return await measurements.measure_roll(
                stage, copy_per_call=copy_per_call, seconds_before=_SECONDS_BEFORE
            )


def show(line: str) -> None:
    """Print progress to stderr; the results go to stdout."""
    print(line, file=sys.stderr, flush=True)
