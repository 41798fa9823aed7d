"""Real processes that contend for one lease, one of them stopped in its tracks."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bramley.api.core import ConfigMap
from bramley.api.meta import ObjectMeta
from bramley.kube.client import Client
from bramley.kube.connecting import connect
from tests.process.runtime import contender
from tests.process.serving import processes

PATIENCE = 60.0
# One that is waited for, but that a leader on a busy machine renews in time; and one that nobody waits for.
SHORT, LONG = 6.0, 45.0


@dataclass
class Slate:
    """Every signature that was ever written, in order."""

    signatures: list[tuple[str, int]] = field(default_factory=list)

    @property
    def writer(self) -> str:
        return self.signatures[-1][0] if self.signatures else ""

    async def follow(self, client: Client) -> None:
        where = {"metadata.name": contender.SLATE}
        async with client.watch(ConfigMap, namespace=contender.NAMESPACE, fields=where) as watch:
            async for event in watch:
                data = event.object.data if event.type != "BOOKMARK" else {}
                if data:
                    self.signatures.append((data["writer"], int(data["epoch"])))

    async def signed_by(self, name: str) -> float:
        """Wait for a signature and return how long that took."""
        began = time.monotonic()
        async with asyncio.timeout(PATIENCE):
            while self.writer != name:
                await asyncio.sleep(0.01)
        return time.monotonic() - began


@contextmanager
def contending(kubeconfig: Path, name: str, *, lease: float) -> Iterator[subprocess.Popen[bytes]]:
    program = [sys.executable, contender.__file__, str(kubeconfig), name, str(lease)]
    process = subprocess.Popen(program)
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)


@asynccontextmanager
async def watched_slate(kubeconfig: Path) -> AsyncIterator[Slate]:
    slate = Slate()
    async with connect(kubeconfig) as client:
        metadata = ObjectMeta(name=contender.SLATE, namespace=contender.NAMESPACE)
        await client.create(ConfigMap(metadata=metadata))
        async with asyncio.TaskGroup() as group:
            following = group.create_task(slate.follow(client))
            yield slate
            following.cancel()


async def ended(process: subprocess.Popen[bytes]) -> int:
    async with asyncio.timeout(PATIENCE):
        while (status := process.poll()) is None:
            await asyncio.sleep(0.02)
    return status


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with processes.running(tmp_path / "server") as server:
        yield server.kubeconfig


async def test_stopped_leader_writes_nothing_when_it_goes_on(kubeconfig: Path) -> None:
    async with watched_slate(kubeconfig) as slate:
        with contending(kubeconfig, "first", lease=SHORT) as first:
            await slate.signed_by("first")
            with contending(kubeconfig, "second", lease=SHORT):
                await asyncio.sleep(1)
                assert slate.writer == "first"
                first.send_signal(signal.SIGSTOP)
                await slate.signed_by("second")
                first.send_signal(signal.SIGCONT)

                assert await ended(first) == 3
                await asyncio.sleep(0.3)

    writers = [writer for writer, _ in slate.signatures]
    turn = writers.index("second")
    assert set(writers[turn:]) == {"second"}
    assert {epoch for _, epoch in slate.signatures[turn:]} == {slate.signatures[0][1] + 1}


async def test_kind_stop_hands_over_at_once(kubeconfig: Path) -> None:
    async with watched_slate(kubeconfig) as slate:
        with contending(kubeconfig, "first", lease=LONG) as first:
            await slate.signed_by("first")
            with contending(kubeconfig, "second", lease=LONG):
                # Long enough for it to stand by with its cache filled, whatever else this machine does.
                await asyncio.sleep(3)
                first.send_signal(signal.SIGTERM)
                took = await slate.signed_by("second")

                assert await ended(first) == 0
                assert took < LONG / 2
