"""Deadlines of commands: a stream may take any time while it makes progress; everything else has a fixed limit."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bramley.base.errors import TimedOut
from bramley.host import connection
from bramley.host.artifacts import BLOCK, Artifact, ArtifactStore, BandwidthLimit
from bramley.host.commands import Stream
from bramley.host.rendering import command_scripts
from bramley.host.ssh.connection import send_file
from bramley.host.ssh.process import OutputBuffer
from bramley.sim.macos.connection import ModelConnection
from tests import virtual_time
from tests.unit.host.steps import fixtures

STALL_LIMIT = timedelta(seconds=10)


async def store_artifact(folder: Path, store: ArtifactStore) -> Artifact:
    (folder / "file").write_bytes(os.urandom(20 * BLOCK))
    return await store.load(folder / "file", name="tart", version="1")


class SlowProcess:
    """A Mac that accepts one block every few seconds."""

    def __init__(self, token: str, seconds: float) -> None:
        self.output = OutputBuffer(100)
        self.output.add(token.encode())
        self.taken = b""
        self._seconds = seconds

    async def send(self, block: bytes) -> None:
        await asyncio.sleep(self._seconds)
        self.taken += block

    def send_eof(self) -> None:
        pass


async def stream(folder: Path, *, seconds: float) -> bytes:
    store = ArtifactStore()
    artifact = await store_artifact(folder, store)
    script = command_scripts.render(
        Stream(artifact=artifact, path="/x", purpose="upload"), token="token"
    )
    process: Any = SlowProcess(script.token, seconds)
    async with (
        store.open(artifact) as reader,
        connection.stall_deadline(STALL_LIMIT, "mac: upload") as renew,
    ):
        await send_file(process, script, reader, renew=renew)
    return bytes(process.taken)


async def test_a_slow_stream_may_take_any_time(tmp_path: Path) -> None:
    assert len(await stream(tmp_path, seconds=9)) == 20 * BLOCK
    assert virtual_time.clock().monotonic() > 10 * STALL_LIMIT.total_seconds()


async def test_a_stalled_stream_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(
        TimedOut, match="mac: upload: no data was accepted within 10 s; it was stopped"
    ):
        await stream(tmp_path, seconds=11)


async def test_a_slow_stream_to_the_model_of_a_mac_succeeds(tmp_path: Path) -> None:
    mac = (await fixtures.mac(tmp_path)).mac
    store = ArtifactStore(limit=BandwidthLimit(BLOCK / 9, clock=virtual_time.clock()))
    connection = ModelConnection(mac, clock=virtual_time.clock(), artifacts=store)
    command = Stream(
        artifact=await store_artifact(tmp_path, store),
        path="/opt/x",
        purpose="upload",
        timeout=STALL_LIMIT,
    )

    await connection.execute(command)

    assert mac.files.digest("/opt/x") == command.artifact.sha256


async def test_other_commands_must_end_in_time() -> None:
    with pytest.raises(TimedOut, match="mac: hang: did not finish within 10 s; it was stopped"):
        async with connection.deadline(STALL_LIMIT, "mac: hang"):
            await asyncio.sleep(11)
