"""The processes of a simulated Mac as its server sees them: started, signalled and heard of through the Mac's first process.

Starting is one short exchange with that process and does not wait for anything else, so that programs of the model, which are
plain functions, can start others. When the first process ends, however it does, the kernel ends all others.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bramley.base import log
from bramley.base.errors import BadConfiguration, TimedOut
from bramley.sim.macos import users
from bramley.sim.ssh import sandbox
from bramley.sim.ssh.sandbox import Sandbox

# Of a machine that is busy with something else: waited for in full only when something is wrong.
_ANSWERS_WITHIN = 120.0
_ENDS_WITHIN = 120.0


logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is on the Mac."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A program to start, as whom, with which files."""

    argv: Sequence[str]
    who: Identity
    files: tuple[int, int, int]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    on_terminal: bool = False
    # The largest file that it may write; None: any. A full disk is made of it.
    largest_file: int | None = None
    # A process that must have gone before; it was asked to.
    after: int = 0


Ended = Callable[[int], None]

Owned = Callable[[str], tuple[str, ...]]


class Processes:
    """All processes of one Mac between two boots."""

    def __init__(
        self,
        home: Sandbox,
        process: subprocess.Popen[bytes],
        requests: socket.socket,
        events: socket.socket,
        owned: Owned,
    ) -> None:
        self._home = home
        self._process = process
        self._requests = requests
        self._events = events
        self._owned = owned
        self._is_heard = False
        self._waiting: dict[int, Ended] = {}

    @classmethod
    def boot(cls, home: Sandbox, owned: Owned = lambda _: ()) -> Processes:
        """Start the Mac's first process; `owned` tells what a user owns, where the kernel does not."""
        if why := sandbox.missing():
            raise BadConfiguration(why)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        hears, tells = socket.socketpair()
        for each in (ours, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1024 * 1024)
        ours.settimeout(_ANSWERS_WITHIN)
        with theirs, tells:
            numbers = (theirs.fileno(), tells.fileno())
            process = subprocess.Popen(  # noqa: S603 - bwrap and a file of ours
                home.command(*map(str, numbers)),
                stdin=subprocess.DEVNULL,
                pass_fds=numbers,
                # Ctrl-C is for the server, which then ends everything in order.
                start_new_session=True,
            )
        return cls(home, process, ours, hears, owned)

    @property
    def pid(self) -> int:
        """Return the machine's pid of the bubble, for those who look from outside."""
        return self._process.pid

    async def run(self) -> None:
        """Hear of processes that end, until the first one does."""
        self._is_heard = True
        events, closing = await asyncio.open_connection(sock=self._events)
        try:
            while line := await events.readline():
                event = json.loads(line)
                ended = self._waiting.pop(event["pid"], None)
                if ended is not None:
                    ended(event["code"])
        finally:
            closing.close()

    def start(self, start: Start, ended: Ended) -> int:
        """Start a program and return its pid; `ended` is called with its exit code, or minus the signal that ended it."""
        pid = self._ask(self._request(start), start.files)["pid"]
        self._waiting[pid] = ended
        return int(pid)

    def signal(self, pid: int, number: signal.Signals, *, group: bool = False) -> bool:
        """Send a signal; false if there is no such process any more."""
        request = {"kill": pid, "signal": int(number), "group": group}
        return bool(self._ask(request, ())["found"])

    def end(self) -> None:
        """End every process of the Mac at once."""
        self._requests.close()
        if not self._is_heard:
            self._events.close()
        self._process.kill()
        self._process.wait(_ENDS_WITHIN)

    def _request(self, start: Start) -> dict[str, Any]:
        return {
            "argv": list(start.argv),
            "env": dict(start.environment),
            "cwd": start.folder,
            "terminal": start.on_terminal,
            "largest_file": start.largest_file,
            "after": start.after,
            "uid": start.who.uid,
            "gid": start.who.gid,
            "groups": list(start.who.groups),
            "plain": None if sandbox.is_root() else self._plain(start.who),
        }

    def _plain(self, who: Identity) -> dict[str, Any]:
        """Return what makes one user of the Mac out of the only one that the machine knows."""
        closed = [each for each in sandbox.OF_ROOT if (self._home.root / each[1:]).is_dir()]
        inside = tuple(f"{folder}/" for folder in closed)
        opened = [path for path in self._owned(who.name) if path.startswith(inside)]
        return {"closed": closed, "opened": opened, "run": f"{sandbox.RUN}/{who.name}"}

    def _ask(self, request: dict[str, Any], files: tuple[int, ...]) -> dict[str, Any]:
        try:
            socket.send_fds(self._requests, [json.dumps(request).encode()], list(files))
            answer = self._requests.recv(4096)
        except TimeoutError as error:
            raise TimedOut("the first process of a simulated Mac does not answer") from error
        if not answer:
            raise ProcessLookupError("the simulated Mac is going down")
        reply: dict[str, Any] = json.loads(answer)
        if "errno" in reply:
            raise OSError(reply["errno"], os.strerror(reply["errno"]))
        return reply


def identity_of(state: Mapping[str, Any], name: str) -> Identity:
    """Return a user of the Mac; LookupError if there is none of this name."""
    uid = users.uid_of(state, name)
    if uid is None:
        raise LookupError(name)
    groups = tuple(users.GROUPS[group] for group in users.groups_of(state, name))
    return Identity(name, uid, groups[0], groups)


def account_files(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the files from which ordinary programs know users and groups by name."""
    accounts = [
        f"{name}:*:{identity_of(state, name).uid}:{identity_of(state, name).gid}:{name}:{user['home']}:/bin/zsh\n"
        for name, user in state["users"].items()
    ]
    members = {
        group: ",".join(name for name in state["users"] if group in users.groups_of(state, name))
        for group in users.GROUPS
    }
    groups = [f"{group}:*:{gid}:{members[group]}\n" for group, gid in users.GROUPS.items()]
    return {"/etc/passwd": "".join(accounts), "/etc/group": "".join(groups)}
