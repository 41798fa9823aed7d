"""The hosts whose bootstrap has failed, in one ConfigMap, and those that are therefore not given to machines.

One machine that fails on a host may have a wrong configuration; a host on which different machines have failed is put in quarantine.
A person may do the same at once. Only a person lifts a quarantine, by removing the key of the host from the ConfigMap:
docs/how-to/quarantine-a-host.md. Keys that cannot be read are left as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from bramley.api.core import ConfigMap
from bramley.api.meta import ObjectMeta, Time
from bramley.api.names import labels, machines
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.machines.host_leases import Holder
from bramley.machines.host_metrics import HostMetrics
from bramley.providers.provider import HostRef
from bramley.runtime.client import Reader
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)

# A ConfigMap has at most 1 MiB, and an entry of this size at most 3 KB.
MAX_ENTRIES = 300
MAX_MACHINES = 5
MAX_TEXT = 200
REMEMBERED_FOR = timedelta(seconds=10)
# Of a write, each after another writer was faster.
_ATTEMPTS = 5
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class FailedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that could not be bootstrapped on the host."""

    uid: str
    name: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known about one host."""

    # The last one last.
    machines: tuple[FailedMachine, ...] = ()
    time: Time | None = None
    reason: str = ""
    # Why a person has put it in quarantine; absent if no person has.
    quarantine: str | None = None

    def is_quarantined(self, threshold: int) -> bool:
        """Return whether the host must not be given to a machine; a threshold of 0 counts no failures."""
        return self.quarantine is not None or 0 < threshold <= len(self.machines)

    def with_failure(self, holder: Holder, reason: str, now: datetime, *, limit: int) -> Entry:
        """Return the entry after a failure under this machine."""
        others = tuple(each for each in self.machines if each.uid != holder.uid)
        failed = (*others, FailedMachine(uid=holder.uid, name=holder.name))[-limit:]
        return replace(self, machines=failed, time=now, reason=reason[:MAX_TEXT])


def decoded(text: str) -> Entry | None:
    """Return an entry; None if the text is none of ours."""
    try:
        entry = msgspec.json.decode(text, type=Entry)
    except msgspec.MsgspecError:
        return None
    is_empty = not entry.machines and entry.quarantine is None
    return None if is_empty else entry


def surplus(data: Mapping[str, str], threshold: int) -> list[str]:
    """Return the hosts to drop so that one more entry has room: the oldest ones, and never those of a person. Pure."""
    entries = {id: entry for id, text in data.items() if (entry := decoded(text)) is not None}

    def rank(id: str) -> tuple[bool, datetime]:
        return entries[id].is_quarantined(threshold), entries[id].time or _LONG_AGO

    removable = sorted((id for id in entries if entries[id].quarantine is None), key=rank)
    return removable[: max(0, len(entries) + 1 - MAX_ENTRIES)]


Change = Callable[[Entry], Entry | None]


@dataclass(slots=True, kw_only=True)
class HostFailures:
    """Reads and writes the ConfigMap; each write is fenced by the leadership and conditional on the version that was read."""

    reader: Reader
    kube: FencedKube
    namespace: str
    clock: Clock
    metrics: HostMetrics
    # Under how many different machines a host must fail; 0: never in quarantine because of failures.
    threshold: int = 2
    _quarantined: frozenset[str] = frozenset()
    _expires_at: float = float("-inf")
    _unreadable: frozenset[str] = frozenset()
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def record(self, ref: HostRef, holder: Holder, reason: str) -> bool:
        """Record that the attempts of a machine on a host are used up; return whether failures put it in quarantine.

        Repeating is safe: a machine counts once, and the answer is the same.
        """
        limit, now = max(MAX_MACHINES, self.threshold), self.clock.now()
        entry = await self._write(
            ref, lambda old: old.with_failure(holder, reason, now, limit=limit)
        )
        return 0 < self.threshold <= len(entry.machines)

    async def quarantine(self, ref: HostRef, why: str) -> None:
        """Put a host in quarantine on behalf of a person."""
        why, now = why[:MAX_TEXT], self.clock.now()

        def change(old: Entry) -> Entry:
            return old if old.quarantine == why else replace(old, quarantine=why, time=now)

        await self._write(ref, change, replace_unreadable=True)

    async def forget(self, ref: HostRef) -> None:
        """Drop the failures of a host that was bootstrapped; a quarantine by a person stays."""
        await self._write(ref, lambda old: None if old.quarantine is None else _cleared(old))

    async def quarantined(self) -> frozenset[str]:
        """Return the ids of the hosts that must not be given to a machine, as they were at most some seconds ago."""
        async with self._lock:
            if self.clock.monotonic() >= self._expires_at:
                stored = await self._read()
                self._remember(stored.data if stored is not None else {})
            return self._quarantined

    async def _write(
        self, ref: HostRef, change: Change, *, replace_unreadable: bool = False
    ) -> Entry:
        async with self._lock:
            for _ in range(_ATTEMPTS):
                stored = await self._read()
                data = stored.data if stored is not None else {}
                old = decoded(data.get(ref.id, ""))
                if old is None and ref.id in data and not replace_unreadable:
                    logger.warning("Unreadable entry of host not changed", host=str(ref))
                    return Entry()
                before = old or Entry()
                after = change(before)
                if after == before or (after is None and old is None):
                    return before
                if await self._put(stored, self._patch(data, ref, after)):
                    return after or Entry()
        raise errors.Conflict(
            f"the ConfigMap {machines.HOST_FAILURES} is changed by others all the time; stop them"
        )

    def _patch(
        self, data: Mapping[str, str], ref: HostRef, entry: Entry | None
    ) -> dict[str, str | None]:
        if entry is None:
            return {ref.id: None}
        dropped = [] if ref.id in data else surplus(data, self.threshold)
        if dropped:
            logger.warning("Entries of hosts dropped, because there are too many", hosts=dropped)
        return {**dict.fromkeys(dropped), ref.id: msgspec.json.encode(entry).decode()}

    async def _put(self, stored: ConfigMap | None, patch: dict[str, str | None]) -> bool:
        """Write to exactly this version; return False if another writer was faster."""
        try:
            written = await self._create_or_patch(stored, patch)
        except (errors.AlreadyExists, errors.Conflict):
            return False
        except errors.NotFound:
            if stored is None:
                raise
            return False
        self._remember(written.data)
        return True

    async def _create_or_patch(
        self, stored: ConfigMap | None, patch: dict[str, str | None]
    ) -> ConfigMap:
        if stored is None:
            metadata = ObjectMeta(
                name=machines.HOST_FAILURES,
                namespace=self.namespace,
                labels={labels.APP_MANAGED_BY: labels.MANAGED_BY_MACHINES},
            )
            data = {key: value for key, value in patch.items() if value is not None}
            return await self.kube.create(ConfigMap(metadata=metadata, data=data))
        return await self.kube.merge_patch(
            ConfigMap,
            stored.name,
            {"data": patch},
            namespace=self.namespace,
            resource_version=stored.metadata.resource_version,
            uid=stored.uid,
        )

    async def _read(self) -> ConfigMap | None:
        try:
            return await self.reader.get(
                ConfigMap, machines.HOST_FAILURES, namespace=self.namespace
            )
        except errors.NotFound:
            return None

    def _remember(self, data: Mapping[str, str]) -> None:
        entries = {id: decoded(text) for id, text in data.items()}
        self._quarantined = frozenset(
            id for id, entry in entries.items() if entry and entry.is_quarantined(self.threshold)
        )
        self._expires_at = self.clock.monotonic() + REMEMBERED_FOR.total_seconds()
        self.metrics.set_quarantined(len(self._quarantined))
        unreadable = frozenset(id for id, entry in entries.items() if entry is None)
        # Once, and not at each read.
        if unreadable - self._unreadable:
            logger.warning("Entries of hosts are unreadable and ignored", hosts=sorted(unreadable))
        self._unreadable = unreadable


def _cleared(entry: Entry) -> Entry:
    return replace(entry, machines=(), reason="")
