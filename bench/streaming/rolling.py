"""The process whose memory is measured: it brings all artifacts to so many hosts at once, over SSH as ever.

It tells what it holds when everything is imported and nothing was done, waits, and tells what it took in the end.
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

import asyncssh  # noqa: F401 - it belongs to a manager at rest that has seen a Mac before

from bench.streaming import memory
from bench.streaming.artifacts import Staged
from bench.streaming.children import listening, tell
from bench.streaming.old_way import Resident
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.host import ssh
from bramley.host.artifacts import Artifact, Depot
from bramley.host.commands import Stream

# So many handshakes at once: they cost each side time, and have a deadline.
_DIALLING = 8


@dataclass(frozen=True, slots=True)
class Fleet:
    """Where the hosts are; they share the ports in turn."""

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


async def bring(
    fleet: Fleet, number: int, artifacts: list[Artifact], depot: Depot, dialling: asyncio.Semaphore
) -> None:
    """Bring everything to one host."""
    mac = ssh.SshConnection(fleet.target(number), clock=SystemClock(), artifacts=depot)
    try:
        async with dialling:
            await mac.reach(patience=ssh.PATIENCE)
        for artifact in artifacts:
            await mac.do(
                Stream(
                    artifact=artifact,
                    path=f"{fleet.into}/{artifact.name}",
                    purpose=f"bring {artifact.name}",
                    owner=f"{getpass.getuser()}:{grp.getgrgid(os.getgid()).gr_name}",
                )
            )
    finally:
        await mac.close()


async def roll(fleet: Fleet, *, the_old_way: bool) -> None:
    """Tell the memory at rest, wait, bring everything everywhere, and tell how long that took."""
    async with listening() as may_go:
        tell(idle=memory.resident())
        depot = Depot()
        artifacts = [
            await depot.take(path, name=path.name, version="1.0") for path in fleet.staged.files
        ]
        if the_old_way:
            depot = cast("Depot", Resident(fleet.staged.files))
        memory.forget_peak()
        tell(ready=memory.resident())
        await may_go.wait()
        began, dialling = time.perf_counter(), asyncio.Semaphore(_DIALLING)
        async with asyncio.TaskGroup() as group:
            for number in range(fleet.count):
                group.create_task(bring(fleet, number, artifacts, depot, dialling))
        tell(seconds=time.perf_counter() - began)
        # Its memory is asked for once more before it ends.
        await asyncio.Event().wait()


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m bench.streaming.rolling")
    options.add_argument("folder", type=Path)
    options.add_argument("count", type=int)
    options.add_argument("ports", type=int, nargs="+")
    options.add_argument("--into", type=Path, default=Path("/nowhere"))
    options.add_argument("--old", action="store_true")
    chosen = options.parse_args()
    whole = Fleet(Staged(chosen.folder), chosen.count, chosen.ports, chosen.into)
    asyncio.run(roll(whole, the_old_way=chosen.old))
