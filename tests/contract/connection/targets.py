"""The implementations of a connection: the model of a Mac in process, the simulated Mac over SSH, and OpenSSH's server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.api.names import host as names
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.host import ssh
from bramley.host.artifacts import ArtifactStore
from bramley.host.commands import ROOT, Folder, Write
from bramley.host.connection import Connection
from bramley.host.ssh import Credentials, Target
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.faults import Cut, CutPoint
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from bramley.sim.ssh.faults import Fault, FaultKind
from bramley.sim.ssh.server import SimulatedHost
from tests import virtual_time
from tests.process.host_ssh import openssh

PASSWORD = Secret("it's a $(canary)")
SETTINGS = Settings(password=PASSWORD.reveal(), boot_seconds=1.0)
CLOSED = timedelta(0)


@dataclass(frozen=True, slots=True)
class Stage:
    """One Mac, and how to access its files from here and to break its connection."""

    mac: Connection
    store: ArtifactStore
    # A folder that may be changed: its path on the Mac, and on this machine.
    folder: str
    real: Path
    owner: str
    allow_passwordless_sudo: Callable[[Connection], Awaitable[None]]
    # Breaks the connection after the next command is executed, before its answer.
    lose_answer: Callable[[], None]


@asynccontextmanager
async def model(folder: Path) -> AsyncIterator[Stage]:
    """Answer from the model, under virtual time."""
    clock = virtual_time.clock()
    mac = Mac.create(folder / "mac", settings=SETTINGS, clock=clock)
    store = ArtifactStore()
    connection = ModelConnection(mac, clock=clock, artifacts=store)

    def lose_answer() -> None:
        connection.faults.at(lambda _: True, Cut(CutPoint.UNANSWERED))

    real = mac.files.at("/opt") / "stage"
    yield Stage(connection, store, "/opt/stage", real, ROOT, _write_sudo_rule, lose_answer)


@asynccontextmanager
async def simulated(folder: Path) -> AsyncIterator[Stage]:
    """Run rendered scripts with a real shell, in the root of a simulated Mac."""
    store = ArtifactStore()
    async with SimulatedHost(folder / "mac", settings=SETTINGS) as host:
        target = Target(
            host="127.0.0.1",
            port=host.port,
            user=SETTINGS.user,
            credentials=Credentials(password=PASSWORD),
            name="mac",
        )
        async with ssh.open(
            target, clock=SystemClock(), artifacts=store, connect_timeout=CLOSED
        ) as connection:

            def lose_answer() -> None:
                host.faults.set(Fault(do=FaultKind.CUT_AFTER, times=1))

            real = host.mac.files.at("/opt") / "stage"
            yield Stage(connection, store, "/opt/stage", real, ROOT, _write_sudo_rule, lose_answer)


@asynccontextmanager
async def by_openssh(folder: Path) -> AsyncIterator[Stage]:
    """Run rendered scripts with a real shell, in a folder of this machine."""
    store = ArtifactStore()
    async with openssh.serving(folder / "sshd") as server:
        (folder / "sshd" / "password").write_text(PASSWORD.reveal())
        (folder / "sshd" / "sudo-password").write_text(PASSWORD.reveal())
        async with ssh.open(
            server.target(), clock=SystemClock(), artifacts=store, connect_timeout=CLOSED
        ) as connection:

            async def allow_passwordless_sudo(_: Connection) -> None:
                (folder / "sshd" / "sudo-password").unlink()

            real = folder / "stage"
            yield Stage(
                connection,
                store,
                str(real),
                real,
                server.owner,
                allow_passwordless_sudo,
                _cannot_lose_answers,
            )


async def _write_sudo_rule(mac: Connection) -> None:
    rule = f"{SETTINGS.user} ALL=(ALL) NOPASSWD: ALL\n".encode()
    path = names.sudoers(SETTINGS.user)
    check = ("visudo", "-cf", "{}")
    await mac.execute(
        Write(
            path=path,
            content=rule,
            purpose="allow passwordless sudo",
            mode=0o440,
            check=check,
            sudo_password=PASSWORD,
        )
    )


def _cannot_lose_answers() -> None:
    raise AssertionError("OpenSSH cannot lose an answer on request")


OPENERS = {"model": model, "ssh": simulated, "openssh": by_openssh}
# The model keeps to virtual time; the others need programs that the process tier has.
MODEL = pytest.param("model", marks=pytest.mark.tier("unit"))
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap needs Linux")
SSH = pytest.param("ssh", marks=[pytest.mark.tier("process"), ON_LINUX])
OPENSSH = pytest.param("openssh", marks=pytest.mark.tier("process"))
every_target = pytest.mark.parametrize("target", [MODEL, SSH, OPENSSH])
simulated_targets = pytest.mark.parametrize("target", [MODEL, SSH])


@asynccontextmanager
async def ready(target: str, folder: Path) -> AsyncIterator[Stage]:
    """Yield a Mac with passwordless sudo and an empty folder."""
    async with OPENERS[target](folder) as stage:
        await stage.allow_passwordless_sudo(stage.mac)
        await stage.mac.execute(
            Folder(path=stage.folder, purpose="create the folder", owner=stage.owner)
        )
        yield stage
