"""The logs of this Node's Pods: the output of tart and the guest's log file, merged by time.

Once a VM has ended, its guest's log is read from the copy that `guest.report` made. A container never restarts, so there is no
previous log.
"""

from __future__ import annotations

import asyncio
import heapq
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

from bramley.agent import vm_names
from bramley.agent.guest import report
from bramley.agent.guest.folders import UserData, open_regular_file
from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.serving.log_files import MAX_BACKLOG_BYTES, LineTimes, LogFile
from bramley.agent.serving.sources import Line, LogRequest
from bramley.api.core import Pod
from bramley.api.names import guest
from bramley.base import errors
from bramley.base.clock import Clock

SCAN_PERIOD = timedelta(seconds=1)
_FOLLOW_SECONDS = 0.3
_BATCH_LINES = 200
_ENDED = frozenset({VmState.ENDED, VmState.REPORTED})
_NOT_STARTED = frozenset({VmState.CLAIMED, VmState.CLONED})
_FINISHED = frozenset({"Succeeded", "Failed"})
_CREATING = "ContainerCreating"


@dataclass(slots=True)
class _VmTimes:
    """The line times of the two logs of a VM."""

    tart: LineTimes = field(default_factory=LineTimes)
    guest: LineTimes = field(default_factory=LineTimes)


@dataclass(slots=True)
class PodLogs:
    """Reads the logs of Pods; `run` must run concurrently, so that lines get their times.

    `pods` finds a Pod that is bound to this Node, `records` returns the ledger's records.
    """

    log_dir: Path
    user_data: UserData
    pods: Callable[[str, str], Pod | None]
    records: Callable[[], Mapping[str, VmRecord]]
    clock: Clock
    _times: dict[str, _VmTimes] = field(default_factory=dict)
    _copied: set[str] = field(default_factory=set)

    def batches(self, request: LogRequest) -> AsyncGenerator[Sequence[Line], None]:
        """Return the lines of a Pod's log; see LogSource."""
        pod = self.pods(request.namespace, request.pod)
        if pod is None:
            raise errors.NotFound(f'pod "{request.pod}" does not exist')
        if request.container not in [each.name for each in pod.spec.containers]:
            message = f'container "{request.container}" not found in pod "{request.pod}"'
            raise errors.NotFound(message)
        if request.previous:
            message = f'previous terminated container "{request.container}" in pod "{request.pod}" not found'
            raise errors.Refused(message)
        record = self._record(pod.uid)
        has_started = record.state not in _NOT_STARTED if record else pod.status.phase in _FINISHED
        if not has_started:
            message = f'container "{request.container}" in pod "{request.pod}" is waiting to start: {_waiting_reason(pod)}'
            raise errors.Refused(message)
        vm = record.vm if record else vm_names.of_pod(request.namespace, request.pod, pod.uid)
        return self._lines(vm, request)

    async def run(self) -> None:
        """Scan the logs until cancelled."""
        while True:
            self.scan()
            await asyncio.sleep(SCAN_PERIOD.total_seconds())

    def scan(self) -> None:
        """Record the sizes of the logs of all VMs, and copy the guests' logs of VMs that have ended."""
        records = self.records()
        for vm, record in records.items():
            if record.state not in _NOT_STARTED:
                self._record_times(vm)
            if record.state in _ENDED and vm not in self._copied:
                self._copied.add(vm)
                report.copy_log(self.user_data, vm, self.log_dir)
        for vm in [vm for vm in self._times if vm not in records]:
            del self._times[vm]
        self._copied &= records.keys()

    def _record_times(self, vm: str) -> _VmTimes:
        vm_times, now = self._times.setdefault(vm, _VmTimes()), self.clock.now()
        files = ((self._open_tart(vm), vm_times.tart), (self._open_guest(vm), vm_times.guest))
        for file, times in files:
            if file is not None:
                with file:
                    stat = os.fstat(file.fileno())
                # A guest controls the dates of its files; a date in the future, or one that cannot be represented, is clamped.
                modified = min(max(stat.st_mtime, 0.0), now.timestamp())
                times.record(stat.st_size, datetime.fromtimestamp(modified, UTC))
        return vm_times

    async def _lines(self, vm: str, request: LogRequest) -> AsyncGenerator[Sequence[Line], None]:
        times = self._record_times(vm)
        logs = (
            LogFile(lambda: self._open_tart(vm), times.tart, rotates=True),
            LogFile(lambda: self._open_guest(vm), times.guest, rotates=False),
        )
        try:
            follows = request.follow and not self._has_ended(vm)
            now = self.clock.now()
            backlog = [each.all_lines(now, partial=not follows) for each in logs]
            merged = heapq.merge(*backlog, key=attrgetter("at"))
            async for batch in _batched(_selected(merged, request)):
                yield batch
            while follows:
                # Checked before reading: lines written until the VM's end must be read after it.
                follows = not self._has_ended(vm)
                yield sorted(self._new_lines(logs, partial=not follows), key=attrgetter("at"))
                await asyncio.sleep(_FOLLOW_SECONDS if follows else 0)
        finally:
            for each in logs:
                each.close()

    def _new_lines(self, logs: Sequence[LogFile], *, partial: bool) -> Iterator[Line]:
        now = self.clock.now()
        for each in logs:
            yield from each.all_lines(now, partial=True) if partial else each.new_lines(now)

    def _record(self, uid: str) -> VmRecord | None:
        return next((each for each in self.records().values() if each.uid == uid), None)

    def _has_ended(self, vm: str) -> bool:
        record = self.records().get(vm)
        return record is None or record.state in _ENDED

    def _open_tart(self, vm: str) -> BinaryIO | None:
        return open_regular_file(self.log_dir / f"{vm}.log")

    def _open_guest(self, vm: str) -> BinaryIO | None:
        file = self.user_data.open_guest_file(vm, guest.LOG_FILE)
        return file or open_regular_file(report.log_copy_path(self.log_dir, vm))


def _selected(lines: Iterable[Line], request: LogRequest) -> Iterable[Line]:
    since, tail = request.since, request.tail_lines
    lines_since = lines if since is None else (each for each in lines if each.at >= since)
    if tail is None:
        return lines_since
    # The backlog has no more lines than bytes, so a larger number from the client would only cost memory.
    return deque(lines_since, maxlen=min(tail, MAX_BACKLOG_BYTES))


async def _batched(lines: Iterable[Line]) -> AsyncGenerator[Sequence[Line], None]:
    batch: list[Line] = []
    for line in lines:
        batch.append(line)
        if len(batch) == _BATCH_LINES:
            yield batch
            batch = []
            # Other tasks may run while a long log is read.
            await asyncio.sleep(0)
    yield batch


def _waiting_reason(pod: Pod) -> str:
    states = chain(each.state for each in pod.status.container_statuses)
    return next((each.waiting.reason for each in states if each.waiting), "") or _CREATING
