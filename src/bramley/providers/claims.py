"""The steps of a claim and of a rename that is read back; the same for all providers.

A rename has no condition, and reads may be stale. So each rename is followed by reads until one shows the new name; a name that
is neither the new one nor one from before was given by another caller. A rename is sent soon after the read that it is based on, or
not at all: so a caller that has waited for longer, and finds its name again, cannot lose the host any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from bramley.api.names import machines
from bramley.base import errors
from bramley.providers.provider import Host, HostRef, checked_name

# How long after a rename each further read is sent; about ten seconds together.
READ_BACK_AFTER = tuple(timedelta(seconds=each) for each in (0.2, 0.4, 0.8, 1.6, 3, 4))

# How old the read that a rename is based on may be, and how long the rename may take with all of its attempts.
SENT_WITHIN = timedelta(seconds=5)
RENAMED_WITHIN = timedelta(seconds=10)


class Renames(Protocol):
    """Reads and renames one host."""

    async def host(self, ref: HostRef) -> Host:
        """Return the host; NotFound if it is not rented any more."""
        ...

    async def rename(self, ref: HostRef, name: str) -> None:
        """Rename the host, whatever its name is."""
        ...


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims hosts with two renames, each read back."""

    provider: Renames
    read_back_after: Sequence[timedelta] = READ_BACK_AFTER

    async def claim(self, host: Host, name: str, marker: str) -> Host | None:
        """Do what `HostProvider.claim` promises; `marker` is unique to this attempt."""
        checked_name(name)
        marker = checked_name(f"{machines.CLAIM_PREFIX}{marker}")
        try:
            read_at = _now()
            seen = await self.provider.host(host.ref)
            if seen.name == name:
                return seen
            if seen.name != host.name or not seen.can_be_claimed:
                return None
            await self._rename(host.ref, marker, read_at)
            read_at, marked = await self._read_back(host.ref, marker, {host.name})
            if marked is None:
                return None
            await self._rename(host.ref, name, read_at)
            _, claimed = await self._read_back(host.ref, name, {host.name, marker})
        except errors.NotFound:
            return None
        return claimed

    async def _rename(self, ref: HostRef, name: str, read_at: float) -> None:
        if _now() > read_at + SENT_WITHIN.total_seconds():
            raise errors.TimedOut(f"host {ref}: its name was read too long ago to be changed")
        try:
            async with asyncio.timeout(RENAMED_WITHIN.total_seconds()):
                await self.provider.rename(ref, name)
        except TimeoutError:
            seconds = RENAMED_WITHIN.total_seconds()
            raise errors.TimedOut(f"host {ref}: not renamed within {seconds:g} s") from None

    async def _read_back(
        self, ref: HostRef, name: str, before: set[str]
    ) -> tuple[float, Host | None]:
        """Return the host once it has the name, and when it was read; None if it gets another one."""
        for wait in (*self.read_back_after, None):
            read_at = _now()
            seen = await self.provider.host(ref)
            if seen.name == name:
                return read_at, seen
            if seen.name not in before:
                return read_at, None
            if wait is not None:
                await asyncio.sleep(wait.total_seconds())
        raise errors.ProviderUnavailable(
            f"host {ref}: a rename to {name} was accepted and is not visible"
        )


def _now() -> float:
    # The loop's time, which may be virtual.
    return asyncio.get_running_loop().time()
