"""Where shims come to: every program of the model that runs in the Mac's root is answered here, by the one process that holds the model.

Who calls is what the kernel says about the other end; where the machine has but one user for all of a Mac's, each of these has
a door of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bramley.base import log
from bramley.sim.macos import users
from bramley.sim.macos.call import Call, Program, Said
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import dscl
from bramley.sim.ssh import bubble, owners
from bramley.sim.ssh.calls import Asked, Talk
from bramley.sim.ssh.elevating import Elevating
from bramley.sim.ssh.faults import Faults
from bramley.sim.ssh.processes import Processes
from bramley.sim.ssh.shim import DOOR

logger = log.get(__name__)

_WAITING = 128


@dataclass(frozen=True, slots=True)
class Door:
    """The door of one Mac; `done` is called behind every call."""

    mac: Mac
    faults: Faults
    processes: Callable[[], Processes]
    done: Callable[[], None]

    async def serve(self, line: socket.socket, owner: str | None) -> None:
        """Let shims in until cancelled; without an owner, each is who the kernel says."""
        async with asyncio.TaskGroup() as group:
            while True:
                await _called(line)
                # Taken without a wait in between: what asyncio accepts for somebody who is cancelled just then stays open.
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    accepted, _ = line.accept()
                    answering = group.create_task(self._answer(accepted, owner))
                    # Also if it is cancelled before its first step.
                    answering.add_done_callback(functools.partial(_close, accepted))

    async def _answer(self, line: socket.socket, owner: str | None) -> None:
        with line, contextlib.suppress(ConnectionError):
            line.setblocking(False)
            talk = Talk(line)
            asked = await talk.hear()
            try:
                user = owner or users.name_of(self.mac.state, talk.uid()) or "nobody"
                said = await self._said(talk, asked, user)
            finally:
                asked.close()
            await talk.tell(said)

    async def _said(self, talk: Talk, asked: Asked, user: str) -> Said:
        if asked.argv[0] == "sudo":
            elevating = Elevating(self.mac, self.faults, self.processes())
            return await elevating.answer(talk, asked, user)
        if asked.argv[0] == "dscl" and asked.argv[2:-1] in {("-authonly",), ("authonly",)}:
            return await self._authonly(talk, asked, user)
        stdin = await talk.input() if "-" in asked.argv[1:] else b""
        return self._run(asked, user, stdin)

    async def _authonly(self, talk: Talk, asked: Asked, user: str) -> Said:
        """Ask for the password where it is not shown; the model tells prompt and answer at once, we have asked before."""
        line = await talk.typed(dscl.PROMPT)
        said = self._run(asked, user, line)
        out = said.out.removeprefix(f"{dscl.PROMPT}\n")
        return Said(said.code, out, said.err.removeprefix(dscl.PROMPT))

    def _run(self, asked: Asked, user: str, stdin: bytes) -> Said:
        call = Call(_placed(asked), user, stdin, on_terminal=asked.on_terminal)
        try:
            said = self._program(asked.argv[0])(self.mac, call)
        except OSError as error:
            told = f"{asked.argv[0]}: {error.strerror}: {error.filename or ''}".rstrip(": ")
            said = Said(1, err=f"{told}\n")
        except LookupError as error:
            # A user or a group that the Mac does not have.
            said = Said(1, err=f"{asked.argv[0]}: {error}\n")
        # At once: nothing that is due may come between a restart and what it ends.
        self.done()
        return said

    def _program(self, name: str) -> Program:
        own = None if bubble.is_root() else owners.PROGRAMS.get(name)
        return own or Mac.run


@contextlib.contextmanager
def opened(run: Path, names: list[str]) -> Iterator[list[tuple[socket.socket, str | None]]]:
    """Open the doors below a folder: one for all, or root's and one for each other user."""
    with contextlib.ExitStack() as stack:
        if bubble.is_root():
            yield [(stack.enter_context(_listen(run)), None)]
            return
        doors: list[tuple[socket.socket, str | None]] = [
            (stack.enter_context(_listen(run)), "root")
        ]
        for name in names:
            (run / name).mkdir(exist_ok=True)
            doors.append((stack.enter_context(_listen(run / name)), name))
        yield doors


async def _called(line: socket.socket) -> None:
    """Wait until somebody is at a door."""
    loop = asyncio.get_running_loop()
    called = asyncio.Event()
    loop.add_reader(line, called.set)
    try:
        await called.wait()
    finally:
        loop.remove_reader(line)


def _close(line: socket.socket, _: asyncio.Task[None]) -> None:
    line.close()


def _placed(asked: Asked) -> tuple[str, ...]:
    """Return the words of a call, with paths that begin in its folder where only paths are meant."""
    if bubble.is_root() or asked.argv[0] not in owners.PROGRAMS:
        return asked.argv
    first = 2 if asked.argv[0] == "chown" else 1
    words = (
        word if word.startswith(("-", "/")) else f"{asked.folder}/{word}"
        for word in asked.argv[first:]
    )
    return (*asked.argv[:first], *words)


def _listen(folder: Path) -> socket.socket:
    """Listen below a folder, however long its path is."""
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    line = socket.socket(socket.AF_UNIX)
    try:
        line.bind(f"/proc/self/fd/{place}/{DOOR}")
        (folder / DOOR).chmod(0o666)
        line.listen(_WAITING)
        line.setblocking(False)
    except OSError:
        line.close()
        raise
    finally:
        os.close(place)
    return line
