"""What a Node depends on, under virtual time: the embedded API in memory, and a fake host and programs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from bramley.agent.host import HostProcess, Space, SystemInfo, Usage
from bramley.agent.node.controller import NodeController
from bramley.agent.node.status import Facts
from bramley.agent.programs import ProgramMissing, ProgramResult
from bramley.agent.settings import NodeSettings
from bramley.api.core import Node
from bramley.app import embedded
from bramley.base import errors
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response, Stream
from tests import virtual_time

NAME = "mac-1"
Answer = ProgramResult | BaseException | Callable[[], ProgramResult]


@dataclass
class Host:
    """A host with fixed facts."""

    guests: list[HostProcess] = field(default_factory=list)
    room: Space | OSError = field(default_factory=lambda: Space(total=1000, free=500))
    ip: str | None = "10.0.0.7"

    def boot_id(self) -> str:
        return "boot-1"

    def system_info(self) -> SystemInfo:
        return SystemInfo()

    def is_locked(self, path: Path) -> bool:  # noqa: ARG002
        return False

    def lock_holder(self, path: Path) -> int | None:  # noqa: ARG002
        return None

    def lock_folder(self, folder: Path) -> None:  # noqa: ARG002
        return None

    def allocated(self, folder: Path) -> int:  # noqa: ARG002
        return 0

    def space(self, path: Path) -> Space:  # noqa: ARG002
        if isinstance(self.room, OSError):
            raise self.room
        return self.room

    def guest_processes(self) -> list[HostProcess]:
        return self.guests

    def processes(self) -> list[HostProcess]:
        return []

    def ancestors(self, pid: int) -> list[int]:
        return [pid]

    def usage(self, pid: int) -> Usage | None:  # noqa: ARG002
        return None

    def address(self) -> str | None:
        return self.ip


@dataclass
class Programs:
    """Programs with fixed results by parts of their command line; those in `hanging` never return."""

    answers: dict[str, Answer] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)

    async def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,  # noqa: ARG002
        stdin: bytes = b"",  # noqa: ARG002
        on_line: Callable[[str], None] | None = None,  # noqa: ARG002
        gate: asyncio.Event | None = None,  # noqa: ARG002
    ) -> ProgramResult:
        line = " ".join(argv)
        self.calls.append(line)
        if any(part in line for part in self.hanging):
            await asyncio.Event().wait()
        for part, answer in self.answers.items():
            if part in line:
                return _given(answer)
        raise ProgramMissing(f"{argv[0]}: no such program")

    def count(self, part: str) -> int:
        return sum(part in line for line in self.calls)


def _given(answer: Answer) -> ProgramResult:
    if isinstance(answer, BaseException):
        raise answer
    return answer() if callable(answer) else answer


@asynccontextmanager
async def an_api() -> AsyncIterator[Client]:
    clock = virtual_time.clock()
    async with (
        embedded.running(clock=clock) as (api, token),
        Client(api.transport(token), clock=clock) as kube,
    ):
        yield kube


def a_controller(kube: Client, facts: Callable[[], Facts], **settings: Any) -> NodeController:
    chosen = NodeSettings(NAME, **{"address": "10.0.0.7", **settings})
    return NodeController(
        chosen, kube, facts=facts, clock=virtual_time.clock(), rng=random.Random(1)
    )


@asynccontextmanager
async def running(*jobs: Callable[[], Coroutine[Any, Any, object]]) -> AsyncIterator[None]:
    """Run these until the context ends."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(job()) for job in jobs]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def until(holds: Callable[[], object], *, within: timedelta = timedelta(minutes=5)) -> None:
    async with asyncio.timeout(within.total_seconds()):
        while not holds():
            await asyncio.sleep(0.1)


async def find(kube: Client, name: str = NAME) -> Node | None:
    with suppress(errors.NotFound):
        return await kube.get(Node, name)
    return None


def conditions(node: Node) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in node.status.conditions}


class HangingTransport:
    """A server that never answers, and the times of its requests."""

    def __init__(self) -> None:
        self.requested_at: list[float] = []

    async def send(self, request: Request) -> Response:
        self.requested_at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(request.deadline.total_seconds())
        raise errors.TimedOut("no answer")

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        await self.send(request)
        yield Stream(200, {}, _nothing())

    async def close(self) -> None:
        return

    def pauses(self) -> list[float]:
        return [later - sooner for sooner, later in pairwise(self.requested_at)]


async def _nothing() -> AsyncIterator[bytes]:
    for chunk in list[bytes]():
        yield chunk
