"""The server of the shims: runs the programs of the model that are called in the sandbox.

The calling user is the peer of the socket; where the processes of all users have the same uid, each user has a separate socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import posixpath
import resource
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bramley.sim.macos import users
from bramley.sim.macos.call import Call, Program, Result, may_replace, not_modelled
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import dscl, unix_tools
from bramley.sim.ssh import actions_runner, sandbox
from bramley.sim.ssh.faults import Faults
from bramley.sim.ssh.processes import Processes
from bramley.sim.ssh.shim import END, INPUT, PROMPT, SOCKET
from bramley.sim.ssh.sudo import Sudo

MAX_CALL = 16 * 1024 * 1024
_STANDARD_FILES = 3
_CREDENTIALS = struct.Struct("3i")
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class ShimServer:
    """The server of one Mac; `on_done` is called after every call."""

    mac: Mac
    faults: Faults
    processes: Callable[[], Processes]
    on_done: Callable[[], None]

    async def serve(self, listener: socket.socket, owner: str | None) -> None:
        """Serve shims until cancelled; without an owner, the user is the peer of the socket."""
        async with asyncio.TaskGroup() as group:
            while True:
                await _readable(listener)
                # No await until the task exists: a cancelled `loop.sock_accept` would leak the accepted socket.
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    accepted, _ = listener.accept()
                    task = group.create_task(self._handle(accepted, owner))
                    # Closes the socket also if the task is cancelled before its first step.
                    task.add_done_callback(functools.partial(_close, accepted))

    async def _handle(self, accepted: socket.socket, owner: str | None) -> None:
        with accepted, contextlib.suppress(ConnectionError):
            accepted.setblocking(False)
            connection = ShimConnection(accepted)
            shim_call = await connection.receive_call()
            try:
                user = owner or users.name_of(self.mac.state, connection.uid()) or "nobody"
                result = await self._result(connection, shim_call, user)
            finally:
                shim_call.close()
            await connection.finish(result)

    async def _result(self, connection: ShimConnection, shim_call: ShimCall, user: str) -> Result:
        if shim_call.argv[0] == "sudo":
            sudo = Sudo(self.mac, self.faults, self.processes())
            return await sudo.run(connection, shim_call, user)
        if shim_call.argv[0] == "dscl" and shim_call.argv[2:-1] in {("-authonly",), ("authonly",)}:
            return await self._authonly(connection, shim_call, user)
        if shim_call.argv[0] == actions_runner.PROGRAM and actions_runner.github_url(self.mac):
            result = await actions_runner.config_sh(self.mac, _model_call(shim_call, user))
            self.on_done()
            return result
        stdin = await connection.input() if "-" in shim_call.argv[1:] else b""
        return self._run(shim_call, user, stdin)

    async def _authonly(self, connection: ShimConnection, shim_call: ShimCall, user: str) -> Result:
        """Read the password without echo; the prompt in the model's result was printed before and is removed."""
        line = await connection.read_line(dscl.PROMPT)
        result = self._run(shim_call, user, line)
        out = result.out.removeprefix(f"{dscl.PROMPT}\n")
        return Result(result.code, out, result.err.removeprefix(dscl.PROMPT))

    def _run(self, shim_call: ShimCall, user: str, stdin: bytes) -> Result:
        call = _model_call(shim_call, user, stdin)
        try:
            result = self._program(shim_call.argv[0])(self.mac, call)
        except OSError as error:
            message = f"{shim_call.argv[0]}: {error.strerror}: {error.filename or ''}".rstrip(": ")
            result = Result(1, err=f"{message}\n")
        except LookupError as error:
            # An unknown user or group.
            result = Result(1, err=f"{shim_call.argv[0]}: {error}\n")
        # At once: after a restart no event may run before the processes are ended.
        self.on_done()
        return result

    def _program(self, name: str) -> Program:
        own = None if sandbox.is_root() else OWNER_PROGRAMS.get(name)
        return own or Mac.run


@contextlib.contextmanager
def listeners(run: Path, names: list[str]) -> Iterator[list[tuple[socket.socket, str | None]]]:
    """Listen below a folder: with one socket for all users, or one for root and one for each other user."""
    with contextlib.ExitStack() as stack:
        owner = None if sandbox.is_root() else "root"
        opened = [(stack.enter_context(_listen(run)), owner)]
        for name in names if owner else ():
            (run / name).mkdir(exist_ok=True)
            opened.append((stack.enter_context(_listen(run / name)), name))
        yield opened


