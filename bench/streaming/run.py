"""One run: memory by number of hosts, the former way for comparison, the speed against `scp`, and the goals."""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.apiserver.servers import ProcessFolder, process_folder
from bench.report import Report
from bench.streaming import measurement, memory, openssh
from bench.streaming.artifacts import MEGABYTE, SIZES, Staged, stage
from bench.streaming.measurement import MemoryUse, Race

FEW = 4
HOSTS = (1, FEW, 32, 100)
QUICK_HOSTS = (1, FEW, 8)
# Hosts are held after this fraction of the largest artifact.
HELD_FRACTION = 10
QUICK_DIVISOR = 16
ABOVE, EACH = "RSS above idle MB, most hosts", "MB per host beyond the fourth"
SPEED, BOTH = "times scp's speed", "times scp's speed, if that is verified too"
GOALS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    ABOVE: ("≤ 64", lambda megabytes: megabytes <= 64),
    EACH: ("≤ 0.5", lambda megabytes: megabytes <= 0.5),
    SPEED: ("≥ 0.8", lambda times: times >= 0.8),
}


@dataclass(frozen=True, slots=True)
class Results:
    """All measurements of one run, by ascending number of hosts."""

    ours: Sequence[MemoryUse]
    copy_per_call: Sequence[MemoryUse]
    races: Sequence[Race]
    size: int
    load: float = 0.0
    is_undisturbed: bool = False

    def ratios(self) -> dict[str, float]:
        """Return the values with goals, and those of the former way."""
        few = next(use for use in self.ours if use.hosts == FEW)
        most = self.ours[-1]
        each = (most.above_idle - few.above_idle) / (most.hosts - few.hosts)
        ratios = {
            ABOVE: most.above_idle / MEGABYTE,
            EACH: each / MEGABYTE,
            **_speeds(self.races),
        }
        ratios |= {
            f"RSS above idle MB, {_hosts(use.hosts)}": use.above_idle / MEGABYTE
            for use in self.ours[:-1]
        }
        ratios |= {
            f"RSS above idle MB, {_hosts(use.hosts)}, a copy per call": use.above_idle / MEGABYTE
            for use in self.copy_per_call
        }
        return {name: round(value, 3) for name, value in ratios.items()}

    def report(self) -> Report:
        """Return the values, with the goals and whether they are met."""
        ratios = self.ratios()
        met = {name: is_met(ratios[name]) for name, (_, is_met) in GOALS.items()}
        goals = {name: text for name, (text, _) in GOALS.items()}
        rows = [
            (name, f"{value:.2f}", goals.get(name, ""), _verdict(met.get(name)))
            for name, value in ratios.items()
        ]
        columns = ("", "found", "goal", "")
        return Report("streaming", columns, rows, ratios, self.figures(), goals, met)

    def figures(self) -> Mapping[str, Any]:
        """Return all measured values."""
        return {
            "bytes": self.size,
            "ours": [asdict(use) for use in self.ours],
            "a copy per call": [asdict(use) for use in self.copy_per_call],
            "races": [asdict(race) for race in self.races],
            "load": round(self.load, 2),
            "undisturbed": self.is_undisturbed,
        }


def _speeds(races: Sequence[Race]) -> dict[str, float]:
    """Return our speed relative to scp, by the medians."""
    scp, verified, ours = (
        statistics.median(seconds)
        for seconds in zip(
            *((one.scp, one.scp + one.verifying, one.ours) for one in races), strict=True
        )
    )
    return {SPEED: scp / ours, BOTH: verified / ours}


def run(arguments: Sequence[str]) -> Report:
    """Run all measurements."""
    options = _parse(arguments)
    if options.undisturbed:
        # Inherited by all child processes: managers, receivers, sshd and scp.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    with process_folder("streaming") as folder:
        return asyncio.run(_measure(folder, options)).report()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench streaming",
        description="Memory of a manager that sends 96 MB of artifacts to many hosts at once, and its speed relative to scp.",
        epilog="Receivers are SSH servers in other processes, which verify the bytes and store none; scp and ours send to one OpenSSH "
        "server. The duration includes the connection and, for ours, the verification on the host, which scp lacks.",
    )
    parser.add_argument("--rounds", type=int, default=5, help="races with scp; the median counts")
    parser.add_argument(
        "--whole",
        action="store_true",
        help=f"complete all transfers, also to more than {FEW} hosts; takes minutes",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"fewer hosts and artifacts {QUICK_DIVISOR} times smaller, to check that the benchmark runs",
    )
    parser.add_argument(
        "--undisturbed",
        action="store_true",
        help="run with real-time priority, before all other processes of this machine; needs root",
    )
    options = parser.parse_args(arguments)
    if not memory.is_supported():
        parser.error("memory is read from Linux's /proc, which this system does not have")
    return options


async def _measure(folder: ProcessFolder, options: argparse.Namespace) -> Results:
    shrunk = QUICK_DIVISOR if options.quick else 1
    staged = stage(folder.folder, shrunk=shrunk)
    held_at = max(SIZES.values()) // shrunk // HELD_FRACTION
    ours = []
    for hosts in QUICK_HOSTS if options.quick else HOSTS:
        show(f"sending {staged.size / MEGABYTE:.0f} MB to {_hosts(hosts)}")
        is_complete = options.whole or hosts <= FEW
        ours.append(
            await measurement.measure_memory(
                staged, hosts, held_at=held_at, is_complete=is_complete
            )
        )
    copies = []
    for hosts in (1, FEW):
        show(f"the same to {_hosts(hosts)} with a copy per call")
        copies.append(
            await measurement.measure_memory(
                staged, hosts, held_at=held_at, is_complete=False, copy_per_call=True
            )
        )
    races = await _race(folder, staged, options.rounds)
    load, undisturbed = os.getloadavg()[0], options.undisturbed
    return Results(ours, copies, races, staged.size, load, is_undisturbed=undisturbed)


async def _race(folder: ProcessFolder, staged: Staged, rounds: int) -> list[Race]:
    sshd = await openssh.serve(folder, staged)
    races = []
    for number in range(rounds):
        show(f"racing with scp, {number + 1} of {rounds}")
        races.append(await measurement.race(staged, sshd))
    return races


def show(line: str) -> None:
    """Print progress to stderr; the results go to stdout."""
    print(line, file=sys.stderr, flush=True)


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"


def _verdict(met: bool | None) -> str:  # noqa: FBT001 - its only argument
    return {True: "met", False: "MISSED", None: ""}[met]
