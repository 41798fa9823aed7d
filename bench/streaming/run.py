"""One run: memory with more and more hosts, the old way beside it, then the time against `scp`; and the verdict."""

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
from bench.streaming import measuring, memory, openssh
from bench.streaming.artifacts import MEGABYTE, SIZES, Staged, stage
from bench.streaming.measuring import Held, Race

FEW = 4
HOSTS = (1, FEW, 32, 100)
QUICK_HOSTS = (1, FEW, 8)
# Of the largest artifact, that every host has got before anything is measured.
HELD_SHARE = 10
QUICK = 16
ABOVE, EACH = "RSS above idle MB, most hosts", "MB per host beyond the fourth"
SPEED, BOTH = "times scp's speed", "times scp's speed, if that is verified too"
GOALS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    ABOVE: ("≤ 64", lambda megabytes: megabytes <= 64),
    EACH: ("≤ 0.5", lambda megabytes: megabytes <= 0.5),
    SPEED: ("≥ 0.8", lambda times: times >= 0.8),
}


@dataclass(frozen=True, slots=True)
class Found:
    """All figures of one run; by number of hosts, ascending."""

    ours: Sequence[Held]
    old: Sequence[Held]
    races: Sequence[Race]
    size: int
    load: float = 0.0
    is_undisturbed: bool = False

    def ratios(self) -> dict[str, float]:
        """Return what goals are held to, and the old way beside it."""
        few = next(held for held in self.ours if held.hosts == FEW)
        most = self.ours[-1]
        each = (most.above_idle - few.above_idle) / (most.hosts - few.hosts)
        found = {
            ABOVE: most.above_idle / MEGABYTE,
            EACH: each / MEGABYTE,
            **_speeds(self.races),
        }
        found |= {
            f"RSS above idle MB, {_hosts(held.hosts)}": held.above_idle / MEGABYTE
            for held in self.ours[:-1]
        }
        found |= {
            f"RSS above idle MB, {_hosts(held.hosts)}, a copy per call": held.above_idle / MEGABYTE
            for held in self.old
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
        columns = ("", "found", "goal", "")
        return Report("streaming", columns, rows, ratios, self.figures(), told, met)

    def figures(self) -> Mapping[str, Any]:
        """Return every figure as it was measured."""
        return {
            "bytes": self.size,
            "ours": [asdict(held) for held in self.ours],
            "a copy per call": [asdict(held) for held in self.old],
            "races": [asdict(race) for race in self.races],
            "load": round(self.load, 2),
            "undisturbed": self.is_undisturbed,
        }


def _speeds(races: Sequence[Race]) -> dict[str, float]:
    """Return how fast we are beside scp, by the medians."""
    scp, verified, ours = (
        statistics.median(seconds)
        for seconds in zip(
            *((one.scp, one.scp + one.verifying, one.ours) for one in races), strict=True
        )
    )
    return {SPEED: scp / ours, BOTH: verified / ours}


def run(arguments: Sequence[str]) -> Report:
    """Measure everything and judge it."""
    options = argparse.ArgumentParser(
        prog="python -m bench streaming",
        description="Memory of a manager that brings 96 MB of artifacts to many hosts at once, and its speed beside scp's.",
        epilog="Receivers are SSH servers in other processes which take and verify the bytes and keep none; scp and ours go to "
        "one OpenSSH server. A transfer counts from dialling to the end, ours with the verification on the host, which scp has not.",
    )
    options.add_argument("--rounds", type=int, default=5, help="races with scp; medians count")
    options.add_argument(
        "--whole",
        action="store_true",
        help=f"let every byte travel to every host, also to more than {FEW}; takes minutes",
    )
    options.add_argument(
        "--quick",
        action="store_true",
        help=f"fewer hosts and artifacts {QUICK} times smaller: shows that it runs, and no more",
    )
    options.add_argument(
        "--undisturbed",
        action="store_true",
        help="let everything here go before all else on this machine, as if that were idle; needs root",
    )
    options = options.parse_args(arguments)
    if not memory.is_told():
        options.error("it reads memory from Linux's /proc, which is not here")
    if options.undisturbed:
        # Whatever is started inherits it: managers, receivers, sshd and scp.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    with process_folder("streaming") as folder:
        return asyncio.run(_measure(folder, options)).report()


async def _measure(folder: ProcessFolder, options: argparse.Namespace) -> Found:
    shrunk = QUICK if options.quick else 1
    staged = stage(folder.folder, shrunk=shrunk)
    held_at = max(SIZES.values()) // shrunk // HELD_SHARE
    ours = []
    for hosts in QUICK_HOSTS if options.quick else HOSTS:
        say(f"bringing {staged.size / MEGABYTE:.0f} MB to {_hosts(hosts)}")
        is_whole = options.whole or hosts <= FEW
        ours.append(await measuring.hold(staged, hosts, held_at=held_at, is_whole=is_whole))
    old = []
    for hosts in (1, FEW):
        say(f"the same to {_hosts(hosts)} with a copy per call")
        old.append(
            await measuring.hold(staged, hosts, held_at=held_at, is_whole=False, the_old_way=True)
        )
    races = await _race(folder, staged, options.rounds)
    load, undisturbed = os.getloadavg()[0], options.undisturbed
    return Found(ours, old, races, staged.size, load, is_undisturbed=undisturbed)


async def _race(folder: ProcessFolder, staged: Staged, rounds: int) -> list[Race]:
    sshd = await openssh.serve(folder, staged)
    races = []
    for number in range(rounds):
        say(f"racing with scp, {number + 1} of {rounds}")
        races.append(await measuring.race(staged, sshd))
    return races


def say(line: str) -> None:
    """Tell how far it is, beside the results."""
    print(line, file=sys.stderr, flush=True)


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"


def _verdict(met: bool | None) -> str:  # noqa: FBT001 - there is nothing else to tell
    return {True: "met", False: "MISSED", None: ""}[met]
