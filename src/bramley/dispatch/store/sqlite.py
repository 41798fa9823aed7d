"""The store's database in one SQLite file, for one process.

One thread has the only writing connection. Operations that wait are committed together, each in its savepoint, so that
one `fsync` serves many and a failed operation undoes only itself. The file holds JIT configs and is readable by its owner only.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import queue
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bramley.base.errors import BadConfiguration, Captured, Conflict, Unavailable
from bramley.dispatch.store import sql
from bramley.dispatch.store.migration import migrate
from bramley.dispatch.store.operations import MakeOperation, Wake
from bramley.dispatch.wakeups import Wakeups

T = TypeVar("T")

MAX_GROUP = 64
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    # A commit returns after the log is on the disk; on macOS also after the drive's cache is.
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    # Overwrites deleted JIT configs.
    "PRAGMA secure_delete = ON",
    "PRAGMA foreign_keys = ON",
)
_render = functools.cache(sql.SQLITE.render)


@dataclass(slots=True)
class _Request:
    """An operation that waits for the thread, and the future of its result."""

    make: MakeOperation[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None
    wakes: list[str] = field(default_factory=list)


class SqliteDatabase:
    """Runs operations on one SQLite file, in a thread or, for tests under virtual time, in place."""

    def __init__(self, connection: sqlite3.Connection, *, threaded: bool) -> None:
        self._connection = connection
        self._wakeups = Wakeups()
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="dispatch-store", daemon=True)
        self._threaded = threaded
        if threaded:
            self._thread.start()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        threaded: bool = True,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> SqliteDatabase:
        """Open the file, created or migrated as needed; raise BadConfiguration if it is unusable."""
        try:
            # Created here: SQLite would make it readable by others.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            path.chmod(0o600)
            connection = _connect(path, factory)
        except (sqlite3.Error, OSError) as error:
            raise BadConfiguration(f"{path} cannot be used as a database: {error}") from error
        with contextlib.ExitStack() as undo:
            undo.callback(connection.close)
            _transact(connection, migrate)
            undo.pop_all()
        return cls(connection, threaded=threaded)

    @property
    def wakeups(self) -> Wakeups:
        """Return the waiting polls."""
        return self._wakeups

    async def run(self, make: MakeOperation[T]) -> T:
        """Run an operation in a transaction that is durable when this returns."""
        if self._closed:
            raise Unavailable("the database is closed")
        loop = asyncio.get_running_loop()
        request = _Request(make, loop, loop.create_future())
        if self._threaded:
            self._requests.put(request)
        else:
            self._run_group([request])
            self._report(request)
        result: T = await request.future
        return result

    async def close(self) -> None:
        """Finish the accepted operations and close the file."""
        if self._closed:
            return
        self._closed = True
        if self._threaded:
            self._requests.put(None)
            await asyncio.to_thread(self._thread.join)
        self._connection.close()

    def _work(self) -> None:
        is_open = True
        while is_open:
            group, is_open = self._next_group()
            if group:
                self._run_group(group)
            for request in group:
                # The loop is closed if the process is ending; then no caller waits for the result.
                with contextlib.suppress(RuntimeError):
                    request.loop.call_soon_threadsafe(self._report, request)

    def _next_group(self) -> tuple[list[_Request], bool]:
        group: list[_Request] = []
        request = self._requests.get()
        while request is not None:
            group.append(request)
            if len(group) == MAX_GROUP:
                break
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                break
        return group, request is not None

    def _run_group(self, group: Sequence[_Request]) -> None:
        with Captured() as captured:
            self._connection.execute("BEGIN IMMEDIATE")
            for request in group:
                _attempt(self._connection, request)
            self._connection.execute("COMMIT")
        if captured.error is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.rollback()
            for request in group:
                request.error = _translated(captured.error)

    def _report(self, request: _Request) -> None:
        # In the event loop and after the commit: a poll that is woken finds the job.
        if request.error is None:
            for pool in request.wakes:
                self._wakeups.wake(pool)
        if request.future.cancelled():
            return
        if request.error is not None:
            request.future.set_exception(request.error)
        else:
            request.future.set_result(request.result)


def _connect(path: Path, factory: type[sqlite3.Connection]) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=5, factory=factory
    )
    connection.row_factory = sqlite3.Row
    for pragma in _PRAGMAS:
        connection.execute(pragma)
    return connection


def _attempt(connection: sqlite3.Connection, request: _Request) -> None:
    """Run one operation of a group; its failure undoes only its own statements."""
    connection.execute("SAVEPOINT operation")
    with Captured() as captured:
        request.result = _drive(connection, request.make, request.wakes)
    if captured.error is not None:
        if not connection.in_transaction:
            # SQLite has undone the whole group, for example on a full disk.
            raise captured.error
        request.error = _translated(captured.error)
        connection.execute("ROLLBACK TO operation")
    connection.execute("RELEASE operation")


def _drive(connection: sqlite3.Connection, make: MakeOperation[T], wakes: list[str]) -> T:
    operation = make()
    try:
        step = next(operation)
        while True:
            if isinstance(step, Wake):
                wakes.append(step.pool)
                step = operation.send(())
            else:
                found = connection.execute(_render(step.statement), step.values).fetchall()
                step = operation.send(found)
    except StopIteration as end:
        result: T = end.value
        return result


def _transact(connection: sqlite3.Connection, make: MakeOperation[T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = _drive(connection, make, [])
    except BaseException:
        connection.rollback()
        raise
    connection.execute("COMMIT")
    return result


def _translated(error: Exception) -> Exception:
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict(f"a value that must be unique is taken: {error}")
    if isinstance(error, sqlite3.Error):
        return Unavailable(f"the database failed: {error}")
    return error


def back_up(source: Path, target: Path) -> None:
    """Write a consistent copy of a database, which another process may have open, to a file that is complete when it has its name."""
    unfinished = target.with_name(f"{target.name}.new")
    unfinished.unlink(missing_ok=True)
    os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        # In a separate read transaction: the copy is one state of the database, and writers continue.
        with (
            contextlib.closing(
                sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)
            ) as reader,
            contextlib.closing(sqlite3.connect(unfinished)) as copy,
        ):
            reader.backup(copy)
    except sqlite3.Error as error:
        unfinished.unlink(missing_ok=True)
        raise Unavailable(f"the backup failed: {error}") from error
    # The content must be durable before it gets its name.
    _sync(unfinished)
    unfinished.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
