"""Lists of hosts that are shared: one call per zone and interval, for however many machines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from bramley.base import errors
from bramley.base.clock import Clock
from bramley.providers.provider import Host, HostProvider

AFTER_FAILURE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class ZoneList:
    """The hosts of a zone, and the monotonic time before which the list was requested."""

    hosts: Sequence[Host]
    requested_at: float


class ZoneLists:
    """Returns the list of a zone; concurrent callers share a call, its result and its error."""

    def __init__(
        self, provider: HostProvider, clock: Clock, *, interval: timedelta = timedelta(seconds=30)
    ) -> None:
        self._provider = provider
        self._clock = clock
        self._interval = interval
        self._lists: dict[str, ZoneList] = {}
        self._failures: dict[str, tuple[errors.BramleyError, float]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def current(self, zone: str, *, newer_than: float = float("-inf")) -> ZoneList:
        """Return a list that is at most one interval old, and was requested after a monotonic time.

        After an error, no call is sent for some seconds, or for as long as the provider requested: callers get that error.
        """
        # A list and a failure are looked up again once the lock is held: another caller may have called meanwhile.
        async with self._locks.setdefault(zone, asyncio.Lock()):
            known = self._lists.get(zone)
            now = self._clock.monotonic()
            is_recent = (
                known is not None and now < known.requested_at + self._interval.total_seconds()
            )
            if known is not None and is_recent and known.requested_at > newer_than:
                return known
            self._raise_recent_failure(zone, now)
            return await self._list(zone, now)

    async def _list(self, zone: str, now: float) -> ZoneList:
        try:
            hosts = await self._provider.hosts(zone)
        except errors.BramleyError as error:
            wait = error.after if isinstance(error, errors.RateLimited) else AFTER_FAILURE
            until = self._clock.monotonic() + wait.total_seconds()
            self._failures[zone] = (error, until)
            raise
        self._lists[zone] = ZoneList(tuple(hosts), now)
        return self._lists[zone]

    def _raise_recent_failure(self, zone: str, now: float) -> None:
        error, until = self._failures.get(zone, (None, now))
        if error is None or now >= until:
            return
        if isinstance(error, errors.RateLimited):
            raise errors.RateLimited(str(error), after=timedelta(seconds=until - now))
        raise type(error)(str(error))
