"""The processes of a simulated Mac for its server: started, signalled and reaped through the Mac's first process.

Starting is one short exchange with that process and waits for nothing else, so programs of the model, which are plain functions, can
start others. When the first process ends, the kernel kills all others.
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

from bramley.base.errors import BadConfiguration, TimedOut
from bramley.sim.macos import users
from bramley.sim.ssh import sandbox
from bramley.sim.ssh.sandbox import Sandbox

# Long, for busy machines; reached only when something is wrong.
_REPLY_SECONDS = 120.0
_EXIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Identity:
    """The user of a process, as on the Mac."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """A program to start, with its user and files."""

    argv: Sequence[str]
    user: Identity
    files: tuple[int, int, int]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    on_terminal: bool = False
    # The size limit of files that it writes, None for no limit; simulates a full disk.
    largest_file: int | None = None
    # The pid of a process that was sent SIGTERM and must have exited before; 0 for none.
    after: int = 0


OnExit = Callable[[int], None]
# Returns the paths that a user owns.
OwnedPaths = Callable[[str], tuple[str, ...]]


class Processes:
    """All processes of one Mac between two boots."""

    def __init__(
        self,
        mac_sandbox: Sandbox,
        process: subprocess.Popen[bytes],
        requests: socket.socket,
        events: socket.socket,
        owned: OwnedPaths,
    ) -> None:
        self._sandbox = mac_sandbox
        self._process = process
        self._requests = requests
        self._events = events
        self._owned = owned
        self._is_running = False
        self._on_exit: dict[int, OnExit] = {}

    @classmethod
    def boot(cls, mac_sandbox: Sandbox, owned: OwnedPaths) -> Processes:
        """Start the Mac's first process; `owned` is used where the kernel does not keep owners."""
        if reason := sandbox.unavailable_reason():
            raise BadConfiguration(reason)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        our_events, their_events = socket.socketpair()
        for each in (ours, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1024 * 1024)
        ours.settimeout(_REPLY_SECONDS)
        with theirs, their_events:
            descriptors = (theirs.fileno(), their_events.fileno())
            process = subprocess.Popen(  # noqa: S603 - bwrap with our own program
                mac_sandbox.command(*map(str, descriptors)),
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
                # Only the server gets Ctrl-C; it then ends everything in order.
                start_new_session=True,
            )
        return cls(mac_sandbox, process, ours, our_events, owned)

    @property
    def pid(self) -> int:
        """Return the pid of the sandbox on this machine."""
        return self._process.pid

    async def run(self) -> None:
        """Receive the exits of processes, until the first process exits."""
        self._is_running = True
        events, writer = await asyncio.open_connection(sock=self._events)
        try:
            while line := await events.readline():
                event = json.loads(line)
                on_exit = self._on_exit.pop(event["pid"], None)
                if on_exit is not None:
                    on_exit(event["code"])
        finally:
            writer.close()

    def start(self, start: ProcessSpec, on_exit: OnExit) -> int:
        """Start a program and return its pid; `on_exit` is called with its exit code, or minus the signal that killed it."""
        pid = self._send(self._request(start), start.files)["pid"]
        self._on_exit[pid] = on_exit
        return int(pid)

    def signal(self, pid: int, number: signal.Signals, *, group: bool = False) -> bool:
        """Send a signal; return False if the process does not exist."""
        request = {"kill": pid, "signal": int(number), "group": group}
        return bool(self._send(request, ())["found"])

    def end(self) -> None:
        """Kill all processes of the Mac."""
        self._requests.close()
        if not self._is_running:
            self._events.close()
        self._process.kill()
        self._process.wait(_EXIT_SECONDS)

    def _request(self, start: ProcessSpec) -> dict[str, Any]:
        return {
            "argv": list(start.argv),
            "env": dict(start.environment),
            "cwd": start.folder,
            "terminal": start.on_terminal,
            "largest_file": start.largest_file,
            "after": start.after,
            "uid": start.user.uid,
            "gid": start.user.gid,
            "groups": list(start.user.groups),
            "mounts": None if sandbox.is_root() else self._mounts(start.user),
        }

    def _mounts(self, user: Identity) -> dict[str, Any]:
        """Return the mounts that give a process a user's permissions without that user on the machine."""
        read_only = [
            each for each in sandbox.ROOT_FOLDERS if (self._sandbox.root / each[1:]).is_dir()
        ]
        inside = tuple(f"{folder}/" for folder in read_only)
        writable = [path for path in self._owned(user.name) if path.startswith(inside)]
        return {"read_only": read_only, "writable": writable, "run": f"{sandbox.RUN}/{user.name}"}

    def _send(self, request: dict[str, Any], files: tuple[int, ...]) -> dict[str, Any]:
        try:
            socket.send_fds(self._requests, [json.dumps(request).encode()], list(files))
            response = self._requests.recv(4096)
        except TimeoutError as error:
            raise TimedOut("the first process of a simulated Mac does not respond") from error
        if not response:
            raise ProcessLookupError("the simulated Mac is going down")
        reply: dict[str, Any] = json.loads(response)
        if "errno" in reply:
            raise OSError(reply["errno"], os.strerror(reply["errno"]))
        return reply


def identity_of(state: Mapping[str, Any], name: str) -> Identity:
    """Return a user of the Mac; LookupError if it does not exist."""
    uid = users.uid_of(state, name)
    if uid is None:
        raise LookupError(name)
    groups = tuple(users.GROUPS[group] for group in users.groups_of(state, name))
    return Identity(name, uid, groups[0], groups)


def account_files(state: Mapping[str, Any]) -> dict[str, str]:
    """Return /etc/passwd and /etc/group for the machine's own programs."""
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
