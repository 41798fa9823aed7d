"""Clients that write, read and watch ConfigMaps and record a history of all they observe, across any number of crashes."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tests.history_checker.history import (
    ABSENT,
    Bookmark,
    Event,
    Fact,
    History,
    Listing,
    Read,
    Stream,
    Write,
)
from tests.process.durability.raw_http import Access, Connection, Lost, Unsent

PATH = "/api/v1/namespaces/default/configmaps"
# Without the ConfigMap that a controller creates in every namespace, which the history does not contain.
OURS = "fieldSelector=metadata.name!%3Dkube-root-ca.crt"
SHARED_KEYS = 24
END = "end"

numbers = itertools.count()


def config_map(key: str, value: str, rv: int) -> dict[str, Any]:
    metadata = {"name": key, "namespace": "default"}
    if rv != ABSENT:
        metadata["resourceVersion"] = str(rv)
    filler = "x" * random.choice((10, 300, 3000))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"value": value, "filler": filler},
    }


def fact_of(body: dict[str, Any]) -> Fact:
    metadata = body["metadata"]
    value = (body.get("data") or {}).get("value")
    return Fact(int(metadata["resourceVersion"]), metadata["name"], value)


@dataclass
class Writer:
    """Creates, replaces and deletes by compare-and-set, on its own key and on keys that others write too."""

    name: str
    access: Access
    history: History
    known: dict[str, int] = field(default_factory=dict)
    # Set from outside: the writer ends between two calls, with no write in progress.
    is_over: bool = False

    async def run(self) -> None:
        with Connection(self.access) as connection:
            while not self.is_over:
                try:
                    await self.act(connection)
                except Unsent:
                    await self.access.is_up.wait()

    async def act(self, connection: Connection) -> None:
        shared = f"shared-{random.randrange(SHARED_KEYS)}"
        key = shared if random.random() < 0.3 else self.name
        rv = self.known.get(key)
        if rv is None:
            await self.read(connection, key)
        elif rv != ABSENT and random.random() < 0.15:
            await self.delete(connection, key, rv)
        else:
            await self.put(connection, key, rv)

    async def read(self, connection: Connection, key: str) -> None:
        called = time.monotonic()
        with suppress(Lost):
            status, body = await connection.call("GET", f"{PATH}/{key}")
            assert status in {200, 404}, body
            rv, _, value = fact_of(body) if status == 200 else (ABSENT, key, None)
            returned = time.monotonic()
            self.known[key] = rv
            self.history.reads.append(
                Read(key=key, called=called, returned=returned, rv=rv, value=value)
            )

    async def put(self, connection: Connection, key: str, rv: int) -> None:
        value = f"{self.name}.{next(numbers)}"
        body = config_map(key, value, rv)
        if rv == ABSENT:
            await self.send(connection, "POST", PATH, body, (key, value, rv))
        else:
            await self.send(connection, "PUT", f"{PATH}/{key}", body, (key, value, rv))

    async def delete(self, connection: Connection, key: str, rv: int) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"resourceVersion": str(rv)},
        }
        await self.send(connection, "DELETE", f"{PATH}/{key}", body, (key, None, rv))

    async def send(
        self,
        connection: Connection,
        method: str,
        path: str,
        body: Any,
        intended: tuple[str, str | None, int],
    ) -> None:
        key, value, expected = intended
        attempt: Write | None = None
        self.known.pop(key, None)
        try:
            attempt = Write(key=key, value=value, expected=expected, called=time.monotonic())
            status, answer = await connection.call(method, path, body)
            attempt = self.completed(attempt, status, answer)
        except Unsent:
            attempt = None
            raise
        except Lost:
            return
        finally:
            # Also when this writer is stopped in the middle: the write may have happened.
            if attempt is not None:
                self.history.writes.append(attempt)

    def completed(self, attempt: Write, status: int, answer: Any) -> Write:
        """Return the attempt with its outcome from the response."""
        assert status in {200, 201, 404, 409}, answer
        if status >= 300:
            return replace(attempt, returned=time.monotonic(), outcome="refused")
        # The response to a delete does not contain the revision of the removal.
        rv = None if attempt.value is None else fact_of(answer).rv
        self.known[attempt.key] = rv or ABSENT
        return replace(attempt, returned=time.monotonic(), outcome="acknowledged", rv=rv)


@dataclass
class Watcher:
    """Lists, watches, and resumes from its last revision; lists again only after a 410."""

    name: str
    access: Access
    history: History
    hangs_up: bool = False
    stream: Stream | None = None

    async def run(self) -> None:
        """Watch until the last object was observed."""
        while True:
            try:
                if self.stream is None:
                    self.stream = Stream(self.name, *await self.begin())
                else:
                    self.stream = Stream(self.name, self.stream.position)
                self.history.streams.append(self.stream)
                if await self.follow(self.stream):
                    return
            except (Lost, Unsent):
                await self.access.is_up.wait()

    async def begin(self) -> tuple[int, Listing]:
        listing = await listed(self.access)
        self.history.listings.append(listing)
        return listing.rv, listing

    async def follow(self, stream: Stream) -> bool:
        """Read one stream; return whether it was the last one."""
        seconds = 3  # a bookmark comes two seconds before the end
        leave_at = time.monotonic() + (random.uniform(0.1, 1.0) if self.hangs_up else 60)
        path = (
            f"{PATH}?{OURS}&watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}"
            f"&resourceVersion={stream.since}"
        )
        if stream.base and END in stream.base.states:
            return True
        async with aclosing(Connection(self.access).lines(path)) as lines:
            async for status, line in lines:
                body = json.loads(line)
                if status != 200 or body["type"] == "ERROR":
                    self.give_up(status, body)
                    return False
                self.note(stream, body)
                if stream.items and self.is_end(stream):
                    return True
                if time.monotonic() > leave_at:
                    return False
        return False

    def give_up(self, status: int, body: dict[str, Any]) -> None:
        """Start over with a list after a 410; anything else is an error of the server."""
        error = body["object"] if status == 200 else body
        assert error["code"] == 410, error
        self.stream = None

    def note(self, stream: Stream, body: dict[str, Any]) -> None:
        now = time.monotonic()
        if body["type"] == "BOOKMARK":
            rv = int(body["object"]["metadata"]["resourceVersion"])
            stream.items.append(Bookmark(now, rv))
            return
        fact = fact_of(body["object"])
        if body["type"] == "DELETED":
            fact = fact._replace(value=None)
        stream.items.append(Event(now, body["type"], fact))

    def is_end(self, stream: Stream) -> bool:
        last = stream.items[-1]
        return isinstance(last, Event) and last.fact.key == END


async def listed(access: Access) -> Listing:
    """Return all objects as of one revision."""
    called = time.monotonic()
    with Connection(access) as connection:
        status, body = await connection.call("GET", f"{PATH}?{OURS}")
    assert status == 200, body
    facts: Iterator[Fact] = (fact_of(item) for item in body["items"])
    return Listing(
        called=called,
        returned=time.monotonic(),
        rv=int(body["metadata"]["resourceVersion"]),
        states={fact.key: (fact.rv, fact.value or "") for fact in facts},
    )
