"""A Pod's log from the output of tart and the guest's log: merged by time, bounded, and complete."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from bramley.agent import vm_names
from bramley.agent.guest import report
from bramley.agent.guest.folders import UserData
from bramley.agent.guest.guests import Guests
from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.serving import log_files
from bramley.agent.serving.log_files import LineTimes, LogFile
from bramley.agent.serving.pod_logs import PodLogs
from bramley.agent.serving.sources import Line, LogRequest
from bramley.api.core import Pod
from bramley.api.meta import ObjectMeta
from bramley.api.pod import Container, PodSpec, PodStatus
from bramley.base import errors
from tests import virtual_time

UID = "0d9f6c1e-0000-4000-8000-000000000001"
VM = vm_names.of_pod("ns", "p", UID)


@dataclass
class Host:
    """A host with one Pod whose state a test sets."""

    folder: Path
    state: VmState | None = VmState.STARTED
    phase: str = "Running"
    lookups: list[tuple[str, str]] = field(default_factory=list)

    def pod(self, namespace: str, name: str) -> Pod | None:
        self.lookups.append((namespace, name))
        if (namespace, name) != ("ns", "p"):
            return None
        spec = PodSpec(containers=[Container(name="vm")], node_name="mac-1")
        meta = ObjectMeta(name="p", namespace="ns", uid=UID)
        return Pod(metadata=meta, spec=spec, status=PodStatus(phase=self.phase))

    def records(self) -> dict[str, VmRecord]:
        if self.state is None:
            return {}
        record = VmRecord(vm=VM, namespace="ns", pod="p", uid=UID, image="i", state=self.state)
        return {VM: record}

    @property
    def data(self) -> UserData:
        return UserData(self.folder / "data")

    @property
    def logs(self) -> PodLogs:
        clock = virtual_time.clock()
        return PodLogs(self.folder, self.data, self.pod, self.records, clock)

    @property
    def tart(self) -> Path:
        return self.folder / f"{VM}.log"

    @property
    def guest(self) -> Path:
        return self.data.prepare(VM).status / "runner.log"


def write(path: Path, text: str, *, mode: str = "a") -> None:
    """Append a text, with the virtual time as the file's date."""
    with path.open(mode) as file:
        file.write(text)
    at = virtual_time.clock().now().timestamp()
    os.utime(path, (at, at))


def log_request(**more: Any) -> LogRequest:
    return LogRequest(**{"namespace": "ns", "pod": "p", "container": "vm", **more})


async def read(batches: AsyncGenerator[Sequence[Line], None]) -> list[str]:
    async with aclosing(batches):
        return [line.text.decode() async for lines in batches for line in lines]


async def write_script(logs: PodLogs, script: Sequence[tuple[Path, str]]) -> None:
    """Write one text per ten seconds, and scan the logs after each."""
    for path, text in script:
        write(path, text)
        logs.scan()
        await asyncio.sleep(10)


async def test_both_logs_are_merged_by_time(tmp_path: Path) -> None:
    host = Host(tmp_path)
    logs = host.logs
    script = [(host.tart, "t1\n"), (host.guest, "g1\n"), (host.tart, "t2\n"), (host.guest, "g2")]
    began = virtual_time.clock().now()
    await write_script(logs, script)

    assert await read(logs.batches(log_request())) == ["t1", "g1", "t2", "g2"]
    assert await read(logs.batches(log_request(tail_lines=3))) == ["g1", "t2", "g2"]
    assert await read(logs.batches(log_request(tail_lines=0))) == []
    since = began + timedelta(seconds=15)
    assert await read(logs.batches(log_request(since=since))) == ["t2", "g2"]
    lines = [line async for each in logs.batches(log_request()) for line in each]
    assert [(line.at - began).total_seconds() for line in lines] == [0, 10, 20, 30]


async def test_followed_log_ends_with_the_vm_and_loses_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path)
    logs, found = host.logs, list[str]()
    write(host.tart, "old\n")

    async def follow() -> None:
        async with aclosing(logs.batches(log_request(follow=True))) as batches:
            found.extend([line.text.decode() async for each in batches for line in each])

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        await asyncio.sleep(5)
        write(host.tart, "new\nhal")
        await asyncio.sleep(5)
        write(host.tart, "f\n")
        write(host.guest, "why it failed")
        # As the agent does: the record has the end, then everything is removed.
        host.state = VmState.ENDED
        report.copy_log(host.data, VM, tmp_path)
        await host.data.remove(VM)
        host.state = None

    assert found == ["old", "new", "half", "why it failed"]


async def test_kept_log_of_a_guest_is_not_sent_twice(tmp_path: Path) -> None:
    host = Host(tmp_path)
    logs, found = host.logs, list[str]()
    write(host.guest, "once\n")

    async def follow() -> None:
        async with aclosing(logs.batches(log_request(follow=True))) as batches:
            found.extend([line.text.decode() async for each in batches for line in each])

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        await asyncio.sleep(5)
        report.copy_log(host.data, VM, tmp_path)
        await host.data.remove(VM)
        await asyncio.sleep(5)
        host.state = VmState.ENDED

    assert found == ["once"]


class NoTokens:
    """Tokens of guests that have none."""

    def forget(self, vm: str) -> None:
        """Do nothing."""


