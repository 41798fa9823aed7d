"""How long commands may take: a stream as long as it likes, if it does not stand still; everything else to its end."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bramley.base import virtual_time
from bramley.base.errors import TimedOut
from bramley.host import connection
from bramley.host.artifacts import BLOCK, Artifact, ArtifactStore, BandwidthLimit
from bramley.host.commands import Stream
from bramley.host.rendering import command_scripts
from bramley.host.ssh import connection
from bramley.host.ssh.process import Heard
from bramley.sim.macos.connection import ModelConnection
from tests.unit.host.steps import wanted

STILL = timedelta(seconds=10)


async def brought(folder: Path, store: ArtifactStore) -> Artifact:
    (folder / "file").write_bytes(os.urandom(20 * BLOCK))
    return await store.load(folder / "file", name="tart", version="1")


class SlowTalk:
    """A Mac that takes a block each few seconds."""

    def __init__(self, token: str, seconds: float) -> None:
        self.output = Heard(100)
        self.output.add(token.encode())
        self.taken = b""
        self._seconds = seconds

    async def send(self, block: bytes) -> None:
        await asyncio.sleep(self._seconds)
        self.taken += block

    def send_end(self) -> None:
        pass


async def say(folder: Path, *, seconds: float) -> bytes:
    store = ArtifactStore()
    artifact = await brought(folder, store)
    script = command_scripts.render(
        Stream(artifact=artifact, path="/x", purpose="bring"), token="token"
    )
    talk: Any = SlowTalk(script.token, seconds)
    async with (
        store.open(artifact) as reading,
        connection.stall_deadline(STILL, "mac: bring") as renew,
    ):
        await connection.stream(talk, script, reading, renew=renew)
    return bytes(talk.taken)


async def test_a_slow_stream_ends_however_long_it_takes(tmp_path: Path) -> None:
    assert len(await say(tmp_path, seconds=9)) == 20 * BLOCK
    assert virtual_time.clock().monotonic() > 10 * STILL.total_seconds()


async def test_a_stream_that_stands_still_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(
        TimedOut, match="mac: bring: no data was accepted within 10 s; it was stopped"
    ):
        await say(tmp_path, seconds=11)


async def test_a_model_of_a_mac_takes_its_time_too(tmp_path: Path) -> None:
    mac = (await wanted.mac(tmp_path)).mac
    store = ArtifactStore(limit=BandwidthLimit(BLOCK / 9, clock=virtual_time.clock()))
    line = ModelConnection(mac, clock=virtual_time.clock(), artifacts=store)
    stream = Stream(
        artifact=await brought(tmp_path, store), path="/opt/x", purpose="bring", timeout=STILL
    )

    await line.do(stream)

    assert mac.files.digest("/opt/x") == stream.artifact.sha256


async def test_everything_else_has_to_end_in_time() -> None:
    with pytest.raises(TimedOut, match="mac: hang: did not finish within 10 s; it was stopped"):
        async with connection.deadline(STILL, "mac: hang"):
            await asyncio.sleep(11)
