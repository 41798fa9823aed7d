"""Runs the load generator: one measure against one server.

A single failed request invalidates a measure and raises.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from tools.kube import programs

SLACK_SECONDS = 120.0
PODS = 5000
CONFIG_MAPS = 64


class LoadFailed(Exception):
    """The load generator or the server refused; the message contains the reason."""


class Outcome(msgspec.Struct, frozen=True):
    """The result of one measure: rate per second, and latencies in milliseconds."""

    rate: float
    p50_ms: float
    p99_ms: float
    count: int
    restarts: int = 0
    errors: int = 0
    first_error: str = ""


@dataclass(frozen=True, slots=True)
class Measure:
    """One kind of load, the same for every server."""

    title: str
    work: str
    clients: int
    flags: Sequence[str] = field(default=())
    longer: float = 1

    def run(self, access: Sequence[str], *, protocol: str, seconds: float) -> Outcome:
        """Load a server and return the result; slow requests are measured longer."""
        seconds *= self.longer
        load = ["-clients", str(self.clients), "-protocol", protocol, "-duration", f"{seconds}s"]
        objects = ["-objects", str(CONFIG_MAPS)]
        output = generate(self.work, [*access, *load, *objects, *self.flags], seconds=seconds)
        outcome = msgspec.json.decode(output, type=Outcome)
        if outcome.errors or not outcome.count:
            problem = outcome.first_error or "no request completed"
            raise LoadFailed(f"{self.title}: {outcome.errors} errors: {problem}")
        return outcome


def pod_flags() -> tuple[str, ...]:
    """Return the flags for work on the many Pods."""
    return ("-kind", "pods", "-objects", str(PODS))


MEASURES = (
    Measure("PATCH, 1 client", "patch", 1),
    Measure("PATCH, 16 clients", "patch", 16),
    Measure("PATCH, 64 clients", "patch", 64),
    Measure("GET, 64 clients", "get", 64),
    Measure(f"LIST of {PODS:,} Pods, 2 clients", "list", 2, pod_flags(), longer=2),
    Measure("watch, 100 watchers, 1 writer", "watch", 100, ("-writers", "1")),
    Measure("watch, 100 watchers, 16 writers", "watch", 100, ("-writers", "16")),
)


def fill(access: Sequence[str]) -> None:
    """Create the objects that the measures work on, the same on every server."""
    generate("fill", [*access, "-clients", "16", "-objects", str(CONFIG_MAPS)])
    generate("fill", [*access, "-clients", "16", *pod_flags()])


def generate(work: str, arguments: Sequence[str], *, seconds: float = 60) -> bytes:
    """Run the load generator and return the JSON it prints."""
    done = subprocess.run(
        [str(programs.path_of("load")), work, *arguments],
        capture_output=True,
        check=False,
        timeout=seconds + SLACK_SECONDS,
    )
    if done.returncode:
        raise LoadFailed(done.stderr.decode(errors="replace").strip())
    return done.stdout
