"""A simulated Mac behind SSH: its model, sandbox, shim server and SSH server.

Everything that runs on the Mac ends with it, also when this process is killed. A restart of the Mac aborts all connections, kills all
processes, and refuses connections until the Mac is up again.
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
from bramley.sim.ssh.faults import FILE, FaultKind, Faults
from bramley.sim.ssh.launchd_jobs import ProcessSpawner
from bramley.sim.ssh.processes import Processes
from bramley.sim.ssh.sandbox import Sandbox
from bramley.sim.ssh.shim_server import ShimServer
from bramley.sim.ssh.sshd import CIPHERS, Sshd

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
_MACHINE_FILES = ("/etc/ssl/openssl.cnf",)
_POLL_SECONDS = 0.1
_LOGIN_SECONDS = 60.0
_BACKLOG = 100
_LOCK = "served"
_KEY_KIND = "ssh-ed25519"


logger = log.get(__name__)


class SimulatedHost:
    """One simulated Mac, for `async with SimulatedHost(folder) as host`; a bare Mac is made in an empty folder."""

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
        self.faults = Faults(self.root / FOLDER / FILE, self._sync)
        self.listen = listen
        self.port = port
        self._settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._spawner = ProcessSpawner()
        self._exits = AsyncExitStack()
        self._support = self.root / FOLDER / "support"
        self._other_key: asyncssh.SSHKey | None = None

    # Set when `async with` begins.
    mac: Mac
    sshd: Sshd
    _processes: Processes
    _is_new: bool
    _boot_id: str | None
    _acceptor: asyncssh.SSHAcceptor
    _own_key: asyncssh.SSHKey
    _presented_key: asyncssh.SSHKey

    @property
    def host_key(self) -> str:
        """Return the public key that it presents now, in the format of known_hosts."""
        kind, key, *_ = self._presented_key.export_public_key().decode().split()
        return f"{kind} {key}"

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of that key, as printed by `ssh`."""
        return self._presented_key.get_fingerprint()

    @property
    def commands(self) -> list[str]:
        """Return the text of the commands that were received over SSH."""
        return self.sshd.commands

    @property
    def pid(self) -> int:
        """Return the pid of the sandbox on this machine."""
        return self._processes.pid

    async def __aenter__(self) -> Self:
        await self._exits.enter_async_context(self._serve())
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
            # An error of the block is raised as it is, unless there are other errors.
            if group.exceptions != (error,):
                raise

    def end(self) -> None:
        """Kill all processes of the Mac."""
        self._processes.end()

    def change_host_key(self) -> None:
        """Present another host key from the next connection on, as after a reinstallation."""
        self.mac.files.remove(HOST_KEY)
        self._own_key = _own_key(self.mac)
        self._sync()

    @asynccontextmanager
    async def _serve(self) -> AsyncIterator[None]:
        if reason := sandbox.unavailable_reason():
            raise BadConfiguration(reason)
        # The port is bound first, so that a port in use is reported before the folder changes.
        with self._bind() as bound, _exclusive(self.root):
            self._open()
            try:
                async with asyncio.TaskGroup() as group, self._serve_shims(group, bound):
                    yield
            finally:
                self._processes.end()

    def _bind(self) -> socket.socket:
        try:
            bound = socket.create_server((self.listen, self.port), backlog=_BACKLOG)
        except OSError as error:
            raise BadConfiguration(
                f"cannot listen on {self.listen}:{self.port}: {error.strerror}; choose another address"
            ) from error
        self.port = int(bound.getsockname()[1])
        return bound

    def _open(self) -> None:
        """Open the Mac, or make a bare one, and start its first process."""
        self._is_new = not Mac.is_complete(self.root)
        self.mac = Mac(self.root, clock=self._clock, spawner=self._spawner)
        if self._is_new:
            self.mac.install(self._settings)
        sandbox.lay_out(self._support, programs.PROGRAMS, shim_server.OWNER_PROGRAMS)
        _write_machine_files(self.mac)
        self._own_key = _own_key(self.mac)
        self.sshd = Sshd(self.mac, self.faults, lambda: self._processes)
        self._boot()

    def _start_jobs(self) -> None:
        """Start the jobs; an existing Mac reboots, since its processes ended with its last server."""
        if not self._is_new:
            with self.mac.change() as state:
                boot.shut_down(self.mac, state)
                boot.start(self.mac, state)
        self._boot_id = self._current_boot_id()

    @asynccontextmanager
    async def _serve_shims(
        self, group: asyncio.TaskGroup, bound: socket.socket
    ) -> AsyncIterator[None]:
        names = [name for name in self.mac.state["users"] if name != "root"]
        tasks = []
        with shim_server.listeners(self._support / "run", names) as listeners:
            # The sockets must exist before the jobs start: their programs call shims at once.
            self._start_jobs()
            shims = ShimServer(self.mac, self.faults, lambda: self._processes, self._sync)
            try:
                tasks += [group.create_task(shims.serve(*each)) for each in listeners]
                tasks.append(group.create_task(self._watch(group)))
                async with self._serve_ssh(bound):
                    yield
            finally:
                self._processes.end()
                for task in tasks:
                    task.cancel()

    @asynccontextmanager
    async def _serve_ssh(self, bound: socket.socket) -> AsyncIterator[None]:
        self._presented_key = self._desired_key()
        self._acceptor = await asyncssh.listen(
            sock=bound,
            server_factory=self.sshd.server,
            process_factory=self.sshd.run,
            server_host_keys=[self._presented_key],
            encryption_algs=CIPHERS,
            compression_algs=None,
            encoding=None,
            line_editor=False,
            login_timeout=_LOGIN_SECONDS,
        )
        try:
            yield
        finally:
            self._acceptor.close()
            await self.sshd.end()
            await self._acceptor.wait_closed()

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        """Carry out due events, and receive the exits of processes, across boots."""
        watched: Processes | None = None
        while True:
            self._sync()
            if watched is not self._processes:
                watched = self._processes
                group.create_task(watched.run())
            # Reading the state carries out due events.
            _ = self.mac.state
            tart_bundle.mark_host(self.mac)
            await asyncio.sleep(_POLL_SECONDS)

    def _sync(self) -> None:
        """Shut down with the Mac, and present the right host key."""
        if self._boot_id != self._current_boot_id():
            self._boot_id = self._current_boot_id()
            if self._boot_id is None:
                logger.info("Simulated Mac is restarting", mac=self.root.name)
                self.sshd.drop()
                self._processes.end()
                self._boot()
        key = self._desired_key()
        if key is not self._presented_key:
            self._presented_key = key
            self._acceptor.update(server_host_keys=[key])

    def _current_boot_id(self) -> str | None:
        """Return the id of this boot, None while the Mac is down; reads the store, so no events are carried out."""
        boot = self.mac.store.read()["boot"]
        return None if "back_at" in boot else str(boot["boot_id"])

    def _boot(self) -> None:
        host_name = self.mac.store.read()["host_name"]
        self._processes = Processes.boot(Sandbox(self.root, self._support, host_name), self._owned)
        self._spawner.on_boot(self._processes)

    def _owned(self, user: str) -> tuple[str, ...]:
        owners = self.mac.store.read()["owners"].items()
        return tuple(path for path, owner in owners if owner.partition(":")[0] == user)

    def _desired_key(self) -> asyncssh.SSHKey:
        if not self.faults.has(FaultKind.OTHER_HOST_KEY):
            return self._own_key
        if self._other_key is None:
            self._other_key = asyncssh.generate_private_key(_KEY_KIND)
        return self._other_key


