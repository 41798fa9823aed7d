"""The process whose memory is measured: it sends all artifacts to many hosts at once, over SSH.

It reports its memory after its imports, waits for its parent, and reports the duration at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import grp
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import asyncssh  # noqa: F401 - an idle manager that has connected once has imported it

from bench.streaming import memory
from bench.streaming.artifacts import Staged
from bench.streaming.child_process import parent_signal, report
from bench.streaming.resident_store import ResidentStore
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.host import ssh
from bramley.host.artifacts import Artifact, ArtifactStore
from bramley.host.commands import Stream

# Concurrent handshakes; each costs CPU time on both sides and has a deadline.
_MAX_HANDSHAKES = 8


@dataclass(frozen=True, slots=True)
class Fleet:
    """The hosts, distributed over the ports."""

    staged: Staged
    count: int
    ports: list[int]
    into: Path

    def target(self, number: int) -> ssh.Target:
        """Return one host."""
        key = Secret(self.staged.key.read_text())
        return ssh.Target(
            host="127.0.0.1",
            port=self.ports[number % len(self.ports)],
            user=getpass.getuser(),
            credentials=ssh.Credentials(private_keys=(key,)),
            name=f"host-{number}",
        )


async def send_all(
    fleet: Fleet,
    number: int,
    artifacts: list[Artifact],
    store: ArtifactStore,
    handshakes: asyncio.Semaphore,
) -> None:
    """Send all artifacts to one host."""
    mac = ssh.SshConnection(fleet.target(number), clock=SystemClock(), artifacts=store)
    try:
        async with handshakes:
            await mac.connect(connect_timeout=ssh.CONNECT_TIMEOUT)
        for artifact in artifacts:
            await mac.execute(
                Stream(
                    artifact=artifact,
                    path=f"{fleet.into}/{artifact.name}",
                    purpose=f"upload {artifact.name}",
                    owner=f"{getpass.getuser()}:{grp.getgrgid(os.getgid()).gr_name}",
                )
            )
    finally:
        await mac.close()


async def run(fleet: Fleet, *, copy_per_call: bool) -> None:
    """Report the idle memory, wait, send all artifacts to all hosts, and report the duration."""
    async with parent_signal() as signalled:
        report(idle=memory.resident())
        store = ArtifactStore()
        artifacts = [
            await store.load(path, name=path.name, version="1.0") for path in fleet.staged.files
        ]
        if copy_per_call:
            store = cast("ArtifactStore", ResidentStore(fleet.staged.files))
        memory.reset_peak()
        report(ready=memory.resident())
        await signalled.wait()
        began, handshakes = time.perf_counter(), asyncio.Semaphore(_MAX_HANDSHAKES)
        async with asyncio.TaskGroup() as group:
            for number in range(fleet.count):
                group.create_task(send_all(fleet, number, artifacts, store, handshakes))
        report(seconds=time.perf_counter() - began)
        # The parent reads its memory once more, and then kills it.
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.streaming.sender")
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("ports", type=int, nargs="+")
    parser.add_argument("--into", type=Path, default=Path("/nowhere"))
    parser.add_argument("--copy-per-call", action="store_true")
    options = parser.parse_args()
    all_hosts = Fleet(Staged(options.folder), options.count, options.ports, options.into)
    asyncio.run(run(all_hosts, copy_per_call=options.copy_per_call))
