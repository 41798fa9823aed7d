"""An operation on the store: a generator that yields statements, receives their rows and returns a result.

Operations do no I/O, so the same ones run in SQLite's thread and on PostgreSQL's event loop. A database runs each in one
transaction: all of its statements take effect, or none. An operation may run again after a conflict between transactions.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from bramley.dispatch.store.records import Row
from bramley.dispatch.wakeups import Wakeups

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, repr=False)
class Query:
    """One statement with its parameters, which may be secret."""

    statement: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wake:
    """Wake a poll of a pool once the transaction is committed."""

    pool: str


Operation = Generator[Query | Wake, Sequence[Row], T]


class MakeOperation(Protocol[T_co]):
    """Makes a new generator for each attempt of a transaction."""

    def __call__(self) -> Generator[Query | Wake, Sequence[Row], T_co]:
        """Return the operation at its beginning."""
        ...


class Database(Protocol):
    """Runs operations, each in one transaction that is durable when `run` returns.

    Wake-ups of committed transactions reach the polls of every process that uses the database.
    Errors: Unavailable when nothing is known to be stored, Conflict when a unique value is taken.
    """

    @property
    def wakeups(self) -> Wakeups:
        """Return the waiting polls of this process."""
        ...

    async def run(self, make: MakeOperation[T]) -> T:
        """Run an operation and return its result; an exception that it raises undoes all of its statements."""
        ...

    async def close(self) -> None:
        """Release the connection; operations that were accepted are finished first."""
        ...


def rows(statement: str, **values: Any) -> Operation[Sequence[Row]]:
    """Return all rows of a statement."""
    return (yield Query(statement, values))


def first(statement: str, **values: Any) -> Operation[Row | None]:
    """Return the first row of a statement, or None."""
    found = yield Query(statement, values)
    return found[0] if found else None


def wake(pool: str) -> Operation[None]:
    """Wake a poll of the pool after the commit."""
    yield Wake(pool)
