"""One run: start the agent several times, run Pods, measure it idle, and compare the medians with the goals."""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.agent import measurements
from bench.agent.measurements import Idle, PodLatency
from bench.agent.stage import BRIEF, LONG, Stage, staged
from bench.apiserver.servers import ProcessFolder, process_folder
from bench.report import Report

# The Go agent that this one replaces, on the Macs of its fleet.
REFERENCE_MB = 46.0
RSS, CPU = "agent RSS MB", "CPU % at rest"
RUN, STATUS = "bound to run ms", "exit to status ms"
GOALS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    RSS: ("≤ 50", lambda megabytes: megabytes <= 50),
    CPU: ("< 1", lambda percent: percent < 1),
    RUN: ("≤ 200", lambda milliseconds: milliseconds <= 200),
    STATUS: ("≤ 100", lambda milliseconds: milliseconds <= 100),
}


@dataclass(frozen=True, slots=True)
class Results:
    """All measurements of one run."""

    starts: Sequence[float]
    lives: Sequence[PodLatency]
    idle: Idle
    load: float = 0.0
    is_undisturbed: bool = False

    def ratios(self) -> dict[str, float]:
        """Return the values that are compared with goals, and the agent's size relative to its predecessor's."""
        resident = self.idle.agent_bytes / 1e6
        ratios = {
            RSS: resident,
            "agent RSS, of the Go agent's": resident / REFERENCE_MB,
            "supervisors RSS MB": self.idle.supervisor_bytes / 1e6,
            CPU: self.idle.cpu_percent,
            RUN: 1000 * statistics.median(life.bound_to_run for life in self.lives),
            STATUS: 1000 * statistics.median(life.exit_to_status for life in self.lives),
            "first start to Ready s": self.starts[0],
            "next start to Ready s": statistics.median(self.starts[1:] or self.starts),
        }
        return {name: round(value, 3) for name, value in ratios.items()}

    def report(self) -> Report:
        """Return the values with the goals and whether they are met."""
        ratios = self.ratios()
        met = {name: is_met(ratios[name]) for name, (_, is_met) in GOALS.items()}
        goals = {name: text for name, (text, _) in GOALS.items()}
        rows = [
            (name, f"{value:.2f}", goals.get(name, ""), _verdict(met.get(name)))
            for name, value in ratios.items()
        ]
        return Report(
            "agent", ("", "found", "goal", ""), rows, ratios, self.measurements(), goals, met
        )

    def measurements(self) -> Mapping[str, Any]:
        """Return all raw measurements."""
        return {
            "starts": self.starts,
            "lives": [asdict(life) for life in self.lives],
            "idle": asdict(self.idle),
            "reference_mb": REFERENCE_MB,
            "load": round(self.load, 2),
            "undisturbed": self.is_undisturbed,
        }


def _verdict(met: bool | None) -> str:  # noqa: FBT001 - the only argument
    return {True: "met", False: "MISSED", None: ""}[met]


def report_progress(line: str) -> None:
    """Print the progress to stderr."""
    print(line, file=sys.stderr, flush=True)


def run(arguments: Sequence[str]) -> Report:
    """Measure everything and compare it with the goals."""
    parser = argparse.ArgumentParser(prog="python -m bench agent")
    parser.add_argument("--rounds", type=int, default=7, help="number of Pods; the median counts")
    parser.add_argument("--starts", type=int, default=3, help="number of starts of the agent")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="duration of the idle measurement"
    )
    parser.add_argument(
        "--undisturbed",
        action="store_true",
        help="run with real-time priority, as on an idle machine; needs root",
    )
    options = parser.parse_args(arguments)
    if options.undisturbed:
        # Inherited by all child processes: server, agent, tart and VMs.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    with process_folder("agent") as folder:
        return asyncio.run(_measure(folder, options)).report()


async def _measure(folder: ProcessFolder, options: argparse.Namespace) -> Results:
    async with staged(folder) as on:
        report_progress("starting the agent")
        starts = [await _start(on) for _ in range(options.starts)]
        report_progress("pulling images")
        for image in (BRIEF, LONG):
            await _warm_up(on, image)
        lives = []
        for number in range(options.rounds):
            report_progress(f"measuring Pod {number + 1} of {options.rounds}")
            lives.append(await measurements.measure_pod(on, f"pod-{number}", BRIEF))
        report_progress(f"measuring {options.seconds:g} s at rest")
        idle = await measurements.measure_idle(on, seconds=options.seconds)
        return Results(starts, lives, idle, os.getloadavg()[0], options.undisturbed)


async def _start(on: Stage) -> float:
    on.stop()
    return await on.start()


async def _warm_up(on: Stage, image: str) -> None:
    """Pull the image and make its golden base."""
    await on.create("warm-up", image)
    await on.wait_for_pod("warm-up", lambda pod: pod.status.phase == "Running")
    await on.remove("warm-up")
