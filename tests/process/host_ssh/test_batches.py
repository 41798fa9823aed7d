"""Batches over a real SSH connection: cut between any two commands, and refused by the claim of a run that began meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.host import ssh
from bramley.host.artifacts import ArtifactStore
from bramley.host.claim import Claim
from bramley.host.commands import Command, Folder, Run, Write
from bramley.host.connection import Batch
from bramley.host.ssh import Credentials, SshConnection, Target
from bramley.sim.ssh import session
from bramley.sim.ssh.faults import Fault, FaultKind
from bramley.sim.ssh.server import SimulatedHost
from tests.contract.connection import targets

COUNT = 4


@asynccontextmanager
async def connected(host: SimulatedHost) -> AsyncIterator[SshConnection]:
    target = Target(
        host="127.0.0.1",
        port=host.port,
        user=targets.SETTINGS.user,
        credentials=Credentials(password=targets.PASSWORD),
        name="mac",
    )
    async with ssh.open(target, clock=SystemClock(), artifacts=ArtifactStore()) as mac:
        yield mac


@asynccontextmanager
async def prepared(folder: Path) -> AsyncIterator[tuple[SimulatedHost, SshConnection, Path]]:
    """Yield a Mac with passwordless sudo and an empty folder, a connection, and the folder on this machine."""
    async with (
        SimulatedHost(folder / "mac", settings=targets.SETTINGS) as host,
        connected(host) as mac,
    ):
        await targets._write_sudo_rule(mac)
        await mac.execute(Folder(path="/opt/stage", purpose="create the folder"))
        yield host, mac, host.mac.files.at("/opt/stage")


def write(name: str) -> Write:
    return Write(path=f"/opt/stage/{name}", content=b"x", purpose=f"write {name}")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", [FaultKind.CUT_BEFORE, FaultKind.CUT_AFTER])
async def test_cut_batch_leaves_whole_commands(kind: FaultKind, tmp_path: Path) -> None:
    async with prepared(tmp_path) as (host, mac, folder):
        for cut in range(COUNT):
            commands: list[Command] = [write(f"{cut}-{number}") for number in range(COUNT)]
            host.faults.set(Fault(do=kind, match=f"*/{cut}-{cut} *", times=1))

            with pytest.raises(errors.HostUnreachable, match=r"mac: write \d-\d: "):
                await mac.execute_all(Batch(commands=commands))

            host.faults.set()
            found = [name for name in names(folder) if name.startswith(f"{cut}-")]
            # A file is complete, and none is missing before another.
            assert found == [f"{cut}-{number}" for number in range(len(found))]
            assert len(found) >= cut + (kind is FaultKind.CUT_AFTER)
        await mac.execute_all(Batch(commands=[write("last")]))
        assert [name for name in names(folder) if name.startswith(".")] == []


async def test_refused_run_changes_nothing_below_a_newer_one(tmp_path: Path) -> None:
    """Its command in progress is stopped before the newer run begins, and the commands after it are refused."""
    older, newer = (Claim(run=run, by=f"run {run}").guard() for run in ("1", "2"))
    async with prepared(tmp_path) as (host, mac, folder), connected(host) as other:
        hung = Run(
            argv=("sleep", "600"), purpose="hang", as_root=True, timeout=timedelta(minutes=9)
        )
        commands: list[Command] = [write("one"), hung, write("never")]
        begun = asyncio.Event()
        batch = Batch(commands=commands, guard=older.acquiring(None))

        async def run() -> None:
            await mac.execute_all(batch, on_started=lambda n: begun.set() if n == 1 else None)

        running = asyncio.create_task(run())
        await begun.wait()
        await other.execute_all(
            Batch(commands=[write("two")], guard=newer.acquiring(older.content))
        )
        with pytest.raises(errors.Conflict, match=r"\(run 2\)"):
            await running
        with pytest.raises(errors.Conflict, match=r"\(run 2\)"):
            await mac.execute_all(Batch(commands=[write("never")], guard=older))

        assert names(folder) == ["one", "two"]


# Reads input for a moment, as a program does that a profile starts.
READING_SHELL = """\
#!/bin/sh
exec 4<&0
cat <&4 >/opt/stage/read &
sleep 0.5
kill "$!"
exec 4<&-
exec /bin/sh "$@"
"""


async def test_program_is_not_sent_to_the_profile_of_the_login_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with prepared(tmp_path) as (_, mac, folder):
        (folder / "shell").write_text(READING_SHELL)
        (folder / "shell").chmod(0o755)
        folder.chmod(0o777)
        monkeypatch.setattr(session, "_SHELL", "/opt/stage/shell")
        content = Secret("canary")
        command = Write(path="/opt/stage/one", content=content, purpose="write it")

        async with asyncio.timeout(20):
            await mac.execute_all(Batch(commands=[command]))

        assert (folder / "one").read_text() == "canary"
        assert (folder / "read").read_bytes() == b""
