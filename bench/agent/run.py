"""One run: start the agent a few times, let Pods live and end, then let it rest; medians, and the verdict."""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.agent import measuring
from bench.agent.measuring import Idle, Life
from bench.agent.stage import BRIEF, LONG, Stage, staged
from bench.apiserver.servers import ProcessFolder, process_folder
from bench.report import Report

# The agent in Go that this one takes the place of, on the Macs of its fleet.
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
class Found:
    """All figures of one run."""

    starts: Sequence[float]
    lives: Sequence[Life]
    idle: Idle
    load: float = 0.0
    is_undisturbed: bool = False

    def ratios(self) -> dict[str, float]:
        """Return what goals are held to, and the agent's size beside its predecessor's."""
        resident = self.idle.agent_bytes / 1e6
        found = {
            RSS: resident,
            "agent RSS, of the Go agent's": resident / REFERENCE_MB,
            "supervisors RSS MB": self.idle.supervisor_bytes / 1e6,
            CPU: self.idle.cpu_percent,
            RUN: 1000 * statistics.median(life.bound_to_run for life in self.lives),
            STATUS: 1000 * statistics.median(life.exit_to_status for life in self.lives),
            "first start to Ready s": self.starts[0],
            "next start to Ready s": statistics.median(self.starts[1:] or self.starts),
        }
        return {name: round(value, 3) for name, value in found.items()}

    def report(self) -> Report:
        """Return the figures with the goals and what became of them."""
        ratios = self.ratios()
        met = {name: is_met(ratios[name]) for name, (_, is_met) in GOALS.items()}
        told = {name: words for name, (words, _) in GOALS.items()}
        rows = [
            (name, f"{value:.2f}", told.get(name, ""), _verdict(met.get(name)))
            for name, value in ratios.items()
        ]
        return Report("agent", ("", "found", "goal", ""), rows, ratios, self.figures(), told, met)

    def figures(self) -> Mapping[str, Any]:
        """Return every figure as it was measured."""
        return {
            "starts": self.starts,
            "lives": [asdict(life) for life in self.lives],
            "idle": asdict(self.idle),
            "reference_mb": REFERENCE_MB,
            "load": round(self.load, 2),
            "undisturbed": self.is_undisturbed,
        }


def _verdict(met: bool | None) -> str:  # noqa: FBT001 - there is nothing else to tell
    return {True: "met", False: "MISSED", None: ""}[met]


def say(line: str) -> None:
    """Tell how far it is, beside the results."""
    print(line, file=sys.stderr, flush=True)


def run(arguments: Sequence[str]) -> Report:
    """Measure everything and judge it."""
    options = argparse.ArgumentParser(prog="python -m bench agent")
    options.add_argument("--rounds", type=int, default=7, help="how many Pods; the median counts")
    options.add_argument("--starts", type=int, default=3, help="how often the agent is started")
    options.add_argument("--seconds", type=float, default=60.0, help="how long it rests")
    options.add_argument(
        "--undisturbed",
        action="store_true",
        help="let everything here go before all else on this machine, as if that were idle; needs root",
    )
    options = options.parse_args(arguments)
    if options.undisturbed:
        # Whatever is started inherits it: server, agent, tart and VMs.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    with process_folder("agent") as folder:
        return asyncio.run(_measure(folder, options)).report()


async def _measure(folder: ProcessFolder, options: argparse.Namespace) -> Found:
    async with staged(folder) as on:
        say("starting the agent")
        starts = [await _start(on) for _ in range(options.starts)]
        say("fetching images")
        for image in (BRIEF, LONG):
            await _warm_up(on, image)
        lives = []
        for number in range(options.rounds):
            say(f"measuring Pod {number + 1} of {options.rounds}")
            lives.append(await measuring.live(on, f"pod-{number}", BRIEF))
        say(f"measuring {options.seconds:g} s at rest")
        idle = await measuring.rest(on, seconds=options.seconds)
        return Found(starts, lives, idle, os.getloadavg()[0], options.undisturbed)


async def _start(on: Stage) -> float:
    on.stop()
    return await on.start()


async def _warm_up(on: Stage, image: str) -> None:
    """Have the image fetched and its golden base made."""
    await on.create("warm-up", image)
    await on.has("warm-up", lambda pod: pod.status.phase == "Running")
    await on.remove("warm-up")
