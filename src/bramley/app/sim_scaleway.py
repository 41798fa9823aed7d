"""The process of `bramley sim scaleway`: a simulated Scaleway behind an HTTP server, and its Macs behind SSH servers."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from bramley.api.names import host as places
from bramley.apiserver.pki import private_files
from bramley.app import sample_images
from bramley.app.listen_address import Address, bind, bound_address
from bramley.app.sim_github import serving
from bramley.base.clock import SystemClock
from bramley.base.errors import BadConfiguration
from bramley.github.http import checked_url
from bramley.sim.macos import fresh_install
from bramley.sim.scaleway import catalog, ssh_macs
from bramley.sim.scaleway import scaleway as simulated
from bramley.sim.scaleway.application import application
from bramley.sim.scaleway.records import USER, Server, Status
from bramley.sim.scaleway.saved_state import SavedState
from bramley.sim.scaleway.scaleway import POOL_NAME, SimulatedScaleway
from bramley.sim.scaleway.ssh_macs import SshMacs
from bramley.sim.ssh import sandbox
from bramley.sim.ssh.server import SimulatedHost

MAX_SERVERS = 100
# Of `bramley up`, below its data folder, and the file with its records.
FOLDER = "scaleway"
STATE = "state.json"
_BOOT_SECONDS = 2.0
_MAX_SPEED = 100_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Address, account and servers of a simulated Scaleway; `speed` divides the durations of its actions."""

    listen: Address
    root: Path
    secret_key_file: Path
    servers: int = 3
    type: str = catalog.DEFAULT_TYPE
    # The last ones of the servers, with Xcode and Homebrew; an empty type is that of the others.
    builders: int = 0
    builder_type: str = ""
    # The simulated GitHub at which the Macs register runners; empty: none.
    github_url: str = ""
    zone: str = catalog.ZONES[0]
    project_id: str = simulated.PROJECT
    ssh_port: int = 2222
    speed: float = 60.0
    requests_per_minute: int = simulated.Settings().requests_per_minute
    # Keeps servers and keys over restarts, with their Macs; without it, every start has new ones.
    state_file: Path | None = None
    network: IPv4Network = ssh_macs.NETWORK
    # The simulated tart of every Mac: its images and their guests.
    tart: dict[str, Any] = field(default_factory=lambda: sample_images.SIMULATED_TART)


@dataclass(frozen=True, slots=True)
class Served:
    """How to use a running simulated Scaleway."""

    url: str
    ssh_port: int
    settings: Settings
    servers: list[Server]


def run(settings: Settings, on_serving: Callable[[Served], None]) -> None:
    """Serve until a signal arrives; `on_serving` is called once clients can connect."""
    asyncio.run(_serve(settings, on_serving))


async def _serve(settings: Settings, on_serving: Callable[[Served], None]) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with served(settings) as (_, serves):
        on_serving(serves)
        await stop.wait()


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[tuple[SimulatedScaleway, Served]]:
    """Serve a simulated Scaleway and its Macs while the context lasts."""
    _check(settings)
    account = _account(settings)
    saved = _saved(settings)
    most = max(settings.servers, len(saved.servers))
    macs = SshMacs(
        settings.root,
        port=settings.ssh_port or ssh_macs.free_port(most, settings.network),
        network=settings.network,
        template=fresh_install.Settings(boot_seconds=_BOOT_SECONDS, github_url=settings.github_url),
        on_install=lambda host: write_tart_settings(host, settings.tart),
    )
    for server in saved.servers:
        macs.keep_address(server.id, server.ip)

    def save() -> None:
        if settings.state_file is not None:
            private_files.write(settings.state_file, scaleway.saved_state().encode())

    scaleway = SimulatedScaleway(macs, clock=SystemClock(), settings=account, on_change=save)
    bound = bind(settings.listen)
    with bound:
        async with macs.running(), scaleway.running():
            await scaleway.restore(saved)
            servers = await _add_servers(scaleway, settings)
            failed = [server for server in servers if server.status is Status.ERROR]
            if failed:
                raise BadConfiguration(
                    f"{failed[0].name} cannot be served on {failed[0].ip}:{macs.port}, see the log; "
                    "choose another --ssh-port or --root"
                )
            async with serving(application(scaleway), bound):
                url = f"http://{bound_address(settings.listen, bound)}"
                yield scaleway, Served(url, macs.port, settings, servers)


