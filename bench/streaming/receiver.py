"""Many hosts in one process: an SSH server that receives files like the rendered script, but writes nothing to disk.

It reads the script's arguments from the command line, prints the token, receives the bytes, and compares their size and SHA-256.
Each host stops reading after its first `held_at` bytes until the parent signals: so all transfers are in flight, and none is
complete, while memory is measured.
"""

from __future__ import annotations

import asyncio
import hashlib
import shlex
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import asyncssh

from bench.streaming.artifacts import Staged
from bench.streaming.child_process import parent_signal, report

if TYPE_CHECKING:
    from pathlib import Path

    Channel = asyncssh.SSHServerProcess[bytes]

_BLOCK = 64 * 1024
_FAILED = 125


class ReceiveArguments(NamedTuple):
    """The last arguments of the script that receives a file."""

    token: str
    path: str
    owner: str
    mode: str
    size: int
    sha256: str

    @classmethod
    def parse(cls, line: str) -> ReceiveArguments:
        """Return the arguments in a command line."""
        token, path, owner, mode, size, digest = shlex.split(line)[-len(cls._fields) :]
        return cls(token, path, owner, mode, int(size), digest)


@dataclass(slots=True)
class Gate:
    """Holds each host once, in its first file, until the gate is opened."""

    held_at: int
    opened: asyncio.Event
    _passed: set[object] = field(default_factory=set)

    async def wait(self, host: object, count: int) -> None:
        """Wait if this host has received `held_at` bytes for the first time."""
        if host in self._passed or count < self.held_at:
            return
        self._passed.add(host)
        report(held=True)
        await self.opened.wait()


async def receive(channel: Channel, gate: Gate) -> None:
    """Receive one file, and exit like the script."""
    arguments = ReceiveArguments.parse(channel.command or "")
    channel.stdout.write(f"{arguments.token}\n".encode())
    digest, count = hashlib.sha256(), 0
    while block := await channel.stdin.read(_BLOCK):
        digest.update(block)
        count += len(block)
        await gate.wait(channel.get_extra_info("connection"), count)
    is_complete = (count, digest.hexdigest()) == (arguments.size, arguments.sha256)
    channel.exit(0 if is_complete else _FAILED)


async def serve(staged: Staged, held_at: int) -> None:
    """Serve until the parent process is gone."""
    async with parent_signal() as opened:
        gate = Gate(held_at, opened)
        async with await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            authorized_client_keys=str(staged.authorized),
            process_factory=lambda channel: receive(channel, gate),
            encoding=None,
            compression_algs=None,
            login_timeout=120,
        ) as server:
            report(port=server.get_port())
            await server.wait_closed()


if __name__ == "__main__":
    from pathlib import Path

    asyncio.run(serve(Staged(Path(sys.argv[1])), int(sys.argv[2])))