async def test_removing_a_guest_keeps_its_log(tmp_path: Path) -> None:
    host = Host(tmp_path)
    write(host.guest, "why\n")
    tokens, kube, node_facts = cast("Any", NoTokens()), cast("Any", None), cast("Any", None)

    await Guests(kube, host.data, tokens, node_facts=node_facts, logs=tmp_path).remove(VM)

    assert report.log_copy_path(tmp_path, VM).read_text() == "why\n"
    assert host.data.vms() == []


async def test_log_of_a_finished_pod_outlives_its_vm(tmp_path: Path) -> None:
    host = Host(tmp_path, state=VmState.ENDED)
    logs = host.logs
    write(host.tart, "done\n")
    write(host.guest, "exit 3\n")
    logs.scan()
    await host.data.remove(VM)
    host.state, host.phase = None, "Failed"

    assert await read(logs.batches(log_request(follow=True))) == ["done", "exit 3"]
    kept = report.log_copy_path(tmp_path, VM)
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("state", [None, VmState.CLAIMED, VmState.CLONED])
async def test_vm_that_has_not_started_has_no_log(tmp_path: Path, state: VmState | None) -> None:
    host = Host(tmp_path, state=state, phase="Pending")

    with pytest.raises(errors.Refused, match="is waiting to start: ContainerCreating"):
        host.logs.batches(log_request())


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"pod": "of-another-node"}, errors.NotFound),
        ({"namespace": "../..", "pod": "etc/passwd"}, errors.NotFound),
        ({"container": "other"}, errors.NotFound),
        ({"previous": True}, errors.Refused),
    ],
)
async def test_unknown_pod_or_container_is_refused_without_reading_files(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        Host(tmp_path).logs.batches(log_request(**changes))


async def test_link_in_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    host = Host(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("geheim\n")
    host.tart.symlink_to(secret)
    host.guest.symlink_to(secret)

    assert await read(host.logs.batches(log_request())) == []
    report.copy_log(host.data, VM, tmp_path)
    assert not report.log_copy_path(tmp_path, VM).exists()


@pytest.fixture
def any_date_folder() -> Iterator[Path]:
    """Return a folder whose files may have any date, where the system has one."""
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as folder:
        yield Path(folder)


async def test_log_dated_in_the_far_future_is_read(any_date_folder: Path) -> None:
    host = Host(any_date_folder)
    write(host.guest, "late\n")
    os.utime(host.guest, (1e12, 1e12))
    host.logs.scan()

    assert await read(host.logs.batches(log_request())) == ["late"]
    report.copy_log(host.data, VM, any_date_folder)
    kept = report.log_copy_path(any_date_folder, VM)
    assert kept.read_text() == "late\n"
    assert kept.stat().st_mtime <= time.time()


async def test_pipe_in_place_of_a_log_does_not_block(tmp_path: Path) -> None:
    host = Host(tmp_path)
    os.mkfifo(host.guest)
    write(host.tart, "t\n")

    assert await read(host.logs.batches(log_request())) == ["t"]


async def test_endless_log_is_read_with_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path)
    monkeypatch.setattr(log_files, "MAX_BACKLOG_BYTES", 1000)
    write(host.guest, "".join(f"{number:08}\n" for number in range(10_000)))

    lines = await read(host.logs.batches(log_request()))

    assert lines[-1] == "00009999"
    assert len(lines) <= 1000 // 9


def a_file(path: Path) -> LogFile:
    times = LineTimes()
    return LogFile(lambda: path.open("rb", buffering=0), times, rotates=True)


def texts(file: LogFile) -> list[bytes]:
    return [line.text for line in file.all_lines(datetime.now(UTC), partial=True)]


async def test_endless_line_is_split(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (log_files.MAX_LINE_BYTES * 5 + 7) + b"\nend\n")

    with closing(a_file(path)) as file:
        found = texts(file)

    assert max(map(len, found)) == log_files.MAX_LINE_BYTES
    assert b"".join(found[:-1]) == b"x" * (log_files.MAX_LINE_BYTES * 5 + 7)
    assert found[-1] == b"end"


async def test_vnc_passwords_are_redacted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"open vnc://:geheim@127.0.0.1:5900 now\r\n")

    with closing(a_file(path)) as file:
        assert texts(file) == [b"open vnc://REDACTED now"]


def test_truncated_or_replaced_log_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a long first line\n")
    file = a_file(path)
    assert texts(file) == [b"a long first line"]

    path.write_text("cut\n")
    assert texts(file) == [b"cut"]
    fresh = tmp_path / "fresh"
    fresh.write_text("replaced\n")
    fresh.rename(path)
    assert texts(file) == [b"replaced"]
    file.close()


def test_time_of_a_line_is_that_of_the_first_record_after_it() -> None:
    times = LineTimes()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for minute, size in enumerate([10, 10, 30]):
        times.record(size, start + timedelta(minutes=minute))
    now = start + timedelta(hours=1)

    found = [times.at(offset, now) for offset in (0, 9, 10, 29, 30)]

    minutes = [(at - start).total_seconds() / 60 for at in found]
    assert minutes == [0, 0, 2, 2, 60]
    times.record(5, now)
    assert times.at(0, now) == now


def test_recorded_times_are_bounded() -> None:
    times = LineTimes()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for size in range(1, 20_000):
        times.record(size, start + timedelta(seconds=size))

    assert len(times._sizes) <= 4096
    late = [times.at(size, start) - start - timedelta(seconds=size) for size in (0, 9000, 19_000)]
    assert max(late) <= timedelta(seconds=16)
    assert min(late) > timedelta()
