"""What agents say that their Nodes and Pods use: asked when somebody wants to know, believed for a short while.

A Node that does not answer is left out and not asked again for as long. An agent is believed about its own Node and the
Pods that are bound to it, and about nothing else; `rest.metrics` sees to that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from bramley.apiserver.nodes.lines import Lines
from bramley.base import errors, log
from bramley.base.clock import Clock

logger = log.get(__name__)

BELIEVED_FOR = timedelta(seconds=5)
ANSWER_WITHIN = timedelta(seconds=5)
_ASKED_AT_ONCE = 32
_PATH = "/stats/summary"


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the kubelet's summary, of which the rest is not read."""


class Cpu(_Fields, frozen=True):
    """CPU at a moment, in billionths of a core; None while no rate is known."""

    time: datetime
    usage_nano_cores: int | None = None


class Memory(_Fields, frozen=True):
    """Memory at a moment."""

    time: datetime
    working_set_bytes: int | None = None


class Used(_Fields, frozen=True):
    """What somebody uses."""

    cpu: Cpu | None = None
    memory: Memory | None = None
    name: str = ""


class PodReference(_Fields, frozen=True):
    """Which Pod."""

    name: str
    namespace: str
    uid: str = ""


class PodUsed(_Fields, frozen=True):
    """What the containers of a Pod use."""

    pod_ref: PodReference
    containers: list[Used] = []


class Summary(_Fields, frozen=True):
    """All that an agent says."""

    node: Used
    pods: list[PodUsed] = []


_DECODER = msgspec.json.Decoder(Summary)


class Usages(msgspec.Struct):
    """Asks agents and remembers their answers for a moment."""

    lines: Lines
    clock: Clock
    _known: dict[str, tuple[float, Summary | None]] = {}
    _asking: asyncio.Semaphore = msgspec.field(
        default_factory=lambda: asyncio.Semaphore(_ASKED_AT_ONCE)
    )
    _under_way: dict[str, asyncio.Event] = {}

    async def of(self, urls: Iterable[str]) -> dict[str, Summary]:
        """Return what the agents at these addresses say; those that do not answer are missing."""
        wanted = set(urls)
        self._forget()
        async with asyncio.TaskGroup() as group:
            for url in wanted:
                group.create_task(self._ensure(url))
        answers = {url: self._known.get(url, (0.0, None))[1] for url in wanted}
        return {url: summary for url, summary in answers.items() if summary is not None}

    def _forget(self) -> None:
        now = self.clock.monotonic()
        self._known = {url: known for url, known in self._known.items() if known[0] > now}

    async def _ensure(self, url: str) -> None:
        if url in self._known:
            return
        if url in self._under_way:
            await self._under_way[url].wait()
            return
        self._under_way[url] = asyncio.Event()
        try:
            async with self._asking:
                answer = await self._ask(url)
            ends = self.clock.monotonic() + BELIEVED_FOR.total_seconds()
            self._known[url] = (ends, answer)
        finally:
            self._under_way.pop(url).set()

    async def _ask(self, url: str) -> Summary | None:
        try:
            answer = await self.lines.get(url, _PATH, within=ANSWER_WITHIN)
            if answer.status == 200:
                return _DECODER.decode(answer.body)
            reason = f"status {answer.status}"
        except (errors.BramleyError, msgspec.DecodeError) as error:
            reason = str(error)
        logger.warning("An agent does not tell what is used", address=url, reason=reason[:200])
        return None
