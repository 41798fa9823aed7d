"""Many Macs in one process: each is a model behind a real SSH server on its own address, and has been set up with the old release.

The servers read the rendered scripts and let the model answer: no shell runs. The bytes of a streamed file are received and verified,
and then dropped; the file on the model's disk is a link to the one that was sent. Any key is accepted.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import asyncssh

from bench.machines import fleet, scripts
from bench.machines.fleet import HostRecord, Releases
from bench.machines.scripts import Probes, Script
from bench.streaming.child_process import parent_signal, report
from bramley.api.names import host as places
from bramley.api.names import machines
from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.host import converge, sequence
from bramley.host.artifacts import ArtifactStore
from bramley.sim.macos import host_commands
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.mac import Mac

if TYPE_CHECKING:
    Channel = asyncssh.SSHServerProcess[bytes]

_BLOCK = 64 * 1024
_FAILED = 125
_USER = machines.DEFAULT_SSH_USER


class AnyKey(asyncssh.SSHServer):
    """Accepts any key of the user."""

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002
        """Accept a key."""
        return username == _USER

    def public_key_auth_supported(self) -> bool:
        """Return that keys are accepted."""
        return True


@dataclass(frozen=True, slots=True)
class ServedMac:
    """One Mac; `files` are those that may be streamed to it, by SHA-256."""

    model: ModelConnection
    files: Mapping[str, Path]

    async def serve(self, channel: Channel) -> None:
        """Answer one command line."""
        try:
            channel.exit(await self._answer(channel))
        except (scripts.UnknownScript, LookupError, ValueError) as error:
            channel.stderr.write(f"not simulated: {error!r}\n".encode())
            channel.exit(_FAILED)

    async def _answer(self, channel: Channel) -> int:
        script = Script.parse(channel.command or "")
        if script.is_stream:
            return await self._receive(channel, script)
        if script.is_batch:
            code = await self._run(channel, script)
            if code or not script.probes:
                return code
        self._probe(channel, script.probes or script.text)
        return 0

    def _probe(self, channel: Channel, text: str) -> None:
        probes = Probes.parse(text)
        with self.model.mac.caching():
            found = host_commands.facts(self.model.mac, _USER, probes.numbered.values())
        channel.stdout.write(probes.output(found.results))

    async def _run(self, channel: Channel, script: Script) -> int:
        token, length, _, claim_line = script.arguments
        channel.stdout.write(f"{token}\n".encode())
        program = scripts.decode(await channel.stdin.readexactly(int(length)))
        if "\nwrite_claim\n" in program:
            self.model.mac.files.write(places.CLAIM, f"{claim_line}\n".encode())
        for number, step in enumerate(scripts.steps(program, is_root=script.is_root)):
            for stream in (channel.stdout, channel.stderr):
                stream.write(f"\n@{token} start {number}\n".encode())
            code = step.accepted_codes[0]
            try:
                await self.model.execute(step.command)
            except errors.BramleyError as error:
                channel.stderr.write(str(error).encode())
                code = _FAILED
            channel.stdout.write(f"\n@{token} end {number} {code}\n".encode())
            if code == _FAILED and not step.is_failure_ignored:
                return code
        return 0

    async def _receive(self, channel: Channel, script: Script) -> int:
        token, path, owner, _, size, expected = script.arguments
        channel.stdout.write(f"{token}\n".encode())
        digest, count = hashlib.sha256(), 0
        while block := await channel.stdin.read(_BLOCK):
            digest.update(block)
            count += len(block)
        if (count, digest.hexdigest()) != (int(size), expected):
            return _FAILED
        files = self.model.mac.files
        files.remove(path)
        os.link(self.files[expected], files.at(path))
        files.chown(path, owner, follow=False)
        return 0


async def set_up(folder: Path, releases: Releases, hosts: list[HostRecord]) -> list[ServedMac]:
    """Return Macs that were set up with the old release: one from the beginning, and the others as copies of it."""
    store = ArtifactStore()
    old = await releases.defaults(fleet.OLD, store)
    new = await releases.defaults(fleet.NEW, store)
    files = {each.sha256: each.path for each in (new.artifacts.interpreter, new.artifacts.agent)}
    template = Mac.create(folder / f"template-{os.getpid()}", settings=fleet.FAST)

    async def apply(mac: Mac, host: HostRecord) -> ServedMac:
        model = ModelConnection(mac, clock=SystemClock(), user=_USER, artifacts=store)
        await converge.apply(model, sequence.steps(fleet.specification(host, old)))
        return ServedMac(model, files)

    await apply(template, hosts[0])
    copies = (apply(template.copy(folder / host.name), host) for host in hosts)
    return await asyncio.gather(*copies)


async def serve(folder: Path, port: int, share: int, shares: int) -> None:
    """Serve every so-many-th host until the parent process is gone."""
    hosts = fleet.read_hosts(folder)[share::shares]
    async with parent_signal(), AsyncExitStack() as exits:
        served = await set_up(folder, Releases(folder), hosts)
        key = asyncssh.generate_private_key("ssh-ed25519")
        for host, mac in zip(hosts, served, strict=True):
            listener = asyncssh.listen(
                host.address,
                port,
                server_factory=AnyKey,
                server_host_keys=[key],
                process_factory=mac.serve,
                encoding=None,
                compression_algs=None,
                login_timeout=120,
            )
            await exits.enter_async_context(await listener)
        report(serving=len(hosts))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), *map(int, sys.argv[2:5])))
