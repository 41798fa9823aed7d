"""Measures both servers in turns, so that fluctuations of the machine affect both, and takes the median of the rounds."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.apiserver import load
from bench.apiserver.load import LoadFailed, Measure, Outcome
from bench.apiserver.servers import Server

SETTLING_SECONDS = 3.0

PrintProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rates:
    """One measure's medians on one server: rate, and latencies in milliseconds; the protocol is the faster one.

    `restarts` counts the watches, in all rounds, that the server ended because they could not keep up.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    protocol: str
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Footprint:
    """Start-up time and idle memory of a server."""

    first_start_seconds: float
    next_start_seconds: float
    idle_bytes: int


def median_of(outcomes: Sequence[Outcome], protocol: str) -> Rates:
    """Return the medians of the rounds."""
    return Rates(
        statistics.median(one.rate for one in outcomes),
        statistics.median(one.p50_ms for one in outcomes),
        statistics.median(one.p99_ms for one in outcomes),
        protocol,
        sum(one.restarts for one in outcomes),
    )


def better(by_protocol: dict[str, list[Outcome]]) -> Rates:
    """Return the medians of the protocol that the server is faster with."""
    medians = [median_of(outcomes, protocol) for protocol, outcomes in by_protocol.items()]
    return max(medians, key=lambda rates: rates.rate)


def compare(
    measure: Measure, servers: Sequence[Server], *, rounds: int, seconds: float
) -> dict[str, Rates]:
    """Run one measure in rounds, each round in the other order."""
    turns = [(server, protocol) for server in servers for protocol in server.protocols]
    outcomes: dict[str, dict[str, list[Outcome]]] = {server.name: {} for server in servers}
    for number in range(rounds):
        for server, protocol in turns if number % 2 == 0 else turns[::-1]:
            outcome = measured(measure, server, protocol=protocol, seconds=seconds)
            outcomes[server.name].setdefault(protocol, []).append(outcome)
    return {name: better(by_protocol) for name, by_protocol in outcomes.items()}


def measured(measure: Measure, server: Server, *, protocol: str, seconds: float) -> Outcome:
    """Run one measure on one server; a failure names the server."""
    try:
        return measure.run(server.access(), protocol=protocol, seconds=seconds)
    except LoadFailed as failure:
        raise LoadFailed(f"{server.name} over {protocol}: {failure}") from failure


def measure_footprint(fresh: Sequence[Server], kept: Server, *, rounds: int) -> Footprint:
    """Measure starts on empty folders and on the data of `kept`, which is left running."""
    first = [timed_start_and_stop(server) for server in fresh]
    first.append(kept.start())
    again = []
    for _ in range(rounds):
        kept.stop()
        again.append(kept.start())
    time.sleep(SETTLING_SECONDS)
    return Footprint(statistics.median(first), statistics.median(again), kept.resident_bytes())


def timed_start_and_stop(server: Server) -> float:
    """Return how long a server takes to start, leaving it stopped."""
    seconds = server.start()
    server.stop()
    return seconds


def disk_sync_ms(folder: Path, *, tries: int = 50) -> float:
    """Return the time of a small durable append on this disk, a lower bound of any durable write."""
    took = []
    descriptor = os.open(folder / "sync-probe", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(tries):
            started = time.perf_counter()
            os.write(descriptor, bytes(4096))
            os.fsync(descriptor)
            took.append((time.perf_counter() - started) * 1000)
    finally:
        os.close(descriptor)
    return statistics.median(took)


def fill(servers: Sequence[Server], print_progress: PrintProgress) -> None:
    """Create the same objects on every server."""
    for server in servers:
        print_progress(f"filling {server.name}")
        load.fill(server.access())
