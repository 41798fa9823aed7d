"""One run: the server on one core, one client after the other on another core, in rounds; medians, ratios and goals."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import Report
from bench.runtime import workload
from bramley.api.runner_pool import RunnerPool
from tools import foreign

HERE = Path(__file__).parent
PLACE = RunnerPool.resource
MEGABYTE = 1_000_000
SERVER_CORE, CLIENT_CORE = 0, 1
TIMEOUT_SECONDS = 180
LIGHTKUBE = (
    PLACE.kind,
    PLACE.plural,
    workload.NAMESPACE,
    str(workload.OBJECTS),
    str(workload.EVENTS),
)

Measured = Mapping[str, float]
Measurement = Callable[[str, Path], Measured]

GOALS = {
    "reconciles_vs_kopf": "≥ 20",
    "watch_events_vs_limit": "≥ 0.6",
    "resident_mb": "≤ 80",
}


def run(arguments: Sequence[str]) -> Report:
    """Run all measurements and return the report."""
    options = argparse.ArgumentParser(prog="python -m bench runtime")
    # A measurement takes less than a second, so on a busy machine a single one means little.
    options.add_argument("--rounds", type=int, default=7, help="how often; the median counts")
    rounds = options.parse_args(arguments).rounds
    python = foreign.interpreter()
    figures: dict[str, list[Measured]] = {}
    for events, measurements in plan(python).items():
        with replaying(events) as server, kubeconfig(server) as access:
            for _ in range(rounds):
                for name, measure in measurements.items():
                    print_progress(f"measuring {name}")
                    figures.setdefault(name, []).append(measure(server, access))
    return evaluate({name: median(rows) for name, rows in figures.items()})


def plan(python: Path) -> dict[int, dict[str, Measurement]]:
    """Return the measurements by the number of events that the server sends."""
    return {
        0: {
            "ours, reconciles": ours("reconciles"),
            "kopf, reconciles": third_party(
                python, "kopf_client.py", PLACE.plural, str(workload.OBJECTS)
            ),
        },
        workload.EVENTS: {
            "ours, events": ours("events"),
            "limit, events": module("limit", "decoded"),
            "drained, events": module("limit", "drained"),
            "lightkube, events": third_party(python, "lightkube_client.py", *LIGHTKUBE),
        },
    }


def ours(what: str) -> Measurement:
    """Return the measurement of Bramley."""
    return module("bramley_client", what)


def module(name: str, what: str) -> Measurement:
    """Return the measurement of a client that is a module of this package."""
    return lambda server, _: run_client(
        [sys.executable, "-m", f"bench.runtime.{name}", server, what]
    )


def third_party(python: Path, program: str, *names: str) -> Measurement:
    """Return the measurement of a third-party client, which finds the server by its kubeconfig."""
    command = [str(python), str(HERE / program), PLACE.group, PLACE.version, *names]
    return lambda _, access: run_client(command, KUBECONFIG=str(access))


def run_client(command: Sequence[str], **variables: str) -> Measured:
    """Run one client on its core and return the measurements that it prints; a failure is an error."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", **variables}
    ended = subprocess.run(
        pinned(CLIENT_CORE, command),
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=TIMEOUT_SECONDS,
    )
    if ended.returncode or not ended.stdout.strip():
        tail = ended.stderr[-2000:]
        raise RuntimeError(f"{' '.join(command)} failed with {ended.returncode}:\n{tail}")
    figures: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return figures


def pinned(core: int, command: Sequence[str]) -> list[str]:
    """Return the command pinned to one core, if the system supports that."""
    if not hasattr(os, "sched_setaffinity") or (os.cpu_count() or 1) < 2:
        return list(command)
    program = "import os,sys; os.sched_setaffinity(0,{int(sys.argv[1])}); os.execvp(sys.argv[2],sys.argv[2:])"
    return [sys.executable, "-c", program, str(core), *command]


@contextlib.contextmanager
def replaying(events: int) -> Iterator[str]:
    """Run the server and return its address."""
    command = pinned(SERVER_CORE, [sys.executable, "-m", "bench.runtime.replay", str(events)])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = (server.stdout.readline() if server.stdout else "").strip()
            if not port:
                raise RuntimeError("the replaying server did not start")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


@contextlib.contextmanager
def kubeconfig(server: str) -> Iterator[Path]:
    """Yield a temporary kubeconfig for the third-party clients."""
    named = {
        "clusters": [{"name": "bench", "cluster": {"server": server}}],
        "users": [{"name": "bench", "user": {"token": "none"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }
    body = {"apiVersion": "v1", "kind": "Config", "current-context": "bench", **named}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kubeconfig"
        file.write_text(json.dumps(body))
        yield file


def median(rows: Sequence[Measured]) -> dict[str, float]:
    """Return the median of each measurement."""
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def evaluate(measured: Mapping[str, Measured]) -> Report:
    """Convert times to rates and ratios, and compare them with the goals."""
    rates = {name: work_of(name) / values["seconds"] for name, values in measured.items()}
    ratios = {
        "reconciles_vs_kopf": rates["ours, reconciles"] / rates["kopf, reconciles"],
        "watch_events_vs_limit": rates["ours, events"] / rates["limit, events"],
        "watch_events_vs_lightkube": rates["ours, events"] / rates["lightkube, events"],
        "server_vs_limit": rates["drained, events"] / rates["limit, events"],
        "resident_mb": measured["ours, reconciles"]["resident"] / MEGABYTE,
    }
    met = {
        "reconciles_vs_kopf": ratios["reconciles_vs_kopf"] >= 20,
        "watch_events_vs_limit": ratios["watch_events_vs_limit"] >= 0.6,
        "resident_mb": ratios["resident_mb"] <= 80,
    }
    figures: dict[str, Any] = {"rates_per_second": rates, "measured": dict(measured)}
    return Report("runtime", COLUMNS, rows(rates, measured), ratios, figures, GOALS, met)


COLUMNS = ("client", "per second", "resident MB")


def rows(rates: Mapping[str, float], figures: Mapping[str, Measured]) -> list[tuple[str, ...]]:
    """Return the table's rows."""
    return [(name, f"{rate:,.0f}", format_memory(figures[name])) for name, rate in rates.items()]


def format_memory(figures: Measured) -> str:
    """Return the resident memory in MB, if it was measured."""
    return f"{figures['resident'] / MEGABYTE:.0f}" if "resident" in figures else ""


def work_of(name: str) -> int:
    """Return how many objects or events a client processed."""
    return workload.EVENTS if name.endswith("events") else workload.OBJECTS


def print_progress(line: str) -> None:
    """Print the progress to stderr; the results go to stdout."""
    print(line, file=sys.stderr, flush=True)
