"""The logs of this Node's Pods: what tart printed and what the guest wrote, as one log by time.

Once a VM has ended its guest's file is found where `guest.keeping` put it. A container has one life here, so there is never a
previous log.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import stat
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
from bramley.agent.guest.folders import UserData
from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.serving.log_files import FARTHEST_BACK_BYTES, LineTimes, LogFile
from bramley.agent.serving.sources import Line, LogRequest
from bramley.api.core import Pod
from bramley.api.names import guest
from bramley.base import errors
from bramley.base.clock import Clock

LOOK_EVERY = timedelta(seconds=1)
_FOLLOW_SECONDS = 0.3
_BATCH = 200
_OVER = frozenset({VmState.ENDED, VmState.REPORTED})
_NOT_BEGUN = frozenset({VmState.CLAIMED, VmState.CLONED})
_FINISHED = frozenset({"Succeeded", "Failed"})
_CREATING = "ContainerCreating"
# Nothing of ours is a link, and opening must never wait.
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class _Notes:
    """What is known of the two logs of a VM."""

    tart: LineTimes = field(default_factory=LineTimes)
    guest: LineTimes = field(default_factory=LineTimes)


@dataclass(slots=True)
class PodLogs:
    """Finds the logs of Pods; `run` has to run beside it for lines to be dated.

    `pods` finds a Pod that is bound to this Node, `records` are the ledger's.
    """

    log_dir: Path
    user_data: UserData
    pods: Callable[[str, str], Pod | None]
    records: Callable[[], Mapping[str, VmRecord]]
    clock: Clock
    _notes: dict[str, _Notes] = field(default_factory=dict)
    _kept: set[str] = field(default_factory=set)

    def batches(self, wanted: LogRequest) -> AsyncGenerator[Sequence[Line], None]:
        """Return the lines of a Pod's log; see LogSource."""
        pod = self.pods(wanted.namespace, wanted.pod)
        if pod is None:
            raise errors.NotFound(f'pod "{wanted.pod}" does not exist')
        if wanted.container not in [each.name for each in pod.spec.containers]:
            told = f'container "{wanted.container}" not found in pod "{wanted.pod}"'
            raise errors.NotFound(told)
        if wanted.previous:
            told = f'previous terminated container "{wanted.container}" in pod "{wanted.pod}" not found'
            raise errors.Refused(told)
        record = self._record(pod.uid)
        has_begun = record.state not in _NOT_BEGUN if record else pod.status.phase in _FINISHED
        if not has_begun:
            told = f'container "{wanted.container}" in pod "{wanted.pod}" is waiting to start: {_waits_for(pod)}'
            raise errors.Refused(told)
        vm = record.vm if record else vm_names.of_pod(wanted.namespace, wanted.pod, pod.uid)
        return self._told(vm, wanted)

    async def run(self) -> None:
        """Note how far logs have come until cancelled, and keep those of guests as soon as their VMs have ended."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY.total_seconds())

    def look(self) -> None:
        """Look once at the logs of all VMs."""
        records = self.records()
        for vm, record in records.items():
            if record.state not in _NOT_BEGUN:
                self._note(vm)
            if record.state in _OVER and vm not in self._kept:
                self._kept.add(vm)
                report.keep_log(self.user_data, vm, self.log_dir)
        for vm in [vm for vm in self._notes if vm not in records]:
            del self._notes[vm]
        self._kept &= records.keys()

    def _note(self, vm: str) -> _Notes:
        notes, now = self._notes.setdefault(vm, _Notes()), self.clock.now()
        for opening, times in (
            (self._open_tart(vm), notes.tart),
            (self._open_guest(vm), notes.guest),
        ):
            with contextlib.closing(opening) if opening else contextlib.nullcontext():
                if opening is not None:
                    facts = os.fstat(opening.fileno())
                    # A guest dates its files as it likes: not into the future, nor into a year that no date can tell.
                    changed = min(max(facts.st_mtime, 0.0), now.timestamp())
                    times.note(facts.st_size, datetime.fromtimestamp(changed, UTC))
        return notes

    async def _told(self, vm: str, wanted: LogRequest) -> AsyncGenerator[Sequence[Line], None]:
        notes = self._note(vm)
        logs = (
            LogFile(lambda: self._open_tart(vm), notes.tart, renews=True),
            LogFile(lambda: self._open_guest(vm), notes.guest, renews=False),
        )
        try:
            follows = wanted.follow and not self._is_over(vm)
            there = _selected(_merged(self._backlog(logs, follows=follows)), wanted)
            async for batch in _batched(there):
                yield batch
            while follows:
                # Asked before reading: what was written until the end is read after it.
                follows = not self._is_over(vm)
                yield sorted(self._fresh(logs, rest=not follows), key=attrgetter("at"))
                await asyncio.sleep(_FOLLOW_SECONDS if follows else 0)
        finally:
            for each in logs:
                each.close()

    def _backlog(self, logs: Sequence[LogFile], *, follows: bool) -> list[Iterator[Line]]:
        now = self.clock.now()
        return [each.all_lines(now, rest=not follows) for each in logs]

    def _fresh(self, logs: Sequence[LogFile], *, rest: bool) -> Iterator[Line]:
        now = self.clock.now()
        for each in logs:
            yield from each.all_lines(now, rest=True) if rest else each.new_lines(now)

    def _record(self, uid: str) -> VmRecord | None:
        return next((each for each in self.records().values() if each.uid == uid), None)

    def _is_over(self, vm: str) -> bool:
        record = self.records().get(vm)
        return record is None or record.state in _OVER

    def _open_tart(self, vm: str) -> BinaryIO | None:
        return _opened(self.log_dir / f"{vm}.log")

    def _open_guest(self, vm: str) -> BinaryIO | None:
        found = self.user_data.open_guests_file(vm, guest.LOG_FILE)
        return found or _opened(report.kept_log_path(self.log_dir, vm))


def _merged(sources: Iterable[Iterator[Line]]) -> Iterator[Line]:
    return heapq.merge(*sources, key=attrgetter("at"))


def _selected(lines: Iterator[Line], wanted: LogRequest) -> Iterable[Line]:
    since, tail = wanted.since, wanted.tail_lines
    chosen = lines if since is None else (each for each in lines if each.at >= since)
    if tail is None:
        return chosen
    # No more lines than these can be read; nobody gets to choose the size of our memory.
    return deque(chosen, maxlen=min(tail, FARTHEST_BACK_BYTES))


async def _batched(lines: Iterable[Line]) -> AsyncGenerator[Sequence[Line], None]:
    batch: list[Line] = []
    for line in lines:
        batch.append(line)
        if len(batch) == _BATCH:
            yield batch
            batch = []
            # Others have their turn while a long log is read.
            await asyncio.sleep(0)
    yield batch


def _opened(path: Path) -> BinaryIO | None:
    try:
        number = os.open(path, _PLAIN)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        return None
    return os.fdopen(number, "rb", buffering=0)


def _waits_for(pod: Pod) -> str:
    states = chain(each.state for each in pod.status.container_statuses)
    return next((each.waiting.reason for each in states if each.waiting), "") or _CREATING
