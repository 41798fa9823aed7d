"""The store's database in PostgreSQL, for several replicas.

A few connections run operations, each in its transaction; one more listens for the wake-ups of all replicas. Every
statement has a timeout. Lost connections are opened again with backoff; a transaction is repeated only if PostgreSQL reports that
it was rolled back.
"""

from __future__ import annotations

import asyncio
import functools
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import psycopg
from psycopg.rows import dict_row

from bramley.base import log
from bramley.base.backoff import Backoff
from bramley.base.errors import BadConfiguration, Conflict, Unavailable
from bramley.base.secret import Secret
from bramley.dispatch.store import sql
from bramley.dispatch.store.migration import migrate
from bramley.dispatch.store.operations import MakeOperation, Operation, Wake, rows
from bramley.dispatch.wakeups import Wakeups

T = TypeVar("T")
Connection = psycopg.AsyncConnection[dict[str, Any]]

logger = log.get(__name__)

_CHANNEL = "bramley_jobs"
_LOCK_MIGRATION = "SELECT pg_advisory_xact_lock(:key)"
_MIGRATION_KEY = 7023614
_NOTIFY = f"SELECT pg_notify('{_CHANNEL}', :payload)"
# PostgreSQL rolled these back itself, so another attempt is safe.
_REPEATABLE = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
_BACKOFF = Backoff(timedelta(milliseconds=20), timedelta(seconds=2), jitter=0.5)
_render = functools.cache(sql.POSTGRES.render)


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of the connections to PostgreSQL."""

    connections: int = 4
    connect_timeout: timedelta = timedelta(seconds=5)
    statement_timeout: timedelta = timedelta(seconds=5)
    operation_timeout: timedelta = timedelta(seconds=15)
    attempts: int = 8
    backoff: Backoff = _BACKOFF


DEFAULTS = Settings()


class PostgresDatabase:
    """Runs operations on PostgreSQL; `run_listener` must run beside it for wake-ups."""

    def __init__(self, url: Secret, settings: Settings = DEFAULTS) -> None:
        self._url = url
        self._settings = settings
        self._wakeups = Wakeups()
        self._rng = random.Random()
        self._closed = False
        # None stands for a connection that is to be opened. The semaphore is first in, first out; a queue would give a connection
        # to a caller that asks when it is put back, before those that wait.
        self._idle: list[Connection | None] = [None] * settings.connections
        self._free = asyncio.Semaphore(settings.connections)
        self.listening = asyncio.Event()

    @classmethod
    async def open(cls, url: Secret, settings: Settings = DEFAULTS) -> PostgresDatabase:
        """Connect, and migrate the schema as needed; raise Unavailable or BadConfiguration."""
        database = cls(url, settings)
        try:
            await database.run(_migrate_alone)
        except (BadConfiguration, Unavailable):
            await database.close()
            raise
        return database

    @property
    def wakeups(self) -> Wakeups:
        """Return the waiting polls of this process."""
        return self._wakeups

    async def run(self, make: MakeOperation[T]) -> T:
        """Run an operation in a transaction that is durable when this returns."""
        try:
            async with asyncio.timeout(self._settings.operation_timeout.total_seconds()):
                return await self._attempts(make)
        except TimeoutError:
            raise Unavailable("PostgreSQL did not answer in time; the result is unknown") from None

    async def close(self) -> None:
        """Wait for running operations and close their connections."""
        self._closed = True
        for _ in range(self._settings.connections):
            await self._free.acquire()
            if (connection := self._idle.pop()) is not None:
                await connection.close()

    async def run_listener(self) -> None:
        """Wake polls when a replica queued a job, for ever; connect again after failures."""
        failures = 0
        while True:
            try:
                async with await self._connect() as connection:
                    await connection.execute(f"LISTEN {_CHANNEL}")
                    self.listening.set()
                    # Jobs may have been queued while nothing listened.
                    self._wakeups.wake_all()
                    failures = 0
                    async for notification in connection.notifies():
                        self._wakeups.wake(notification.payload.partition("/")[2])
            except psycopg.Error as error:
                logger.warning("Lost the connection for wake-ups", reason=type(error).__name__)
            self.listening.clear()
            failures += 1
            await self._pause(failures)

    async def _attempts(self, make: MakeOperation[T]) -> T:
        for failures in range(1, self._settings.attempts + 1):
            if self._closed:
                raise Unavailable("the database is closed")
            try:
                return await self._attempt(make)
            except _REPEATABLE as error:
                logger.debug("Repeating a transaction", reason=type(error).__name__)
            except _NotConnected as error:
                if failures == self._settings.attempts:
                    raise Unavailable(f"PostgreSQL is not reachable: {error}") from None
            except psycopg.errors.UniqueViolation as error:
                name = error.diag.constraint_name
                raise Conflict(f"a value that must be unique is taken: {name}") from None
            except psycopg.Error as error:
                # The message of the driver may quote parameters, which may be secret.
                raise Unavailable(f"PostgreSQL failed: {_reason(error)}") from None
            await self._pause(failures)
        raise Unavailable("the transaction conflicted with others too often")

    async def _attempt(self, make: MakeOperation[T]) -> T:
        async with self._free:
            connection = self._idle.pop()
            try:
                if connection is None or connection.closed:
                    connection = None
                    connection = await self._connect()
                return await _in_transaction(connection, make)
            finally:
                # A broken connection, or one cancelled inside a transaction, is closed by the driver or unusable.
                self._idle.append(connection)

    async def _connect(self) -> Connection:
        limits = self._settings
        timeout_ms = limits.statement_timeout // timedelta(milliseconds=1)
        options = (
            f"-c statement_timeout={timeout_ms} -c lock_timeout={timeout_ms} "
            f"-c idle_in_transaction_session_timeout={2 * timeout_ms} "
            "-c synchronous_commit=on -c default_transaction_isolation=read\\ committed"
        )
        try:
            return await psycopg.AsyncConnection.connect(
                self._url.reveal(),
                autocommit=True,
                row_factory=dict_row,
                connect_timeout=max(2, int(limits.connect_timeout.total_seconds())),
                options=options,
                application_name="bramley-dispatch",
                keepalives_idle=10,
                tcp_user_timeout=10_000,
            )
        except psycopg.ProgrammingError:
            raise BadConfiguration("the URL of the database is invalid") from None
        except psycopg.OperationalError as error:
            raise _NotConnected(_reason(error)) from None

    async def _pause(self, failures: int) -> None:
        delay = self._settings.backoff.delay(failures, self._rng)
        await asyncio.sleep(delay.total_seconds())


class _NotConnected(psycopg.OperationalError):
    """No connection could be opened; nothing was sent."""


def _reason(error: psycopg.Error) -> str:
    return f"{type(error).__name__} {error.sqlstate or ''}".strip() if error.args else "no answer"


def _migrate_alone() -> Operation[int]:
    # Replicas start together; only one may change the schema.
    yield from rows(_LOCK_MIGRATION, key=_MIGRATION_KEY)
    return (yield from migrate())


async def _in_transaction(connection: Connection, make: MakeOperation[T]) -> T:
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(connection.transaction())
        except psycopg.OperationalError as error:
            # PostgreSQL restarted since the last use of this connection; nothing of the operation was sent.
            raise _NotConnected(_reason(error)) from None
        return await _drive(await stack.enter_async_context(connection.cursor()), make)


async def _drive(cursor: psycopg.AsyncCursor[dict[str, Any]], make: MakeOperation[T]) -> T:
    operation = make()
    wakes: list[str] = []
    try:
        step = next(operation)
        while True:
            if isinstance(step, Wake):
                wakes.append(step.pool)
                step = operation.send(())
            else:
                await cursor.execute(_render(step.statement).encode(), step.values or None)
                found = await cursor.fetchall() if cursor.description else []
                step = operation.send(found)
    except StopIteration as end:
        result: T = end.value
    # Delivered by PostgreSQL when the transaction commits, to this process too; numbered, because it merges equal ones.
    for number, pool in enumerate(wakes):
        await cursor.execute(_render(_NOTIFY).encode(), {"payload": f"{number}/{pool}"})
    return result
