"""One life of the agent on a simulated Mac: the seams it works through, and its death.

Death is `kill -9`: the programs it had started go on as orphans, and die of a broken pipe when they next print; supervisors and
VMs do not notice. `die` may be called from anywhere, also from `on_moment`, and takes effect there; `bury` then takes the
agent's tasks away and undoes what they wrote on their way out, which a killed process would not have written.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bramley.agent.host import GuestProcess, HostProcess, Space, Usage
from bramley.agent.platform import system
from bramley.kube.transport import Request, Response, Stream, Transport
from bramley.sim.mac.runs import SimulatedRuns

if TYPE_CHECKING:
    from bramley.sim.mac.mac import SimulatedMac
import signal
from collections.abc import Mapping, Sequence
from dataclasses import field

from bramley.agent.programs import Finished
from bramley.sim.mac.processes import Call, Process


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


# Of each second that a process lives, and what it has in memory: figures to be told, no model of anything.
_CPU_SHARE = 0.25
_RESIDENT = 300_000_000


class SimulatedHost:
    """Tells facts about one simulated Mac."""

    def __init__(self, mac: SimulatedMac) -> None:
        self._mac = mac

    def boot_id(self) -> str:
        """Return a text that changes with each reboot."""
        return self._mac.boot_id

    def lock_holder(self, path: Path) -> int | None:
        """Return who runs the VM of this file."""
        holder = self._mac.world.run_locks.holder(str(path))
        return holder.pid if holder else None

    def space(self, path: Path) -> Space:  # noqa: ARG002 - there is but one volume
        """Return the room on the one volume."""
        return self._mac.space()

    def guest_processes(self) -> list[GuestProcess]:
        """Return guests and the tarts that run them."""
        living = self._mac.table.living()
        return [GuestProcess(each.pid, each.argv) for each in living if system.holds_vm(each.argv)]

    def processes(self) -> list[HostProcess]:
        """Return all processes."""
        return [HostProcess(each.pid, each.argv) for each in self._mac.table.living()]

    def usage(self, pid: int) -> Usage | None:
        """Return what a process has used."""
        process = self._mac.table.find(pid)
        if process is None:
            return None
        age = self._mac.clock.now() - process.started_at
        return Usage(cpu=age * _CPU_SHARE, resident_bytes=_RESIDENT)

    def address(self) -> str | None:
        """Return the Mac's address."""
        return self._mac.address


@dataclass(frozen=True, slots=True)
class _Kept:
    """A folder (no content), or a file with its content."""

    mode: int
    content: bytes | None


class Snapshot:
    """Remembers the folders and regular files below some folders; links and pipes are left as they are."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._kept = _kept(folders)

    def restore(self) -> None:
        """Undo what was written, removed or added since."""
        now = _kept(self._folders)
        for path in sorted(now.keys() - self._kept.keys(), reverse=True):
            _remove(path)
        for path, kept in sorted(self._kept.items()):
            if now.get(path) != kept:
                _bring_back(path, kept)


def _kept(folders: tuple[Path, ...]) -> dict[Path, _Kept]:
    found: dict[Path, _Kept] = {}
    for folder in folders:
        for place, _, files in os.walk(folder):
            here = Path(place)
            found[here] = _Kept(here.stat().st_mode, None)
            for path in (here / name for name in files):
                if path.is_file() and not path.is_symlink():
                    found[path] = _Kept(path.stat().st_mode, path.read_bytes())
    return found


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _bring_back(path: Path, kept: _Kept) -> None:
    if kept.content is None:
        path.mkdir(parents=True, exist_ok=True)
    else:
        path.write_bytes(kept.content)
    path.chmod(kept.mode & 0o7777)


_READS = ("GET", "HEAD")


class AgentSide:
    """What one agent process is given; `on_moment` hears of every point at which a death would be a different one."""

    def __init__(self, mac: SimulatedMac, pid: int) -> None:
        self.mac = mac
        self.pid = pid
        self.lives = True
        self.on_moment: Callable[[str], None] | None = None
        self.programs = SimulatedPrograms(self)
        self.runs = SimulatedRuns(self)
        self.host = SimulatedHost(mac)
        self._at_death: Snapshot | None = None

    def die(self) -> None:
        """End the agent's process here and now."""
        if self.lives:
            self.lives = False
            self._at_death = Snapshot(self.mac.folders.state, self.mac.folders.user_data)

    async def bury(self, agent: asyncio.Task[object]) -> None:
        """Take a dead agent's task away and leave the disk as it was at its death."""
        self.die()
        agent.cancel()
        await asyncio.wait((agent,))
        if self._at_death is not None:
            self._at_death.restore()

    async def reach(self, moment: str) -> None:
        """Pass a point of the agent's life; a dead agent never gets beyond it."""
        if not self.lives:
            # Its task is on its way out already.
            raise asyncio.CancelledError
        self.pass_by(moment)
        await self.outlive()

    def pass_by(self, moment: str) -> None:
        """Pass a point at which the agent does not wait; if it dies here, what it still does on disk is undone."""
        if self.lives and self.on_moment is not None:
            self.on_moment(moment)

    async def outlive(self) -> None:
        """Go on if the agent lives, else never: whoever buries it cancels the wait."""
        if not self.lives:
            await asyncio.get_running_loop().create_future()

    def transport(self, inner: Transport) -> Transport:
        """Return a way to the API that ends with the agent, and makes each write a moment."""
        return _MortalTransport(self, inner)


class _MortalTransport:
    def __init__(self, side: AgentSide, inner: Transport) -> None:
        self._side = side
        self._inner = inner

    async def send(self, request: Request) -> Response:
        if request.method in _READS:
            answer = await self._inner.send(request)
            await self._side.outlive()
            return answer
        told = f"{request.method} {request.path}"
        await self._side.reach(f"before {told}")
        answer = await self._inner.send(request)
        await self._side.reach(f"after {told}")
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self._inner.stream(request) as stream:
            await self._side.outlive()
            yield Stream(stream.status, stream.headers, self._while_alive(stream))

    async def close(self) -> None:
        await self._inner.close()

    async def _while_alive(self, stream: Stream) -> AsyncIterator[bytes]:
        async for chunk in stream.chunks:
            await self._side.outlive()
            yield chunk
