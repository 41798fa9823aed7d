"""One run: create Pods on both servers, fill many pools, roll one, and compare with the goals."""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.apiserver.servers import Bramley, Kubernetes, process_folder
from bench.pools import measurements, rolled_pods
from bench.pools.measurements import CREATED, Rest
from bench.pools.stage import staged
from bench.report import Report

# Measured once on the existing controller in Go; this benchmark cannot build and run it.
REFERENCE_PODS_PER_SECOND = 26.0
REFERENCE_MB = 47.0
FLEET = "created"
EMBEDDED = "Pods created per second on the embedded API, of the Go controller's"
KUBERNETES = "Pods created per second on kube-apiserver, of the Go controller's"
WRITES_AT_REST = "writes per minute at rest"
WRITES_PER_POD = "writes per rolled Pod"
GOALS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    EMBEDDED: ("≥ 5", lambda ratio: ratio >= 5),
    KUBERNETES: ("≥ 5", lambda ratio: ratio >= 5),
    WRITES_AT_REST: ("≤ 1", lambda writes: writes <= 1),
    WRITES_PER_POD: ("≤ 8", lambda writes: writes <= 8),
}


@dataclass(frozen=True, slots=True)
class Results:
    """All measurements of one run: seconds of each creation, memory with one pool, the rest, and the writes of a roll."""

    embedded: Sequence[float]
    kubernetes: Sequence[float]
    one_pool_bytes: int
    rest: Rest
    roll_writes: Mapping[str, int]
    load: float = 0.0
    is_undisturbed: bool = False

    def ratios(self) -> dict[str, float]:
        """Return the values that are compared with goals, and the memory."""
        rest = self.rest
        values = {
            EMBEDDED: _rate(self.embedded) / REFERENCE_PODS_PER_SECOND,
            KUBERNETES: _rate(self.kubernetes) / REFERENCE_PODS_PER_SECOND,
            "RSS MB with one pool": self.one_pool_bytes / 1e6,
            "RSS with one pool, of the Go controller's": self.one_pool_bytes / 1e6 / REFERENCE_MB,
            f"RSS MB with {rest.pods} Pods": rest.restarted_bytes / 1e6,
            WRITES_AT_REST: 60 * rest.writes / rest.seconds,
            "CPU % at rest": rest.cpu_percent,
            WRITES_PER_POD: sum(self.roll_writes.values()) / rolled_pods.PODS,
        }
        return {name: round(value, 3) for name, value in values.items()}

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
            "pools", ("", "found", "goal", ""), rows, ratios, self.measurements(), goals, met
        )

    def measurements(self) -> Mapping[str, Any]:
        """Return all raw measurements."""
        return {
            "embedded": self.embedded,
            "kubernetes": self.kubernetes,
            "one_pool_bytes": self.one_pool_bytes,
            "rest": asdict(self.rest),
            "roll_writes": self.roll_writes,
            "reference": [REFERENCE_PODS_PER_SECOND, REFERENCE_MB],
            "load": round(self.load, 2),
            "undisturbed": self.is_undisturbed,
        }


def _rate(seconds: Sequence[float]) -> float:
    return CREATED / statistics.median(seconds)


def _verdict(met: bool | None) -> str:  # noqa: FBT001 - the only argument
    return {True: "met", False: "MISSED", None: ""}[met]


def report_progress(line: str) -> None:
    """Print the progress to stderr."""
    print(line, file=sys.stderr, flush=True)


def run(arguments: Sequence[str]) -> Report:
    """Measure everything and compare it with the goals."""
    parser = argparse.ArgumentParser(prog="python -m bench pools")
    parser.add_argument("--rounds", type=int, default=5, help="creations; the median counts")
    parser.add_argument("--pools", type=int, default=200, help="number of pools at rest")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="duration of the measurement at rest"
    )
    parser.add_argument(
        "--undisturbed",
        action="store_true",
        help="run with real-time priority, as on an idle machine; needs root",
    )
    options = parser.parse_args(arguments)
    if options.undisturbed:
        # Inherited by all child processes.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    report_progress(f"rolling {rolled_pods.PODS} modelled Pods")
    roll_writes = rolled_pods.count_writes()
    kubernetes, _ = asyncio.run(_create("kubernetes", options.rounds))
    embedded, one_pool_bytes = asyncio.run(_create("embedded", options.rounds))
    rest = asyncio.run(_rest(options))
    load, is_undisturbed = os.getloadavg()[0], options.undisturbed
    return Results(
        embedded, kubernetes, one_pool_bytes, rest, roll_writes, load, is_undisturbed
    ).report()


async def _create(name: str, rounds: int) -> tuple[list[float], int]:
    """Return the seconds of each creation, and the controller's memory with one pool before the first."""
    with process_folder("pools") as folder:
        server = Kubernetes(folder) if name == "kubernetes" else Bramley(folder)
        async with staged(folder, server) as on:
            await on.create_nodes(FLEET, CREATED, pods=1)
            await on.start_controller()
            seconds = []
            await on.create_pool("first", FLEET, replicas=1)
            # Until the caches are filled and the pool has its Pod.
            await asyncio.sleep(2)
            one_pool_bytes = measurements.resident_bytes(on)
            await measurements.remove(on, "first")
            for number in range(rounds):
                report_progress(f"creating Pods on {name}, {number + 1} of {rounds}")
                seconds.append(await measurements.measure_creation(on, f"pool-{number}", FLEET))
            return seconds, one_pool_bytes


async def _rest(options: argparse.Namespace) -> Rest:
    with process_folder("pools") as folder:
        async with staged(folder, Bramley(folder)) as on:
            report_progress(f"filling {options.pools} pools")
            await on.start_controller()
            return await measurements.measure_rest(on, options.pools, options.seconds)
