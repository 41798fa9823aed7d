"""The SSH server of a simulated Mac: who may log in with what, and a session for each command.

Passwords are judged by the Mac's directory, where every wrong one counts; keys are read from the user's own file at each
attempt, and like sshd we do not take that file's word if others could have written it.
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
from bramley.sim.ssh.faults import Do, Faults
from bramley.sim.ssh.processes import Processes
from bramley.sim.ssh.session import Login, Session

logger = log.get(__name__)

_ENDS_WITHIN = 60.0
_HEARD_LAST = 10_000
_WRITABLE_BY_OTHERS = 0o022
# The fastest that both sides have: a simulated line needs no more.
CIPHERS = ("aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com", "aes256-ctr")


@dataclass(slots=True)
class Sshd:
    """What all connections to one Mac share."""

    mac: Mac
    faults: Faults
    processes: Callable[[], Processes]
    connections: set[asyncssh.SSHServerConnection] = field(default_factory=set)
    # The text of every command that came, of very many the last; the newest last.
    heard: list[str] = field(default_factory=list)
    _running: set[asyncio.Task[None]] = field(default_factory=set)

    def server(self) -> Server:
        """Return the side that one new connection talks to."""
        return Server(self)

    def drop(self) -> None:
        """Break every line, without a word."""
        for connection in list(self.connections):
            connection.abort()

    async def end(self) -> None:
        """Break every line and wait until nothing of ours is under way."""
        self.drop()
        if self._running:
            await asyncio.wait(self._running, timeout=_ENDS_WITHIN)

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
        self.heard.append(channel.command or "")
        del self.heard[:-_HEARD_LAST]
        login = Login(
            processes.identity_of(self.mac.state, name),
            users.home_of(self.mac.state, name),
            _peer(connection),
        )
        await Session(channel, login, self.processes(), self.faults).run()


class Server(asyncssh.SSHServer):
    """One connection, from its first byte on."""

    def __init__(self, sshd: Sshd) -> None:
        self._sshd = sshd
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Take note of the connection, or break it: a Mac that restarts answers nobody."""
        self._connection = conn
        self._sshd.connections.add(conn)
        if not self._sshd.mac.is_up or self._sshd.faults.strike(Do.REFUSE):
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        del exc
        if self._connection is not None:
            self._sshd.connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        """Ask everybody for a proof."""
        del username
        return True

    def password_auth_supported(self) -> bool:
        """Take passwords."""
        return True

    def validate_password(self, username: str, password: str) -> bool:
        """Let the Mac's directory judge a password."""
        mac = self._sshd.mac
        with mac.change() as state:
            verdict = users.check(state, username, password, now=mac.now())
        return verdict is users.Verdict.RIGHT and username != "root"

    def public_key_auth_supported(self) -> bool:
        """Take keys."""
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Look for the key in the user's file."""
        return key.public_data in _authorized(self._sshd.mac, username)


def _authorized(mac: Mac, name: str) -> set[bytes]:
    """Return the keys that a user lets in; none if the file could be somebody else's work."""
    if name not in mac.state["users"]:
        return set()
    home = users.home_of(mac.state, name)
    path = f"{home}/.ssh/authorized_keys"
    places = (home, f"{home}/.ssh", path)
    if not all(mac.files.exists(place) for place in places):
        return set()
    if any(mac.files.mode(place) & _WRITABLE_BY_OTHERS for place in places):
        logger.info("Keys ignored", mac=mac.root.name, user=name, reason="bad ownership or modes")
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
