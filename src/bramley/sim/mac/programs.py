"""The programs of a simulated Mac as one agent runs them: answered by the model, killed and orphaned as processes are."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bramley.agent.programs import Finished
from bramley.sim.mac.calls import Call
from bramley.sim.mac.processes import Process

if TYPE_CHECKING:
    from bramley.sim.mac.side import AgentSide


@dataclass(slots=True)
class _Pipes:
    """The agent's end of a program's output; the other end breaks with the agent."""

    side: AgentSide
    on_line: Callable[[str], None] | None
    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    process: Process | None = None

    def out(self, line: str) -> None:
        self._check()
        self.stdout.append(line)
        if self.on_line is not None:
            self.on_line(line)

    def err(self, line: str) -> None:
        self._check()
        self.stderr.append(line)

    def _check(self) -> None:
        if not self.side.lives and self.process is not None:
            self.side.mac.table.kill(self.process.pid, signal.SIGPIPE)
            # This is the process itself: it gets no further than its write.
            raise asyncio.CancelledError


class SimulatedPrograms:
    """Runs programs of one simulated Mac for one agent."""

    def __init__(self, side: AgentSide) -> None:
        self._side = side

    async def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        on_line: Callable[[str], None] | None = None,
        gate: asyncio.Event | None = None,
    ) -> Finished:
        """Run a program to its end; cancelling kills its group, unless it is the agent that died."""
        side = self._side
        told = _told(argv)
        await side.reach(f"before {told}")
        pipes = _Pipes(side, on_line)
        call = Call(argv, pipes.out, pipes.err, dict(environment or {}), stdin)
        process = pipes.process = side.mac.start(call, parent=side.pid)
        process.gate = gate
        side.pass_by(f"within {told}")
        try:
            code = await asyncio.shield(process.ended)
        except asyncio.CancelledError:
            if side.lives:
                side.mac.table.kill_group(process.group)
            raise
        await side.reach(f"after {told}")
        return Finished(code, _text(pipes.stdout), _text(pipes.stderr))


def _told(argv: Sequence[str]) -> str:
    """Return the program and its verb: a moment is called the same for every VM."""
    name = argv[0].rpartition("/")[2]
    return " ".join([name, *argv[1:2]])


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
