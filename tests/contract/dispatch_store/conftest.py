"""The parameter of the suite: each test runs on a store in SQLite and on one in PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from bramley.base.secret import Secret
from bramley.dispatch.store.postgres import PostgresDatabase
from bramley.dispatch.store.sqlite import SqliteDatabase
from bramley.dispatch.store.store import Store
from tests import postgres_server
from tests.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Run PostgreSQL for the whole session."""
    with postgres_server.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> AbstractAsyncContextManager[Store]:
    """Return an empty store."""
    if request.param == "sqlite":
        return in_sqlite(tmp_path / "dispatch.sqlite")
    server: PostgresServer = request.getfixturevalue("postgres")
    return in_postgres(server.new_database())


@contextlib.asynccontextmanager
async def in_sqlite(path: Path) -> AsyncIterator[Store]:
    store = Store(SqliteDatabase.open(path))
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def in_postgres(url: str) -> AsyncIterator[Store]:
    database = await PostgresDatabase.open(Secret(url))
    async with asyncio.TaskGroup() as tasks:
        listener = tasks.create_task(database.run_listener())
        await database.listening.wait()
        try:
            yield Store(database)
        finally:
            listener.cancel()
            await database.close()
