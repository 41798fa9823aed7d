"""One agent process on a simulated Mac: the programs, runs, host facts and transport that it uses, and its end by `kill -9`.

Programs that it had started continue as orphans and die of a broken pipe when they next print; supervisors and VMs are not
affected. `kill` may be called from anywhere, also from `on_checkpoint`, and takes effect there. `reap` then cancels the agent's
tasks and undoes what these wrote while they were cancelled, which a killed process would not have written.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bramley.agent.host import HostProcess, Space, SystemInfo, Usage
from bramley.agent.platform import system
from bramley.agent.programs import ProgramResult
from bramley.api.names import agent as names
from bramley.kube.transport import Request, Response, Stream, Transport
from bramley.sim.mac.processes import LAUNCHD, Call, Process
from bramley.sim.mac.runs import SimulatedRuns
from bramley.sim.tart import bundles

if TYPE_CHECKING:
    from bramley.sim.mac.mac import SimulatedMac


# CPU seconds per second of a process' age, and its memory: constants to report, not a model.
_CPU_SHARE = 0.25
_RESIDENT = 300_000_000
_READS = ("GET", "HEAD")


class AgentProcess:
    """One agent process; `on_checkpoint` is called wherever a kill would have a different outcome."""

    def __init__(self, mac: SimulatedMac, pid: int) -> None:
        self.mac = mac
        self.pid = pid
        self.is_alive = True
        self.on_checkpoint: Callable[[str], None] | None = None
        self.programs = SimulatedPrograms(self)
        self.runs = SimulatedRuns(self)
        exit_code = asyncio.get_running_loop().create_future()
        # Not in the table, which has no agents; it only holds locks.
        self._process = Process(pid, (names.NAME,), LAUNCHD, pid, mac.clock.now(), exit_code)
        self.host = SimulatedHost(mac, self._process)
        self._disk_at_death: Snapshot | None = None

    def kill(self) -> None:
        """Kill the agent's process."""
        if self.is_alive:
            self.is_alive = False
            # The tasks of the dead agent, which are cancelled later, must not acquire a lock again.
            self._process.exit_code.set_result(-signal.SIGKILL)
            for release in self._process.on_exit:
                release()
            self._disk_at_death = Snapshot(self.mac.folders.state, self.mac.folders.user_data)

    async def reap(self, agent: asyncio.Task[object]) -> None:
        """Cancel the dead agent's task and restore the disk to its state at the death."""
        self.kill()
        agent.cancel()
        await asyncio.wait((agent,))
        if self._disk_at_death is not None:
            self._disk_at_death.restore()

    async def checkpoint(self, label: str) -> None:
        """Report a checkpoint; a dead agent does not continue after it."""
        if not self.is_alive:
            # Its task is being cancelled already.
            raise asyncio.CancelledError
        self.notify_checkpoint(label)
        await self.block_if_dead()

    def notify_checkpoint(self, label: str) -> None:
        """Report a checkpoint at which the agent cannot wait; if it is killed here, `reap` undoes its later writes."""
        if self.is_alive and self.on_checkpoint is not None:
            self.on_checkpoint(label)

    async def block_if_dead(self) -> None:
        """Return if the agent is alive; otherwise wait until `reap` cancels the task."""
        if not self.is_alive:
            await asyncio.get_running_loop().create_future()

    def transport(self, inner: Transport) -> Transport:
        """Return a transport that stops with the agent and makes each write a checkpoint."""
        return _AgentTransport(self, inner)


class _AgentTransport:
    def __init__(self, agent: AgentProcess, inner: Transport) -> None:
        self._agent = agent
        self._inner = inner

    async def send(self, request: Request) -> Response:
        if request.method in _READS:
            response = await self._inner.send(request)
            await self._agent.block_if_dead()
            return response
        label = f"{request.method} {request.path}"
        await self._agent.checkpoint(f"before {label}")
        response = await self._inner.send(request)
        await self._agent.checkpoint(f"after {label}")
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self._inner.stream(request) as stream:
            await self._agent.block_if_dead()
            yield Stream(stream.status, stream.headers, self._while_alive(stream))

    async def close(self) -> None:
        await self._inner.close()

    async def _while_alive(self, stream: Stream) -> AsyncIterator[bytes]:
        async for chunk in stream.chunks:
            await self._agent.block_if_dead()
            yield chunk


class SimulatedPrograms:
    """Runs programs of one simulated Mac for one agent."""

    def __init__(self, agent: AgentProcess) -> None:
        self._agent = agent

    async def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        on_line: Callable[[str], None] | None = None,
        gate: asyncio.Event | None = None,
    ) -> ProgramResult:
        """Run a program to its end; cancelling kills its group, unless it is the agent that died."""
        agent = self._agent
        label = _verb_name(argv)
        await agent.checkpoint(f"before {label}")
        pipes = _OutputPipes(agent, on_line)
        call = Call(argv, pipes.out, pipes.err, dict(environment or {}), stdin)
        process = pipes.process = agent.mac.start(call, parent=agent.pid)
        process.gate = gate
        agent.notify_checkpoint(f"within {label}")
        try:
            code = await asyncio.shield(process.exit_code)
        except asyncio.CancelledError:
            if agent.is_alive:
                agent.mac.table.kill_group(process.group)
            raise
        await agent.checkpoint(f"after {label}")
        return ProgramResult(code, _text(pipes.stdout), _text(pipes.stderr))


