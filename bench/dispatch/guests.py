"""Guests of the load generator: connections that poll the dispatch server, held or every two seconds.

A connection is a raw protocol of asyncio, because the load generator shares two cores with the server that it measures.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bramley.api.names import dispatch as names
from bramley.base.secret import Secret

LONG_POLL, TWO_SECONDS = "long poll", "2-second poll"
WAIT_SECONDS = 50
# As existing pollers: the pause begins after the answer.
PAUSE_SECONDS = 2.0
_HEAD_END = b"\r\n\r\n"


class BadAnswer(Exception):
    """The server answered a poll with an unexpected status, or closed the connection."""


@dataclass(frozen=True, slots=True)
class Guest:
    """The VM of a Pod: its pool and its token."""

    pod: str
    pool: str
    token: Secret


class Connection(asyncio.Protocol):
    """A connection to the server with one request at a time."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Return the answer once it is complete."""
        self._received += data
        answer = parsed(self._received)
        if answer is not None and self._answer is not None and not self._answer.done():
            self._received.clear()
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request in flight."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BadAnswer(f"the connection was closed: {exc}"))

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a request and return status and body."""
        if self._transport is None or self._transport.is_closing():
            raise BadAnswer("the connection is closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


def parsed(received: bytes | bytearray) -> tuple[int, bytes] | None:
    """Return status and body of a response, or None while it is incomplete."""
    end = received.find(_HEAD_END)
    if end < 0:
        return None
    first, *headers = bytes(received[:end]).split(b"\r\n")
    length = 0
    for name, _, value in (header.partition(b":") for header in headers):
        if name.strip().lower() == b"content-length":
            length = int(value)
    body = bytes(received[end + len(_HEAD_END) :])
    return (int(first.split()[1]), body[:length]) if len(body) >= length else None


def poll_request(token: Secret, mode: str) -> bytes:
    """Return the request of a guest."""
    prefer = f"Prefer: wait={WAIT_SECONDS}\r\n" if mode == LONG_POLL else ""
    head = (
        f"POST {names.DISPATCH_PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: curl/8.7.1\r\n"
        f"Accept: */*\r\nAuthorization: Bearer {token.reveal()}\r\n{prefer}"
        "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    return head.encode()


@dataclass(slots=True)
class Guests:
    """Many guests of one server. A guest that gets a job records when it arrived, and leaves."""

    port: int
    mode: str
    group: asyncio.TaskGroup
    rng: random.Random = field(default_factory=lambda: random.Random(14))
    # When each job arrived, by its id, on the clock of `time.perf_counter`.
    arrivals: dict[int, asyncio.Future[float]] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)
    polls: int = 0
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, guests: Sequence[Guest]) -> None:
        """Start to poll."""
        run = self._hold if self.mode == LONG_POLL else self._repeat
        self._tasks += [self.group.create_task(run(guest)) for guest in guests]

    def stop(self) -> None:
        """Disconnect all guests."""
        for task in self._tasks:
            task.cancel()

    def arrival(self, job_id: int) -> asyncio.Future[float]:
        """Return the time at which a guest gets this job."""
        loop = asyncio.get_running_loop()
        return self.arrivals.setdefault(job_id, loop.create_future())

    async def _hold(self, guest: Guest) -> None:
        request = poll_request(guest.token, self.mode)
        async with self._connected() as connection:
            while not self._is_served(guest, *await connection.send(request)):
                pass

    async def _repeat(self, guest: Guest) -> None:
        request = poll_request(guest.token, self.mode)
        await asyncio.sleep(self.rng.uniform(0, PAUSE_SECONDS))
        while True:
            # Each poll is a run of curl, which has its own connection.
            async with self._connected() as connection:
                if self._is_served(guest, *await connection.send(request)):
                    return
            await asyncio.sleep(PAUSE_SECONDS)

    def _is_served(self, guest: Guest, status: int, body: bytes) -> bool:
        now = time.perf_counter()
        self.polls += 1
        if status == 204:
            return False
        if status != 200:
            raise BadAnswer(f"a poll of {guest.pod} was answered with {status}: {body[:200]!r}")
        job: dict[str, Any] = msgspec.json.decode(body)
        if not job["encoded_jit_config"]:
            raise BadAnswer(f"a poll of {guest.pod} was answered without a JIT config")
        self.served.add(guest.pod)
        arrival = self.arrival(job["workflow_job_id"])
        if arrival.done():
            raise BadAnswer(f"job {job['workflow_job_id']} was given to two guests")
        arrival.set_result(now)
        return True

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, "127.0.0.1", self.port)
        try:
            yield connection
        finally:
            connection.close()
