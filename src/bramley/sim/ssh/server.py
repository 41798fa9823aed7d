"""A simulated Mac behind SSH, whole: its model, its bubble, its doors and its SSH server, from `async with` to its end.

Everything that runs on the Mac ends with it, also when this process is killed. A restart of the Mac breaks every line, ends
every process, and lets nobody in until it is up again.
"""

from __future__ import annotations

import asyncio
import fcntl
import posixpath
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncssh

from bramley.api.names import host
from bramley.base import log
from bramley.base.clock import Clock, SystemClock
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import kcpassword
from bramley.sim.macos import boot, programs
from bramley.sim.macos.call import Call
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.state import FOLDER
from bramley.sim.ssh import processes, sandbox, shim_server, tart_bundle
from bramley.sim.ssh.faults import FILE, Do, Faults
from bramley.sim.ssh.launchd_jobs import ProcessSpawner
from bramley.sim.ssh.processes import Processes
from bramley.sim.ssh.sandbox import Sandbox
from bramley.sim.ssh.shim_server import Door
from bramley.sim.ssh.sshd import CIPHERS, Sshd

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
_MACHINE_FILES = ("/etc/ssl/openssl.cnf",)
_LOOK_EVERY = 0.1
_LOGS_IN_WITHIN = 60.0
_WAITING = 100
_HELD = "served"
_KEY_KIND = "ssh-ed25519"


logger = log.get(__name__)


