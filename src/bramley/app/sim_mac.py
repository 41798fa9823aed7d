"""The process of `bramley sim mac`: one simulated Mac behind an SSH server."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bramley.apiserver.pki import private_files
from bramley.app.listen_address import Address
from bramley.base.errors import BadConfiguration, InvalidSpec
from bramley.host import grammar
from bramley.host.steps.ssh_keys import SshKeys
from bramley.sim.macos import fresh_install as macos
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.state import FOLDER
from bramley.sim.ssh import server
from bramley.sim.ssh.server import SimulatedHost

PASSWORD = "password"  # noqa: S105 - the name of a file
_RANDOM_BYTES = 12
_ROOT = "root"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Folder and address of a simulated Mac, and its properties when it is created."""

    root: Path
    listen: Address
    user: str = "m1"
    password_file: Path | None = None
    authorized_key: Path | None = None
    is_ready: bool = False
    macos_version: str = "26.3"
    boot_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Served:
    """How to connect to a running simulated Mac."""

    root: Path
    address: Address
    user: str
    password_file: Path
    host_key: str
    fingerprint: str
    faults: Path


def run(settings: Settings, on_serving: Callable[[Served], None]) -> None:
    """Serve until a signal arrives; `on_serving` is called once clients can connect."""
    asyncio.run(_serve(settings, on_serving))


async def _serve(settings: Settings, on_serving: Callable[[Served], None]) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with host(settings) as served:
        if settings.is_ready:
            server.make_ready(served.mac)
        on_serving(_served(settings, served))
        await stop.wait()


@asynccontextmanager
async def host(settings: Settings) -> AsyncIterator[SimulatedHost]:
    """Serve a simulated Mac; one that exists already keeps its properties."""
    # Settings are checked before anything is written.
    async with _host(settings) as served:
        state = served.mac.state
        password = state["users"][state["settings"]["user"]]["password"]
        private_files.write(served.root / FOLDER / PASSWORD, f"{password}\n".encode())
        yield served


def _host(settings: Settings) -> SimulatedHost:
    _check(settings)
    if Mac.is_complete(settings.root):
        if settings.password_file or settings.authorized_key:
            raise BadConfiguration(
                f"the Mac in {settings.root} already has its password and keys; use another --root for a new Mac"
            )
    elif not Mac.can_be_created(settings.root):
        raise BadConfiguration(
            f"{settings.root} is not empty and not a simulated Mac; use an empty folder for --root"
        )
    return SimulatedHost(
        settings.root,
        listen=settings.listen.host,
        port=settings.listen.port,
        settings=macos.Settings(
            user=settings.user,
            password=_password(settings.password_file),
            authorized_keys=_keys(settings.authorized_key),
            macos=settings.macos_version,
            host_name=settings.root.absolute().name,
            boot_seconds=settings.boot_seconds,
        ),
    )


def _check(settings: Settings) -> None:
    grammar.require(
        "a simulated Mac",
        grammar.USER_NAME.check("--user", settings.user),
        grammar.VERSION.check("--macos", settings.macos_version),
    )
    if settings.user == _ROOT:
        raise BadConfiguration("--user root: root cannot log in at the console; use another user")


def _password(file: Path | None) -> str:
    if file is None:
        return secrets.token_urlsafe(_RANDOM_BYTES)
    try:
        password = file.read_text().rstrip("\n")
    except OSError as error:
        raise BadConfiguration(f"--password-file {file}: {error.strerror}") from error
    if not password:
        raise BadConfiguration(f"--password-file {file} is empty; write the password into it")
    return password


def _keys(file: Path | None) -> tuple[str, ...]:
    try:
        lines = file.read_text().splitlines() if file else []
    except OSError as error:
        raise BadConfiguration(f"--authorized-key {file}: {error.strerror}") from error
    if any("PRIVATE KEY" in line for line in lines):
        raise BadConfiguration(
            f"--authorized-key {file} is a private key; use the .pub file of the public key"
        )
    return _public_keys(lines, file) if file else ()


def _public_keys(lines: list[str], file: Path) -> tuple[str, ...]:
    """Return the keys of a file, which has at least one key and otherwise only comments."""
    keys = tuple(line for line in lines if line.strip() and not line.startswith("#"))
    try:
        SshKeys(_ROOT, keys)
    except InvalidSpec:
        keys = ()
    if not keys:
        raise BadConfiguration(f"--authorized-key {file} is not a public key; use a .pub file")
    return keys


def _served(settings: Settings, served: SimulatedHost) -> Served:
    return Served(
        root=served.root,
        address=Address(settings.listen.host, served.port),
        user=str(served.mac.state["settings"]["user"]),
        password_file=served.root / FOLDER / PASSWORD,
        host_key=served.host_key,
        fingerprint=served.fingerprint,
        faults=served.faults.path,
    )
