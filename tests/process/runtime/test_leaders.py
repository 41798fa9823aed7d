"""Real processes that contend for one lease, one of them stopped in its tracks."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bramley.api.core import ConfigMap
from bramley.api.meta import ObjectMeta
from bramley.kube.client import Client
from bramley.kube.config_loader import connect
from tests.process.runtime import contender
from tests.process.serving import processes
from tests.process.serving.processes import PATIENCE

# A lease that is waited for; and one that nobody loses or gets by waiting, however long this machine stands still.
SHORT, ENDLESS = 6.0, 100 * PATIENCE
# How soon one that stands by looks again, and how long one that leaves tries to give its lease back.
SOON, PATIENTLY = 0.4, PATIENCE


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

    async def signed_by(self, name: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.writer != name:
                await asyncio.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Contender:
    """One of the processes."""

    process: subprocess.Popen[bytes]
    log: Path

    async def stands_by(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while "Waiting for the lease" not in self.log.read_text():
                await asyncio.sleep(0.02)

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE):
            while (status := self.process.poll()) is None:
                await asyncio.sleep(0.02)
        return status


@contextmanager
def contending(kubeconfig: Path, name: str, *, lease: float, retry: float) -> Iterator[Contender]:
    times = (str(lease), str(retry))
    program = [sys.executable, contender.__file__, str(kubeconfig), name, *times]
    log = kubeconfig.with_name(f"{name}.log")
    with log.open("wb") as err:
        process = subprocess.Popen(program, stderr=err)
    try:
        yield Contender(process, log)
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


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with processes.running(tmp_path / "server") as server:
        yield server.kubeconfig


async def test_stopped_leader_writes_nothing_when_it_goes_on(kubeconfig: Path) -> None:
    async with watched_slate(kubeconfig) as slate:
        with contending(kubeconfig, "first", lease=SHORT, retry=SOON) as first:
            await slate.signed_by("first")
            with contending(kubeconfig, "second", lease=ENDLESS, retry=SOON) as second:
                await second.stands_by()
                first.process.send_signal(signal.SIGSTOP)
                await slate.signed_by("second")
                first.process.send_signal(signal.SIGCONT)

                assert await first.ended() == 3
                await asyncio.sleep(0.3)

    writers = [writer for writer, _ in slate.signatures]
    turn = writers.index("second")
    assert set(writers[turn:]) == {"second"}
    assert {epoch for _, epoch in slate.signatures[turn:]} == {slate.signatures[0][1] + 1}


async def test_kind_stop_hands_over_at_once(kubeconfig: Path) -> None:
    async with watched_slate(kubeconfig) as slate:
        with contending(kubeconfig, "first", lease=ENDLESS, retry=PATIENTLY) as first:
            await slate.signed_by("first")
            with contending(kubeconfig, "second", lease=ENDLESS, retry=SOON) as second:
                await second.stands_by()
                await asyncio.sleep(1)
                assert slate.writer == "first"
                first.process.send_signal(signal.SIGTERM)
                # The lease would not have ended by then.
                await slate.signed_by("second")

                assert await first.ended() == 0
