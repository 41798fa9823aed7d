"""One run of the benchmark, from building the rival to the verdict; or the profile of our server under one load."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.apiserver import comparison, load, profiling, shortfalls
from bench.apiserver.comparison import Life
from bench.apiserver.load import MEASURES, LoadFailed, Measure
from bench.apiserver.results import Found
from bench.apiserver.servers import Bramley, Kubernetes, Pen, Server, StartFailed, pen
from bench.report import Report
from tools.kube import building


def say(line: str) -> None:
    """Tell how far it is, beside the results."""
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


def measure_all(stack: ExitStack, *, rounds: int, seconds: float) -> Found:
    """Start both servers, measure everything in turns; ours also once more with its controllers, at rest."""
    building.ensure(["etcd", "kube-apiserver", "load"])
    ours, theirs = Bramley(new_pen(stack, "ours")), Kubernetes(new_pen(stack, "theirs"))
    whole = partial(Bramley, has_controllers=True)
    beside = whole(new_pen(stack, "whole"))
    lives: dict[str, Life] = {}
    for server, spare in ((beside, whole), (ours, Bramley), (theirs, Kubernetes)):
        say(f"starting {server.name}")
        fresh: list[Server] = [spare(new_pen(stack, "fresh")) for _ in range(rounds - 1)]
        lives[server.name] = comparison.live(fresh, server, rounds=rounds)
    beside.stop()
    servers: list[Server] = [ours, theirs]
    comparison.fill(servers, say)
    rates = {}
    for measure in MEASURES:
        say(f"measuring {measure.title}")
        rates[measure.title] = comparison.compare(measure, servers, rounds=rounds, seconds=seconds)
    loaded = {server.name: server.resident_bytes() for server in servers}
    return Found(rates, lives, loaded, comparison.disk_sync_ms(ours.pen.folder))


def new_pen(stack: ExitStack, purpose: str) -> Pen:
    """Return a folder for one server that lasts as long as the run."""
    return stack.enter_context(pen(purpose))


def profile(work: str, *, seconds: float) -> list[str]:
    """Run one load against our server under the profiler and return the costliest functions."""
    building.ensure(["load"])
    # Without a warm-up, so that every request the profiler sees is counted.
    measure = replace(busiest(work), flags=(*busiest(work).flags, "-warmup", "0s"))
    with pen("profile") as folder:
        figures = folder.folder / "profile"
        wrapper = ["-P", str(Path(profiling.__file__)), str(figures)]
        idle = Bramley(folder)
        idle.start()
        load.fill(idle.access())
        idle.stop()
        profiled = Bramley(folder, wrapped_by=wrapper)
        profiled.start()
        outcome = measure.run(profiled.access(), protocol="http1", seconds=seconds)
        profiled.stop()
        title = f"{measure.title}: {outcome.rate:,.0f}/s under the profiler"
        return [title, *profiling.lines(profiling.top(figures, requests=outcome.count))]


def busiest(work: str) -> Measure:
    """Return the heaviest measure of a kind of work."""
    return [measure for measure in MEASURES if measure.work == work][-1]


def run(arguments: Sequence[str]) -> Report | None:
    """Run the benchmark and return what it found, or print a profile and return nothing."""
    chosen = parser().parse_args(arguments)
    if chosen.profile:
        print("\n".join(profile(chosen.profile, seconds=chosen.seconds)))
        return None
    with ExitStack() as stack:
        report = measure_all(stack, rounds=chosen.rounds, seconds=chosen.seconds).report()
    explain(report, seconds=chosen.seconds)
    return report


def explain(report: Report, *, seconds: float) -> None:
    """Print the profiles of what fell short."""
    missed = [title for title, met in report.met.items() if not met]
    works = {measure.title: measure.work for measure in MEASURES}
    take = partial(profile, seconds=seconds)
    try:
        for line in shortfalls.explain(missed, works=works, profile=take):
            print(line)
    except (LoadFailed, StartFailed, OSError) as failure:
        # The figures were found and must not be lost with their explanation.
        print(f"What fell short cannot be explained: {failure}")