async def _readable(waited: socket.socket) -> None:
    """Wait until a socket has a connection or bytes."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(waited, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(waited)


def _close(accepted: socket.socket, _: asyncio.Task[None]) -> None:
    accepted.close()


def _absolute(shim_call: ShimCall) -> tuple[str, ...]:
    """Return the arguments of a call; those of `OWNER_PROGRAMS` are paths and become absolute."""
    if sandbox.is_root() or shim_call.argv[0] not in OWNER_PROGRAMS:
        return shim_call.argv
    first = 2 if shim_call.argv[0] == "chown" else 1
    words = (
        word if word.startswith(("-", "/")) else f"{shim_call.folder}/{word}"
        for word in shim_call.argv[first:]
    )
    return (*shim_call.argv[:first], *words)


def _model_call(shim_call: ShimCall, user: str, stdin: bytes = b"") -> Call:
    return Call(
        _absolute(shim_call),
        user,
        stdin,
        on_terminal=shim_call.on_terminal,
        environment=shim_call.environment,
    )


def _listen(folder: Path) -> socket.socket:
    """Listen below a folder; by its descriptor, since the path of a socket must be short."""
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(f"/proc/self/fd/{opened}/{SOCKET}")
        (folder / SOCKET).chmod(0o666)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(opened)
    return listener


@dataclass(frozen=True, slots=True)
class ShimCall:
    """A call that a shim sent."""

    argv: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    on_terminal: bool
    largest_file: int | None
    files: tuple[int, int, int]

    def close(self) -> None:
        """Close its files."""
        for file in self.files:
            os.close(file)


@dataclass(frozen=True, slots=True)
class ShimConnection:
    """One shim's connection."""

    connected: socket.socket

    def uid(self) -> int:
        """Return the uid of the peer."""
        raw = self.connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        uid: int = _CREDENTIALS.unpack(raw)[1]
        return uid

    async def receive_call(self) -> ShimCall:
        """Return the call; ConnectionError if the shim does not send one."""
        await _readable(self.connected)
        header, files, _, _ = socket.recv_fds(self.connected, 4, _STANDARD_FILES)
        if len(header) < 4 or len(files) != _STANDARD_FILES:
            for file in files:
                os.close(file)
            raise ConnectionError("no call")
        words = (await self._receive_sized(header)).split(b"\0")[:-1]
        return _parse_call([os.fsdecode(word) for word in words], (files[0], files[1], files[2]))

    async def input(self) -> bytes:
        """Return all of its standard input."""
        await self._send(INPUT)
        return await self._receive_sized(await self._receive_exactly(4))

    async def read_line(self, prompt: str, *, before: str = "") -> bytes:
        """Return one line with its newline, typed at a prompt or read from a pipe."""
        await self._send(PROMPT, "", prompt, before)
        return await self._receive_sized(await self._receive_exactly(4))

    async def finish(self, result: Result) -> None:
        """Send the result of the call."""
        await self._send(END, str(result.code), result.out, result.err)

    async def wait_closed(self) -> None:
        """Wait until the shim has closed the connection."""
        await asyncio.get_running_loop().sock_recv(self.connected, 1)

    async def _send(self, kind: bytes, *texts: str) -> None:
        parts = [text.encode("utf-8", "surrogateescape") for text in (*texts, "", "", "")[:3]]
        content = kind + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        await asyncio.get_running_loop().sock_sendall(self.connected, content)

    async def _receive_sized(self, header: bytes) -> bytes:
        size = int.from_bytes(header, "big")
        if size > MAX_CALL:
            raise ConnectionError("the call is too long")
        return await self._receive_exactly(size)

    async def _receive_exactly(self, size: int) -> bytes:
        loop, parts = asyncio.get_running_loop(), bytearray()
        while len(parts) < size:
            part = await loop.sock_recv(self.connected, size - len(parts))
            if not part:
                raise ConnectionError("the program was killed")
            parts += part
        return bytes(parts)


def _parse_call(words: list[str], files: tuple[int, int, int]) -> ShimCall:
    on_terminal, largest_file, folder, count, *rest = words
    limit = int(largest_file)
    return ShimCall(
        argv=tuple(rest[: int(count)]),
        folder=folder,
        environment=dict(word.split("=", 1) for word in rest[int(count) :]),
        on_terminal=on_terminal == "1",
        largest_file=None if limit == resource.RLIM_INFINITY else limit,
        files=files,
    )


def chown(mac: Mac, call: Call) -> Result:
    """Record a file's owner in the state."""
    if not call.is_root:
        return Result(1, err=f"chown: {call.argv[-1]}: Operation not permitted\n")
    return unix_tools.chown(mac, call)


def mv(mac: Mac, call: Call) -> Result:
    """Rename a file with its recorded owner."""
    paths = [word for word in call.argv[1:] if word not in {"-f", "--"}]
    if len(paths) != 2 or any(path.startswith("-") for path in paths):
        return not_modelled(call)
    old, new = (path.rstrip("/") for path in paths)
    if mac.files.is_folder(new) and (paths[1].endswith("/") or not _is_link(mac, new)):
        new = posixpath.join(new, posixpath.basename(old))
    if mac.files.find(old) is None:
        return Result(1, err=f"mv: {old}: No such file or directory\n")
    if not all(may_replace(mac, call, path) for path in (old, new)):
        return Result(1, err=f"mv: rename {old} to {new}: Permission denied\n")
    try:
        mac.files.rename(old, new)
    except OSError as error:
        return Result(1, err=f"mv: rename {old} to {new}: {error.strerror}\n")
    return Result()


def ls(mac: Mac, call: Call) -> Result:
    """Print one line for each path."""
    result, errors = [], []
    for path in call.argv[2:]:
        file_stat = mac.files.find(path)
        if file_stat is None:
            errors.append(f"ls: {path}: No such file or directory\n")
            continue
        user, _, group = mac.files.owner(path, follow=False).partition(":")
        when = time.strftime("%b %e %H:%M", time.localtime(file_stat.st_mtime))
        to = f" -> {mac.files.target(path)}" if stat.S_ISLNK(file_stat.st_mode) else ""
        result.append(
            f"{stat.filemode(file_stat.st_mode)}  {file_stat.st_nlink} {user}  {group}  {file_stat.st_size} {when} {path}{to}\n"
        )
    return Result(1 if errors else 0, "".join(result), "".join(errors))


OWNER_PROGRAMS: Mapping[str, Program] = {"chown": chown, "mv": mv, "ls": ls}


def _is_link(mac: Mac, path: str) -> bool:
    file_stat = mac.files.find(path)
    return file_stat is not None and stat.S_ISLNK(file_stat.st_mode)
