"""Real processes that compete for one lease, one of them suspended by SIGSTOP."""

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
from tests.process.runtime import candidate
from tests.process.serving import processes
from tests.process.serving.processes import TIMEOUT_SECONDS

# A lease that expires soon; and one that does not expire during a test, however long this machine stalls.
SHORT, ENDLESS = 6.0, 100 * TIMEOUT_SECONDS
# The retry period of a waiting candidate, and of a leader that must not lose its lease while it releases it.
SOON, LONG = 0.4, TIMEOUT_SECONDS


@dataclass
class LeaderRecord:
    """Every leader and epoch that was written, in order."""

    entries: list[tuple[str, int]] = field(default_factory=list)

    @property
    def writer(self) -> str:
        return self.entries[-1][0] if self.entries else ""

    async def follow(self, client: Client) -> None:
        where = {"metadata.name": candidate.CONFIG_MAP}
        async with client.watch(ConfigMap, namespace=candidate.NAMESPACE, fields=where) as watch:
            async for event in watch:
                data = event.object.data if event.type != "BOOKMARK" else {}
                if data:
                    self.entries.append((data["writer"], int(data["epoch"])))

    async def wait_for_writer(self, name: str) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while self.writer != name:
                await asyncio.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of the processes."""

    process: subprocess.Popen[bytes]
    log: Path

    async def wait_until_waiting(self) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while "Waiting for the leader lease" not in self.log.read_text():
                await asyncio.sleep(0.02)

    async def ended(self) -> int:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (status := self.process.poll()) is None:
                await asyncio.sleep(0.02)
        return status


@contextmanager
def running_candidate(
    kubeconfig: Path, name: str, *, lease: float, retry: float
) -> Iterator[Candidate]:
    times = (str(lease), str(retry))
    program = [sys.executable, candidate.__file__, str(kubeconfig), name, *times]
    log = kubeconfig.with_name(f"{name}.log")
    with log.open("wb") as err:
        process = subprocess.Popen(program, stderr=err)
    try:
        yield Candidate(process, log)
    finally:
        process.kill()
        process.wait(TIMEOUT_SECONDS)


@asynccontextmanager
async def watched_record(kubeconfig: Path) -> AsyncIterator[LeaderRecord]:
    record = LeaderRecord()
    async with connect(kubeconfig) as client:
        metadata = ObjectMeta(name=candidate.CONFIG_MAP, namespace=candidate.NAMESPACE)
        await client.create(ConfigMap(metadata=metadata))
        async with asyncio.TaskGroup() as group:
            following = group.create_task(record.follow(client))
            yield record
            following.cancel()


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with processes.running(tmp_path / "server") as server:
        yield server.kubeconfig


async def test_suspended_leader_writes_nothing_when_it_continues(kubeconfig: Path) -> None:
    async with watched_record(kubeconfig) as record:
        with running_candidate(kubeconfig, "first", lease=SHORT, retry=SOON) as first:
            await record.wait_for_writer("first")
            with running_candidate(kubeconfig, "second", lease=ENDLESS, retry=SOON) as second:
                await second.wait_until_waiting()
                first.process.send_signal(signal.SIGSTOP)
                await record.wait_for_writer("second")
                first.process.send_signal(signal.SIGCONT)

                assert await first.ended() == 3
                await asyncio.sleep(0.3)

    writers = [writer for writer, _ in record.entries]
    turn = writers.index("second")
    assert set(writers[turn:]) == {"second"}
    assert {epoch for _, epoch in record.entries[turn:]} == {record.entries[0][1] + 1}


async def test_graceful_stop_hands_over_at_once(kubeconfig: Path) -> None:
    async with watched_record(kubeconfig) as record:
        with running_candidate(kubeconfig, "first", lease=ENDLESS, retry=LONG) as first:
            await record.wait_for_writer("first")
            with running_candidate(kubeconfig, "second", lease=ENDLESS, retry=SOON) as second:
                await second.wait_until_waiting()
                await asyncio.sleep(1)
                assert record.writer == "first"
                first.process.send_signal(signal.SIGTERM)
                # The lease would not have ended by then.
                await record.wait_for_writer("second")

                assert await first.ended() == 0
