"""One run of the benchmark, from building kube-apiserver to the report; or the profile of our server under one load."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.apiserver import comparison, load, missed_goals, profiler
from bench.apiserver.comparison import Footprint
from bench.apiserver.load import MEASURES, LoadFailed, Measure
from bench.apiserver.results import Measurements
from bench.apiserver.servers import (
    Bramley,
    Kubernetes,
    ProcessFolder,
    Server,
    StartFailed,
    process_folder,
)
from bench.report import Report
from tools.kube import go_build


def print_progress(line: str) -> None:
    """Print progress on standard error."""
    print(line, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """Describe the options."""
    options = argparse.ArgumentParser(prog="python -m bench apiserver")
    options.add_argument(
        "--rounds", type=int, default=3, help="how often to measure; the median counts"
    )
    options.add_argument("--seconds", type=float, default=3.0, help="how long each measure takes")
    options.add_argument(
        "--profile",
        choices=sorted({measure.work for measure in MEASURES}),
        help="instead show where our server spends its time under this load",
    )
    return options


def measure_all(stack: ExitStack, *, rounds: int, seconds: float) -> Measurements:
    """Start both servers and measure everything in turns; ours also idle with its controllers."""
    go_build.ensure(["etcd", "kube-apiserver", "load"])
    ours, theirs = (
        Bramley(new_process_folder(stack, "ours")),
        Kubernetes(new_process_folder(stack, "theirs")),
    )
    whole = partial(Bramley, has_controllers=True)
    with_controllers = whole(new_process_folder(stack, "whole"))
    footprints: dict[str, Footprint] = {}
    for server, spare in ((with_controllers, whole), (ours, Bramley), (theirs, Kubernetes)):
        print_progress(f"starting {server.name}")
        fresh: list[Server] = [spare(new_process_folder(stack, "fresh")) for _ in range(rounds - 1)]
        footprints[server.name] = comparison.measure_footprint(fresh, server, rounds=rounds)
    with_controllers.stop()
    servers: list[Server] = [ours, theirs]
    comparison.fill(servers, print_progress)
    rates = {}
    for measure in MEASURES:
        print_progress(f"measuring {measure.title}")
        rates[measure.title] = comparison.compare(measure, servers, rounds=rounds, seconds=seconds)
    loaded = {server.name: server.resident_bytes() for server in servers}
    return Measurements(
        rates, footprints, loaded, comparison.disk_sync_ms(ours.process_folder.folder)
    )


def new_process_folder(stack: ExitStack, purpose: str) -> ProcessFolder:
    """Return a folder for one server that lasts as long as the run."""
    return stack.enter_context(process_folder(purpose))


def profile(work: str, *, seconds: float) -> list[str]:
    """Run one load against our server under the profiler and return the most expensive functions."""
    go_build.ensure(["load"])
    # Without a warm-up, so that every request the profiler sees is counted.
    measure = replace(busiest(work), flags=(*busiest(work).flags, "-warmup", "0s"))
    with process_folder("profile") as folder:
        figures = folder.folder / "profile"
        wrapper = ["-P", str(Path(profiler.__file__)), str(figures)]
        idle = Bramley(folder)
        idle.start()
        load.fill(idle.access())
        idle.stop()
        profiled = Bramley(folder, wrapped_by=wrapper)
        profiled.start()
        outcome = measure.run(profiled.access(), protocol="http1", seconds=seconds)
        profiled.stop()
        title = f"{measure.title}: {outcome.rate:,.0f}/s under the profiler"
        return [title, *profiler.lines(profiler.top(figures, requests=outcome.count))]


def busiest(work: str) -> Measure:
    """Return the heaviest measure of a kind of work."""
    return [measure for measure in MEASURES if measure.work == work][-1]


def run(arguments: Sequence[str]) -> Report | None:
    """Run the benchmark and return its report, or print a profile and return None."""
    options = parser().parse_args(arguments)
    if options.profile:
        print("\n".join(profile(options.profile, seconds=options.seconds)))
        return None
    with ExitStack() as stack:
        report = measure_all(stack, rounds=options.rounds, seconds=options.seconds).report()
    explain(report, seconds=options.seconds)
    return report


def explain(report: Report, *, seconds: float) -> None:
    """Print the profiles of missed goals."""
    missed = [title for title, met in report.met.items() if not met]
    works = {measure.title: measure.work for measure in MEASURES}
    take = partial(profile, seconds=seconds)
    try:
        for line in missed_goals.explain(missed, works=works, profile=take):
            print(line)
    except (LoadFailed, StartFailed, OSError) as failure:
        # A failed profile must not lose the report.
        print(f"Cannot profile the missed goals: {failure}")