def _saved(settings: Settings) -> SavedState:
    content = private_files.read(settings.state_file) if settings.state_file else None
    return SavedState() if content is None else SavedState.decode(content)


async def _add_servers(scaleway: SimulatedScaleway, settings: Settings) -> list[Server]:
    """Add the servers of the start that are missing, builders last, and return all."""
    restored = [*scaleway.servers.values()]
    builders = settings.builders - sum(each.is_builder for each in restored)
    runners = settings.servers - settings.builders
    runners -= sum(not each.is_builder for each in restored)
    names = [POOL_NAME.format(len(restored) + number + 1) for number in range(settings.servers)]
    first = max(runners, 0)
    return [
        *restored,
        *await scaleway.add_servers(names[:first], type=settings.type, zone=settings.zone),
        *await scaleway.add_servers(
            names[first : first + max(builders, 0)],
            type=settings.builder_type or settings.type,
            zone=settings.zone,
            is_builder=True,
        ),
    ]


def write_tart_settings(host: SimulatedHost, settings: dict[str, Any]) -> None:
    """Write the settings of the simulated tart that will be installed on a Mac: its images and their guests."""
    folder, owner = f"{places.home(USER)}/.tart", f"{USER}:staff"
    host.mac.files.make_folder(folder, mode=0o700, owner=owner)
    content = json.dumps(settings).encode()
    host.mac.files.write(f"{folder}/sim.json", content, mode=0o600, owner=owner)


def _check(settings: Settings) -> None:
    for flag, value, known in (
        ("--type", settings.type, catalog.TYPES),
        ("--builder-type", settings.builder_type or settings.type, catalog.TYPES),
        ("--zone", settings.zone, catalog.ZONES),
    ):
        if value not in known:
            raise BadConfiguration(f"{flag} {value!r} does not exist; use {', '.join(known)}")
    _check_numbers(settings)
    if not _is_uuid(settings.project_id):
        raise BadConfiguration(f"--project-id {settings.project_id!r} is not a UUID")
    if settings.github_url:
        checked_url(settings.github_url)
    if reason := sandbox.unavailable_reason():
        raise BadConfiguration(reason)


def _check_numbers(settings: Settings) -> None:
    for flag, number, most in (
        ("--servers", settings.servers, MAX_SERVERS),
        ("--builders", settings.builders, settings.servers),
    ):
        if not 0 <= number <= most:
            raise BadConfiguration(f"{flag} {number} is not 0 to {most}")
    if not 0 <= settings.ssh_port <= 65_535:
        raise BadConfiguration(f"--ssh-port {settings.ssh_port} is not a port; choose 0 to 65535")
    if not 0 < settings.speed <= _MAX_SPEED:
        raise BadConfiguration(
            f"--speed {settings.speed:g} is not in the range up to {_MAX_SPEED:g}"
        )


def _account(settings: Settings) -> simulated.Settings:
    usual = simulated.Settings()

    def scaled(range: simulated.Range) -> simulated.Range:
        return range[0] / settings.speed, range[1] / settings.speed

    return simulated.Settings(
        project_id=settings.project_id,
        secret_key=_secret_key(settings.secret_key_file),
        seed=secrets.randbits(64),
        requests_per_minute=settings.requests_per_minute,
        ordering=scaled(usual.ordering),
        ordering_other_os=scaled(usual.ordering_other_os),
        rebooting=scaled(usual.rebooting),
        reinstalling=scaled(usual.reinstalling),
    )


def _secret_key(file: Path) -> str:
    """Return the secret key in a file, which is created if it does not exist."""
    content = private_files.read(file)
    if content is None:
        created = str(uuid.uuid4())
        private_files.write(file, f"{created}\n".encode())
        return created
    key = content.decode(errors="replace").strip()
    if not _is_uuid(key):
        raise BadConfiguration(
            f"--secret-key-file {file} does not contain a secret key; remove it to create one"
        )
    return key


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False
