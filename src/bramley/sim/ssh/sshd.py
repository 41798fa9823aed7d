"""The SSH server of a simulated Mac: authentication, and a session for each command.

Passwords are checked by the Mac's directory, where every wrong one counts; keys are read from the user's file at each attempt, which is
ignored if others may write it, as by sshd's StrictModes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import asyncssh

from bramley.base import log
from bramley.sim.macos import users
from bramley.sim.macos.mac import Mac
from bramley.sim.ssh import processes
from bramley.sim.ssh.faults import FaultKind, Faults
from bramley.sim.ssh.processes import Processes
from bramley.sim.ssh.session import Login, Session

logger = log.get(__name__)

_END_SECONDS = 60.0
_MAX_COMMANDS = 10_000
_WRITABLE_BY_OTHERS = 0o022
# The fastest ones: a simulated connection needs no strong ones.
CIPHERS = ("aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com", "aes256-ctr")


@dataclass(slots=True)
class Sshd:
    """The state that all connections to one Mac share."""

    mac: Mac
    faults: Faults
    processes: Callable[[], Processes]
    connections: set[asyncssh.SSHServerConnection] = field(default_factory=set)
    # The received commands, at most the last `_MAX_COMMANDS`.
    commands: list[str] = field(default_factory=list)
    _running: set[asyncio.Task[None]] = field(default_factory=set)

    def server(self) -> Server:
        """Return the handler of one new connection."""
        return Server(self)

    def drop(self) -> None:
        """Abort all connections."""
        for connection in list(self.connections):
            connection.abort()

    async def end(self) -> None:
        """Abort all connections and wait for their sessions."""
        self.drop()
        if self._running:
            await asyncio.wait(self._running, timeout=_END_SECONDS)

    async def run(self, channel: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run one command."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        self._running.add(task)
        try:
            await self._run(channel)
        finally:
            self._running.discard(task)

    async def _run(self, channel: asyncssh.SSHServerProcess[bytes]) -> None:
        connection = channel.get_extra_info("connection")
        name = str(connection.get_extra_info("username"))
        self.commands.append(channel.command or "")
        del self.commands[:-_MAX_COMMANDS]
        login = Login(
            processes.identity_of(self.mac.state, name),
            users.home_of(self.mac.state, name),
            _peer(connection),
        )
        await Session(channel, login, self.processes(), self.faults).run()


class Server(asyncssh.SSHServer):
    """The handler of one connection."""

    def __init__(self, sshd: Sshd) -> None:
        self._sshd = sshd
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Register the connection, or abort it: a Mac that restarts does not answer."""
        self._connection = conn
        self._sshd.connections.add(conn)
        if not self._sshd.mac.is_up or self._sshd.faults.take(FaultKind.REFUSE):
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister the connection."""
        del exc
        if self._connection is not None:
            self._sshd.connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        """Require authentication from every user."""
        del username
        return True

    def password_auth_supported(self) -> bool:
        """Support passwords."""
        return True

    def validate_password(self, username: str, password: str) -> bool:
        """Check a password with the Mac's directory."""
        mac = self._sshd.mac
        with mac.change() as state:
            verdict = users.check(state, username, password, now=mac.now())
        return verdict is users.Verdict.RIGHT and username != "root"

    def public_key_auth_supported(self) -> bool:
        """Support public keys."""
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Search for the key in the user's file."""
        return key.public_data in _authorized(self._sshd.mac, username)


def _authorized(mac: Mac, name: str) -> set[bytes]:
    """Return the authorized keys of a user; none if others may write the file."""
    if name not in mac.state["users"]:
        return set()
    home = users.home_of(mac.state, name)
    path = f"{home}/.ssh/authorized_keys"
    places = (home, f"{home}/.ssh", path)
    if not all(mac.files.exists(place) for place in places):
        return set()
    if any(mac.files.mode(place) & _WRITABLE_BY_OTHERS for place in places):
        logger.info(
            "Ignoring authorized_keys",
            mac=mac.root.name,
            user=name,
            reason="bad ownership or modes",
        )
        return set()
    keys = set()
    for line in mac.files.text(path).splitlines():
        try:
            keys.add(asyncssh.import_public_key(line.strip()).public_data)
        except asyncssh.KeyImportError:
            continue
    return keys


def _peer(connection: asyncssh.SSHServerConnection) -> str:
    client = connection.get_extra_info("peername") or ("127.0.0.1", 0)
    server = connection.get_extra_info("sockname") or ("127.0.0.1", 22)
    return f"{client[0]} {client[1]} {server[0]} {server[1]}"
