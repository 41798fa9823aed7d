"""Usage of Nodes and Pods as agents report it: read on demand and cached for a few seconds.

A Node that does not respond is left out, and not queried again for as long. `rest.metrics` accepts an agent's report only
about its own Node and the Pods that are bound to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from bramley.apiserver.nodes.kubelet_client import (
    HttpKubeletClient,
    IssueCertificate,
    KubeletClient,
    KubeletCredentials,
)
from bramley.base import errors, log
from bramley.base.clock import Clock

logger = log.get(__name__)

CACHED_FOR = timedelta(seconds=5)
RESPONSE_TIMEOUT = timedelta(seconds=5)
_MAX_CONCURRENT = 32
_PATH = "/stats/summary"


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the kubelet's summary; its other fields are not read."""


class Cpu(_Fields, frozen=True):
    """CPU usage in billionths of a core; None while no rate is known."""

    time: datetime
    usage_nano_cores: int | None = None


class Memory(_Fields, frozen=True):
    """Memory usage."""

    time: datetime
    working_set_bytes: int | None = None


class Stats(_Fields, frozen=True):
    """The usage of a Node or a container."""

    cpu: Cpu | None = None
    memory: Memory | None = None
    name: str = ""


class PodReference(_Fields, frozen=True):
    """The identity of a Pod."""

    name: str
    namespace: str
    uid: str = ""


class PodStats(_Fields, frozen=True):
    """The usage of a Pod's containers."""

    pod_ref: PodReference
    containers: list[Stats] = []


class Summary(_Fields, frozen=True):
    """The report of one agent."""

    node: Stats
    pods: list[PodStats] = []


_DECODER = msgspec.json.Decoder(Summary)


class UsageCache(msgspec.Struct):
    """Reads the summaries of agents and caches them."""

    client: KubeletClient
    clock: Clock
    _summaries: dict[str, tuple[float, Summary | None]] = {}
    _slots: asyncio.Semaphore = msgspec.field(
        default_factory=lambda: asyncio.Semaphore(_MAX_CONCURRENT)
    )
    _in_flight: dict[str, asyncio.Event] = {}

    async def summaries(self, urls: Iterable[str]) -> dict[str, Summary]:
        """Return the summaries of the agents at these URLs; those that do not respond are missing."""
        requested = set(urls)
        self._drop_expired()
        async with asyncio.TaskGroup() as group:
            for url in requested:
                group.create_task(self._ensure(url))
        responses = {url: self._summaries.get(url, (0.0, None))[1] for url in requested}
        return {url: summary for url, summary in responses.items() if summary is not None}

    def _drop_expired(self) -> None:
        now = self.clock.monotonic()
        self._summaries = {url: entry for url, entry in self._summaries.items() if entry[0] > now}

    async def _ensure(self, url: str) -> None:
        if url in self._summaries:
            return
        if url in self._in_flight:
            await self._in_flight[url].wait()
            return
        self._in_flight[url] = asyncio.Event()
        try:
            async with self._slots:
                response = await self._fetch(url)
            ends = self.clock.monotonic() + CACHED_FOR.total_seconds()
            self._summaries[url] = (ends, response)
        finally:
            self._in_flight.pop(url).set()

    async def _fetch(self, url: str) -> Summary | None:
        try:
            response = await self.client.get(url, _PATH, within=RESPONSE_TIMEOUT)
            if response.status == 200:
                return _DECODER.decode(response.body)
            reason = f"status {response.status}"
        except (errors.BramleyError, msgspec.DecodeError) as error:
            reason = str(error)
        logger.warning("Reading usage from agent failed", address=url, reason=reason[:200])
        return None


class Kubelets(msgspec.Struct, frozen=True):
    """The client for agents and the cache of their usage; built once per server and closed with it."""

    client: KubeletClient
    usage: UsageCache

    async def close(self) -> None:
        """End open streams, such as followed logs."""
        await self.client.close()


def kubelets(
    issue: IssueCertificate, *, authority: str, clock: Clock, checked: bool = False
) -> Kubelets:
    """Return the access to agents; `issue` makes our client certificates, `authority` verifies agents if `checked`."""
    credentials = KubeletCredentials(issue, clock)
    client = HttpKubeletClient(credentials, authority=authority, checked=checked)
    return Kubelets(client, UsageCache(client, clock))