@contextmanager
def _exclusive(root: Path) -> Iterator[None]:
    """Lock a Mac's folder: two servers of one Mac would overwrite each other's changes."""
    # Its state has passwords.
    (root / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    with (root / FOLDER / _LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadConfiguration(
                f"the Mac in {root} is already served by another process; stop that one first"
            ) from error
        yield


def _own_key(mac: Mac) -> asyncssh.SSHKey:
    """Return the Mac's own host key; a new one if it has none."""
    key = mac.files.read(HOST_KEY)
    if key is None:
        key = asyncssh.generate_private_key(_KEY_KIND).export_private_key()
        mac.files.write(HOST_KEY, key, mode=0o600)
    return asyncssh.import_private_key(key)


def _write_machine_files(mac: Mac) -> None:
    """Write the files that programs of this machine need, and the model does not."""
    for folder in sandbox.mounted():
        # Otherwise bwrap makes them, after the Mac has begun to answer.
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
    """Set up sudo without a password and automatic login; idempotent."""
    user, password = mac.state["settings"]["user"], mac.state["settings"]["password"]
    line = f"{user} ALL=(ALL) NOPASSWD: ALL\n"
    mac.files.write(host.sudoers(user), line.encode(), mode=0o440)
    mac.files.write(host.KCPASSWORD, kcpassword.encode(Secret(password)), mode=0o600)
    preferences = host.LOGINWINDOW_DEFAULTS
    for argv in (
        ("defaults", "write", preferences, "autoLoginUser", user),
        ("launchctl", "kickstart", "-k", "system/com.apple.loginwindow"),
    ):
        result = mac.run(Call(argv, "root"))
        if result.code:
            raise RuntimeError(f"{' '.join(argv)}: {result.err}")
