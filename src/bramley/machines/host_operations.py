"""Operations on hosts that take minutes: they run outside the reconcile workers, a limited number at a time.

A reconciler starts an operation, and is called again when its step changes and when it has ended. The result stays until it is
acknowledged, after it was written to the status. All of this is lost with the process: an operation is repeated by the next one, and
finds on the host what was done before. Not more than one operation runs for a machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum

from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.host.progress import Report
from bramley.machines.metrics import MachineMetrics

logger = log.get(__name__)

# Longer than any bootstrap; each step and each command has its own, shorter one.
DEADLINE = timedelta(minutes=90)


class Kind(StrEnum):
    """What is done to a host."""

    BOOTSTRAP = "bootstrap"
    UPDATE = "update"
    # The removal of everything from a Mac that its team owns.
    CLEANUP = "cleanup"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation, and the configuration that the host has once it has succeeded."""

    kind: Kind
    host_config_hash: str = ""
    replace_tart: bool = False
    # Whether the host may be rebooted if it runs no VM.
    may_reboot: bool = True


class Unprepared(Exception):
    """What an operation needs is missing, and the host was not touched: it does not count as an attempt."""

    def __init__(self, reason: str, text: str, *, after: timedelta = timedelta(seconds=30)) -> None:
        super().__init__(text)
        self.reason = reason
        self.after = after


@dataclass(frozen=True, slots=True)
class Result:
    """How an operation has ended; `number` identifies it in this process."""

    number: int
    operation: Operation
    report: Report | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class State:
    """An operation that waits, runs or has ended."""

    operation: Operation
    step: str = ""
    result: Result | None = None

    @property
    def is_active(self) -> bool:
        """Return whether the operation has not ended."""
        return self.result is None


OnStep = Callable[[str], None]
Work = Callable[[OnStep], Awaitable[Report | None]]


@dataclass(slots=True)
class _Entry:
    state: State
    on_change: Callable[[], None]
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class HostOperations:
    """The operations of one process, by the uid of the machine; they run inside `run`."""

    limit: int
    clock: Clock
    metrics: MachineMetrics
    _entries: dict[str, _Entry] = field(default_factory=dict)
    # Until when no operation may begin, by monotonic time.
    _postponed: dict[str, float] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _group: asyncio.TaskGroup | None = None
    _slots: dict[bool, asyncio.Semaphore] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Cleanups have their own: the deletion of a machine must not wait for bootstraps.
        self._slots = {is_cleanup: asyncio.Semaphore(self.limit) for is_cleanup in (False, True)}

    async def run(self) -> None:
        """Run operations until this is cancelled; those that run are cancelled with it."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None

    def find(self, uid: str) -> State | None:
        """Return the operation of a machine that has not been acknowledged."""
        entry = self._entries.get(uid)
        return entry.state if entry is not None else None

    def is_active(self, uid: str) -> bool:
        """Return whether an operation of a machine waits or runs."""
        state = self.find(uid)
        return state is not None and state.is_active

    def start(
        self, uid: str, operation: Operation, work: Work, on_change: Callable[[], None]
    ) -> None:
        """Start an operation; `on_change` is called when its step changes and when it has ended."""
        if self._group is None or self.is_active(uid):
            return
        entry = self._entries[uid] = _Entry(State(operation), on_change)
        entry.task = self._group.create_task(self._run(entry, work))

    async def cancel(self, uid: str) -> None:
        """Cancel the operation of a machine, and wait until it has ended; its result is dropped."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        if entry.task is not None and not entry.task.done():
            entry.task.cancel()
            await asyncio.wait({entry.task})
        if self._entries.get(uid) is entry:
            del self._entries[uid]

    def acknowledge(self, uid: str, result: Result) -> None:
        """Drop a result that was written to the status; after one that could not begin, the next one waits."""
        state = self.find(uid)
        if state is None or state.result is not result:
            return
        del self._entries[uid]
        if isinstance(result.error, Unprepared):
            self.postpone(uid, result.error.after)

    def postpone(self, uid: str, after: timedelta) -> None:
        """Begin no operation of a machine before this time has passed."""
        self._postponed[uid] = self.clock.monotonic() + after.total_seconds()

    def postponed(self, uid: str) -> timedelta:
        """Return how long no operation of a machine may begin."""
        left = self._postponed.get(uid, 0.0) - self.clock.monotonic()
        return timedelta(seconds=max(left, 0.0))

    def forget(self, uid: str) -> None:
        """Drop what is remembered about a machine that is gone."""
        self._postponed.pop(uid, None)

    async def _run(self, entry: _Entry, work: Work) -> None:
        operation = entry.state.operation
        slot = self._slots[operation.kind is Kind.CLEANUP]
        async with contextlib.AsyncExitStack() as stack:
            with self._counted(operation, "waiting"):
                await stack.enter_async_context(slot)
            with self._counted(operation, "running"):
                result = await self._result(entry, work)
        entry.state = replace(entry.state, step="", result=result)
        entry.on_change()

    async def _result(self, entry: _Entry, work: Work) -> Result:
        operation, report, captured = entry.state.operation, None, errors.Captured()
        started = self.clock.monotonic()
        # A bug must not end the operations of other hosts.
        with captured:
            report = await self._within_deadline(work(lambda step: _show(entry, step)))
        error = captured.error
        seconds = self.clock.monotonic() - started
        self.metrics.observe_operation(operation.kind, "failed" if error else "succeeded", seconds)
        if error is not None and not isinstance(error, errors.BramleyError | Unprepared):
            logger.error("Operation on host failed unexpectedly", exc=error)
        return Result(next(self._numbers), operation, report, error)

    @contextlib.contextmanager
    def _counted(self, operation: Operation, state: str) -> Iterator[None]:
        self.metrics.count_operation(operation.kind, state, 1)
        try:
            yield
        finally:
            self.metrics.count_operation(operation.kind, state, -1)

    async def _within_deadline(self, work: Awaitable[Report | None]) -> Report | None:
        deadline = asyncio.timeout(DEADLINE.total_seconds())
        try:
            async with deadline:
                return await work
        except TimeoutError as error:
            if not deadline.expired():
                # Of the work itself: a bug, since it has to translate it.
                raise
            minutes = DEADLINE.total_seconds() / 60
            raise errors.TimedOut(
                f"the operation has not ended within {minutes:.0f} min"
            ) from error


def _show(entry: _Entry, step: str) -> None:
    if step != entry.state.step:
        entry.state = replace(entry.state, step=step)
        entry.on_change()