class SimulatedHost:
    """One simulated Mac, to be used as `async with SimulatedHost(folder) as host`; a folder that is empty becomes a bare Mac."""

    def __init__(
        self,
        root: Path,
        *,
        listen: str = "127.0.0.1",
        port: int = 0,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.root = root.absolute()
        self.faults = Faults(self.root / FOLDER / FILE, self._notice)
        self.listen = listen
        self.port = port
        self._settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._launching = ProcessSpawner()
        self._exits = AsyncExitStack()
        self._lent = self.root / FOLDER / "lent"
        self._other_key: asyncssh.SSHKey | None = None

    # There from the beginning of `async with` on.
    mac: Mac
    sshd: Sshd
    _processes: Processes
    _is_new: bool
    _boot_id: str | None
    _acceptor: asyncssh.SSHAcceptor
    _own_key: asyncssh.SSHKey
    _shown: asyncssh.SSHKey

    @property
    def host_key(self) -> str:
        """Return the public half of the key that it shows now, as a line of known_hosts has it."""
        kind, key, *_ = self._shown.export_public_key().decode().split()
        return f"{kind} {key}"

    @property
    def fingerprint(self) -> str:
        """Return the short form of that key, as `ssh` shows it to people."""
        return self._shown.get_fingerprint()

    @property
    def heard(self) -> list[str]:
        """Return the text of every command that came over SSH."""
        return self.sshd.heard

    @property
    def pid(self) -> int:
        """Return this machine's process id of the whole Mac."""
        return self._processes.pid

    async def __aenter__(self) -> Self:
        await self._exits.enter_async_context(self._served())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._exits.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            # What went wrong inside is told as it is, unless more went wrong here.
            if group.exceptions != (error,):
                raise

    def end(self) -> None:
        """End everything that runs on the Mac, at once."""
        self._processes.end()

    def change_host_key(self) -> None:
        """Show another key from the next connection on, as after a reinstallation."""
        self.mac.files.remove(HOST_KEY)
        self._own_key = _own_key(self.mac)
        self._notice()

    @asynccontextmanager
    async def _served(self) -> AsyncIterator[None]:
        if why := sandbox.missing():
            raise BadConfiguration(why)
        with self._bound() as bound, _alone(self.root):
            self._open()
            try:
                async with asyncio.TaskGroup() as group, self._answering(group, bound):
                    yield
            finally:
                self._processes.end()

    def _bound(self) -> socket.socket:
        """Take the port before anything else: a taken one is told at once."""
        try:
            bound = socket.create_server((self.listen, self.port), backlog=_WAITING)
        except OSError as error:
            raise BadConfiguration(
                f"cannot listen on {self.listen}:{self.port}: {error.strerror}; choose another address"
            ) from error
        self.port = int(bound.getsockname()[1])
        return bound

    def _open(self) -> None:
        """Lay the Mac out, or switch on the one that is there."""
        is_new = not Mac.is_made(self.root)
        self.mac = (
            Mac.make(
                self.root,
                settings=self._settings,
                clock=self._clock,
                spawner=self._launching,
            )
            if is_new
            else Mac(self.root, clock=self._clock, spawner=self._launching)
        )
        sandbox.lay_out(self._lent, programs.PROGRAMS, shim_server.OWNER_PROGRAMS)
        _complete(self.mac)
        self._own_key = _own_key(self.mac)
        self.sshd = Sshd(self.mac, self.faults, lambda: self._processes)
        self._boot()
        self._is_new = is_new

    def _switch_on(self) -> None:
        """Start what a boot starts; nothing of what ran when the Mac was served last runs any more."""
        if not self._is_new:
            with self.mac.change() as state:
                boot.go_down(self.mac, state)
                boot.start(self.mac, state)
        self._boot_id = self._seen_boot()

    @asynccontextmanager
    async def _answering(
        self, group: asyncio.TaskGroup, bound: socket.socket
    ) -> AsyncIterator[None]:
        """Let shims and SSH in."""
        names = [name for name in self.mac.state["users"] if name != "root"]
        tasks = []
        with shim_server.opened(self._lent / "run", names) as doors:
            # Programs of jobs come to the door as soon as they run.
            self._switch_on()
            at = Door(self.mac, self.faults, lambda: self._processes, self._notice)
            try:
                tasks += [group.create_task(at.serve(*each)) for each in doors]
                tasks.append(group.create_task(self._watch(group)))
                async with self._listening(bound):
                    yield
            finally:
                self._processes.end()
                for task in tasks:
                    task.cancel()

    @asynccontextmanager
    async def _listening(self, bound: socket.socket) -> AsyncIterator[None]:
        self._shown = self._desired_key()
        self._acceptor = await asyncssh.listen(
            sock=bound,
            server_factory=self.sshd.server,
            process_factory=self.sshd.run,
            server_host_keys=[self._shown],
            encryption_algs=CIPHERS,
            compression_algs=None,
            encoding=None,
            line_editor=False,
            login_timeout=_LOGS_IN_WITHIN,
        )
        try:
            yield
        finally:
            self._acceptor.close()
            await self.sshd.end()
            await self._acceptor.wait_closed()

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        """Let come what is due, and hear of processes that ended, from boot to boot."""
        hearing: tuple[Processes, asyncio.Task[None]] | None = None
        while True:
            self._notice()
            if hearing is None or hearing[0] is not self._processes:
                hearing = (self._processes, group.create_task(self._processes.run()))
            # Whatever is due happens when somebody looks.
            _ = self.mac.state
            tart_bundle.mark_session(self.mac)
            await asyncio.sleep(_LOOK_EVERY)

    def _notice(self) -> None:
        """Go down with the Mac, and show the key that it should."""
        if self._boot_id != self._seen_boot():
            self._boot_id = self._seen_boot()
            if self._boot_id is None:
                logger.info("Going down", mac=self.root.name)
                self.sshd.drop()
                self._processes.end()
                self._boot()
        key = self._desired_key()
        if key is not self._shown:
            self._shown = key
            self._acceptor.update(server_host_keys=[key])

    def _seen_boot(self) -> str | None:
        """Return the name of this boot, None while there is none; nothing that is due happens by this look."""
        boot = self.mac.store.read()["boot"]
        return None if "back_at" in boot else str(boot["boot_id"])

    def _boot(self) -> None:
        home = Sandbox(self.root, self._lent, self.mac.store.read()["host_name"])
        self._processes = Processes.boot(home, self._owned)
        self._launching.booted(self._processes)

    def _owned(self, user: str) -> tuple[str, ...]:
        kept = self.mac.store.read()["owners"].items()
        return tuple(path for path, owner in kept if owner.partition(":")[0] == user)

    def _desired_key(self) -> asyncssh.SSHKey:
        if not self.faults.has(Do.OTHER_HOST_KEY):
            return self._own_key
        if self._other_key is None:
            self._other_key = asyncssh.generate_private_key(_KEY_KIND)
        return self._other_key


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Hold a Mac's folder: two servers of one Mac would undo each other's work."""
    # Its state holds passwords.
    (root / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    with (root / FOLDER / _HELD).open("ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadConfiguration(
                f"the Mac in {root} is switched on already, by another process"
            ) from error
        yield


def _own_key(mac: Mac) -> asyncssh.SSHKey:
    """Return the Mac's own key, which it makes when it has none."""
    kept = mac.files.read(HOST_KEY)
    if kept is None:
        kept = asyncssh.generate_private_key(_KEY_KIND).export_private_key()
        mac.files.write(HOST_KEY, kept, mode=0o600)
    return asyncssh.import_private_key(kept)


def _complete(mac: Mac) -> None:
    """Write what ordinary programs of this machine look for and a model does not need."""
    for folder in sandbox.mounted():
        # Else the bubble makes them, at some moment after the Mac has begun to answer.
        if not mac.files.exists(folder):
            mac.files.make_folder(folder)
    for path, text in processes.account_files(mac.state).items():
        if mac.files.read(path) != text.encode():
            mac.files.write(path, text.encode())
    for path in _MACHINE_FILES:
        if not mac.files.exists(path) and Path(path).is_file():
            mac.files.make_folder(posixpath.dirname(path))
            mac.files.write(path, Path(path).read_bytes())


def make_ready(mac: Mac) -> None:
    """Do by hand what preparing a Mac does; done twice it changes nothing more."""
    user, password = mac.state["settings"]["user"], mac.state["settings"]["password"]
    line = f"{user} ALL=(ALL) NOPASSWD: ALL\n"
    mac.files.write(host.sudoers(user), line.encode(), mode=0o440)
    mac.files.write(host.KCPASSWORD, kcpassword.encode(Secret(password)), mode=0o600)
    preferences = host.LOGINWINDOW_DEFAULTS
    for words in (
        ("defaults", "write", preferences, "autoLoginUser", user),
        ("launchctl", "kickstart", "-k", "system/com.apple.loginwindow"),
    ):
        result = mac.run(Call(words, "root"))
        if result.code:
            raise RuntimeError(f"{' '.join(words)}: {result.err}")