@dataclass(slots=True)
class _OutputPipes:
    """The agent's end of a program's output; writing to it after the agent's end is a broken pipe."""

    agent: AgentProcess
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
        if not self.agent.is_alive and self.process is not None:
            self.agent.mac.table.kill(self.process.pid, signal.SIGPIPE)
            # This runs in the process itself, which must not continue after its write.
            raise asyncio.CancelledError


def _verb_name(argv: Sequence[str]) -> str:
    """Return the program and its verb; checkpoints have the same name for every VM."""
    name = argv[0].rpartition("/")[2]
    return " ".join([name, *argv[1:2]])


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


class SimulatedHost:
    """The facts about the host that the agent reads."""

    def __init__(self, mac: SimulatedMac, agent: Process) -> None:
        self._mac = mac
        self._agent = agent

    def boot_id(self) -> str:
        """Return an id that changes with each reboot."""
        return self._mac.boot_id

    def system_info(self) -> SystemInfo:
        """Return a Mac with macOS 26.3; two simulated Macs have different UUIDs."""
        return self._mac.system_info

    def is_locked(self, path: Path) -> bool:
        """Return whether a process has locked a file, in whichever way: macOS has one list for both kinds of locks."""
        tart = self._mac.tart
        return any(locks.holder(str(path)) for locks in (tart.run_locks, tart.flocks))

    def lock_holder(self, path: Path) -> int | None:
        """Return the pid that holds the lock of a VM's config.json; an `flock` has no pid."""
        holder = self._mac.tart.run_locks.holder(str(path))
        return holder.pid if holder else None

    def lock_folder(self, folder: Path) -> Callable[[], None] | None:
        """Acquire the lock of a staging folder for the agent."""
        locks, path, agent = self._mac.tart.flocks, str(folder), self._agent
        is_lockable = folder.is_dir() and not folder.is_symlink() and agent.is_alive
        if not is_lockable or locks.holder(path) is not None:
            return None
        locks.try_acquire(path, agent)
        return lambda: locks.release(path, agent)

    def space(self, path: Path) -> Space:  # noqa: ARG002 - there is only one volume
        """Return the space of the only volume."""
        return self._mac.space()

    def allocated(self, folder: Path) -> int:
        """Return the allocated bytes of a VM's simulated disk."""
        return bundles.allocated_size(str(folder))

    def guest_processes(self) -> list[HostProcess]:
        """Return the processes of guests and of the tarts that run them."""
        living = self._mac.table.living()
        return [HostProcess(each.pid, each.argv) for each in living if system.runs_vm(each.argv)]

    def processes(self) -> list[HostProcess]:
        """Return all processes."""
        return [HostProcess(each.pid, each.argv) for each in self._mac.table.living()]

    def ancestors(self, pid: int) -> list[int]:
        """Return a process and its ancestors up to launchd."""
        found: list[int] = []
        while (process := self._mac.table.find(pid)) is not None:
            found.append(pid)
            pid = process.parent
        return found

    def usage(self, pid: int) -> Usage | None:
        """Return the resources that a process has used."""
        process = self._mac.table.find(pid)
        if process is None:
            return None
        age = self._mac.clock.now() - process.started_at
        return Usage(cpu=age * _CPU_SHARE, resident_bytes=_RESIDENT)

    def address(self) -> str | None:
        """Return the Mac's address."""
        return self._mac.address


class Snapshot:
    """A copy of the folders and regular files below some folders; links and pipes are ignored."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._entries = _entries(folders)

    def restore(self) -> None:
        """Restore what was written, removed or added since."""
        now = _entries(self._folders)
        for path in sorted(now.keys() - self._entries.keys(), reverse=True):
            _remove(path)
        for path, saved in sorted(self._entries.items()):
            if now.get(path) != saved:
                _restore_one(path, saved)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A folder (no content), or a file with its content."""

    mode: int
    content: bytes | None


def _entries(folders: tuple[Path, ...]) -> dict[Path, _Entry]:
    entries: dict[Path, _Entry] = {}
    for folder in folders:
        for path_name, _, files in os.walk(folder):
            parent = Path(path_name)
            entries[parent] = _Entry(parent.stat().st_mode, None)
            for path in (parent / name for name in files):
                if path.is_file() and not path.is_symlink():
                    entries[path] = _Entry(path.stat().st_mode, path.read_bytes())
    return entries


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _restore_one(path: Path, saved: _Entry) -> None:
    if saved.content is None:
        path.mkdir(parents=True, exist_ok=True)
    else:
        path.write_bytes(saved.content)
    path.chmod(saved.mode & 0o7777)
