"""Many light Macs in one process of their own: an SSH server that takes what is streamed as the rendered script does, but the disk.

It reads the script's arguments from the command line, says the token, takes the bytes, and compares their size and SHA-256;
nothing is written, since a hundred disks are not to be had here. Each host stops reading when it has got its first `held_at` bytes,
and goes on when it may: then all are in flight at once, and none is done, for as long as somebody measures.
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
from bench.streaming.children import listening, tell

if TYPE_CHECKING:
    from pathlib import Path

    Channel = asyncssh.SSHServerProcess[bytes]

_BLOCK = 64 * 1024
_WRONG = 125


class Wanted(NamedTuple):
    """The last arguments of the script that receives a file."""

    token: str
    path: str
    owner: str
    mode: str
    size: int
    sha256: str

    @classmethod
    def read(cls, line: str) -> Wanted:
        """Read them from the command line."""
        token, path, owner, mode, size, digest = shlex.split(line)[-len(cls._fields) :]
        return cls(token, path, owner, mode, int(size), digest)


@dataclass(slots=True)
class Gate:
    """Where hosts wait for each other; each but once, in its first file."""

    held_at: int
    opened: asyncio.Event
    _passed: set[object] = field(default_factory=set)

    async def pass_with(self, host: object, count: int) -> None:
        """Wait, if this host has got enough for the first time."""
        if host in self._passed or count < self.held_at:
            return
        self._passed.add(host)
        tell(held=True)
        await self.opened.wait()


async def receive(channel: Channel, gate: Gate) -> None:
    """Take one file, and answer as the script does."""
    wanted = Wanted.read(channel.command or "")
    channel.stdout.write(f"{wanted.token}\n".encode())
    digest, count = hashlib.sha256(), 0
    while block := await channel.stdin.read(_BLOCK):
        digest.update(block)
        count += len(block)
        await gate.pass_with(channel.get_extra_info("connection"), count)
    is_right = (count, digest.hexdigest()) == (wanted.size, wanted.sha256)
    channel.exit(0 if is_right else _WRONG)


async def serve(staged: Staged, held_at: int) -> None:
    """Serve until whoever started this is gone."""
    async with listening() as opened:
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
            tell(port=server.get_port())
            await server.wait_closed()


if __name__ == "__main__":
    from pathlib import Path

    asyncio.run(serve(Staged(Path(sys.argv[1])), int(sys.argv[2])))
