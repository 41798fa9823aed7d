"""A fake tart with configured output, or one that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram

from bramley.agent.programs import ProgramResult
from bramley.agent.tart.driver import Deadlines, Tart
from bramley.api.names import metrics as names
from bramley.base import metrics
from bramley.base.metrics import Labelled

BINARY = "/usr/local/bin/tart"


class Hung:
    """The result of a command that hangs."""


class Programs:
    """Results by the verb of the command line; the results of a list are used in turn."""

    def __init__(self, **answers: ProgramResult | Hung | list[ProgramResult]) -> None:
        self.answers = answers
        self.calls: list[tuple[str, ...]] = []
        self.environments: list[Mapping[str, str]] = []
        self.killed: list[tuple[str, ...]] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",  # noqa: ARG002
        on_line: Callable[[str], None] | None = None,
        gate: asyncio.Event | None = None,  # noqa: ARG002
    ) -> ProgramResult:
        self.calls.append(tuple(argv))
        self.environments.append(environment or {})
        answer = self.answers.get(argv[1].removeprefix("--"), ProgramResult(0))
        if isinstance(answer, Hung):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.killed.append(tuple(argv))
                raise
        if isinstance(answer, list):
            answer = answer.pop(0)
        assert isinstance(answer, ProgramResult)
        for line in answer.stdout.splitlines():
            if on_line:
                on_line(line)
        return answer


class Metrics:
    """Counters of the agent."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.tart_timeouts: Labelled[Counter] = metrics.counter(
            self.registry, names.TART_TIMEOUTS.name, "Timeouts.", *names.TART_TIMEOUTS.labels
        )

        self.clone_duration: Labelled[Histogram] = metrics.histogram(
            self.registry, names.CLONE_DURATION.name, "Clones.", *names.CLONE_DURATION.labels
        )

    def clones(self, result: str) -> float:
        name = f"{names.CLONE_DURATION.name}_count"
        return self.registry.get_sample_value(name, {"result": result}) or 0.0

    def timeouts(self, operation: str) -> float:
        labels = {"operation": operation}
        return self.registry.get_sample_value(names.TART_TIMEOUTS.name, labels) or 0.0


def a_tart(
    home: Path,
    programs: Programs,
    *,
    metrics: Metrics | None = None,
    deadlines: Deadlines | None = None,
) -> Tart:
    return Tart(
        programs, binary=BINARY, home=home, metrics=metrics or Metrics(), deadlines=deadlines
    )


def a_vm_on_disk(home: Path, name: str, *files: str) -> Path:
    folder = home / "vms" / name
    folder.mkdir(parents=True)
    for file in files or ("config.json", "disk.img", "nvram.bin"):
        (folder / file).write_text("{}")
    return folder
