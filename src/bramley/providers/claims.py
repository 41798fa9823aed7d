"""The steps of a claim and of a rename that is read back; the same for all providers.

A rename has no condition, and reads may be stale. So each rename is followed by reads until one shows the new name; a name that
is neither the new one nor one from before was given by another caller.
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
            seen = await self.provider.host(host.ref)
            if seen.name == name:
                return seen
            if seen.name != host.name or not seen.can_be_claimed:
                return None
            if await self._renamed(host, marker, {host.name}) is None:
                return None
            return await self._renamed(host, name, {host.name, marker})
        except errors.NotFound:
            return None

    async def _renamed(self, host: Host, name: str, before: set[str]) -> Host | None:
        """Rename, and return the host once it has the name; None if it gets another one."""
        await self.provider.rename(host.ref, name)
        for wait in (*self.read_back_after, None):
            seen = await self.provider.host(host.ref)
            if seen.name == name:
                return seen
            if seen.name not in before:
                return None
            if wait is not None:
                await asyncio.sleep(wait.total_seconds())
        raise errors.ProviderUnavailable(
            f"host {host.ref}: a rename to {name} was accepted and is not visible"
        )
