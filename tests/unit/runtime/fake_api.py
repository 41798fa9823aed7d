"""A fake API server for the tests of the runtime: versions, a history, watches, and faults on demand."""

# ruff: noqa: ARG002 - the arguments are those of the real client

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import msgspec

from bramley.api.meta import K, Object, ObjectMeta
from bramley.base import errors
from bramley.kube.codec import Listing, Undecodable
from bramley.kube.selectors import Selector
from bramley.kube.watch_stream import WatchEvent
from bramley.runtime.keys import Key, key_of
from tests.unit.runtime.sample_kinds import Part, Thing, ThingSpec, ThingStatus, a_thing

__all__ = ["FakeApi", "Part", "Thing", "ThingSpec", "ThingStatus", "a_thing"]

DELETED_AT = datetime(2026, 1, 1, tzinfo=UTC)


class Entry(NamedTuple):
    """One change in the history."""

    version: int
    type: str
    obj: Any
    is_decodable: bool = True

    def event(self) -> WatchEvent[Any]:
        if self.is_decodable:
            return WatchEvent(cast("Any", self.type), self.obj)
        return WatchEvent("UNDECODABLE", Thing(), "does not fit", b"{}")


@dataclass
class Stream:
    """One open watch, as the server sees it."""

    kind: type[Object]
    position: int
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    cut: bool = False
    ends: bool = False
    silent: bool = False
    extra: list[WatchEvent[Any]] = field(default_factory=list)


class FakeApi:
    """A fake API server; faults are attributes and methods that tests use."""

    def __init__(self, *, page_size: int = 500) -> None:
        self.version = 0
        self.things: dict[tuple[type[Object], Key], Any] = {}
        self.history: dict[type[Object], list[Entry]] = {}
        self.compacted = 0
        self.streams: list[Stream] = []
        self.page_size = page_size
        self.latency = 0.0
        self.unavailable = False
        self.failures: dict[str, list[Exception | None]] = {}
        self.stale_list: int | None = None
        # Keys of Things that a list cannot decode.
        self.undecodable_keys: set[Key] = set()
        self.calls: list[str] = []
        self._uids = itertools.count(1)

    # Changes and faults that tests make.

    def put(self, obj: K) -> K:
        """Store the object as if another client had written it."""
        slot = (type(obj), key_of(obj))
        known = self.things.get(slot)
        uid = known.metadata.uid if known else f"uid-{next(self._uids)}"
        return self._store(slot, obj, uid=uid, type="MODIFIED" if known else "ADDED")

    def put_undecodable(self, obj: K) -> K:
        """Store the object so that a list can decode it and a watch cannot."""
        stored = self.put(obj)
        entries = self.history[type(obj)]
        entries[-1] = entries[-1]._replace(is_decodable=False)
        return stored

    def remove(self, kind: type[Object], key: Key) -> None:
        """Remove the object as if another client had deleted it."""
        gone = self.things.pop((kind, key))
        self.version += 1
        self._record("DELETED", _at(gone, self.version))

    def find(self, kind: type[K], name: str) -> K | None:
        return cast("K | None", self.things.get((kind, Key("ns", name))))

    def all(self, kind: type[K]) -> list[K]:
        return [obj for (of, _), obj in sorted_things(self.things) if of is kind]

    def compact(self) -> None:
        """Forget the history, so that a watch from before now is answered with 410."""
        for stream in self.streams:
            if any(entry.version > stream.position for entry in self.history.get(stream.kind, [])):
                stream.cut = True
                stream.woken.set()
        self.compacted = self.version
        self.history.clear()

    def disconnect(self) -> None:
        """Break every open watch; what was not delivered yet is lost with it."""
        for stream in self.streams:
            stream.cut = True
            stream.woken.set()

    def end_watches(self) -> None:
        for stream in self.streams:
            stream.ends = True
            stream.woken.set()

    def silence(self) -> None:
        """Make every open watch hang: the connection stays open and nothing arrives any more."""
        for stream in self.streams:
            stream.silent = True

    def send(self, event: WatchEvent[Any], kind: type[Object] = Thing) -> None:
        """Send something into every open watch of the kind that is in no history."""
        for stream in self.streams:
            if stream.kind is kind:
                stream.extra.append(event)
                stream.woken.set()

    def bookmark(self, kind: type[Object]) -> None:
        at_now = kind(metadata=ObjectMeta(resource_version=str(self.version)))
        self.send(WatchEvent("BOOKMARK", at_now), kind)

    def repeat(self, kind: type[Object], count: int) -> None:
        """Send the last events once more."""
        for entry in self.history.get(kind, [])[-count:]:
            self.send(entry.event(), kind)

    # What the runtime calls.

    async def get(self, kind: type[K], name: str, *, namespace: str | None = None) -> K:
        await self._answer("get")
        return self._must_find(kind, Key(namespace or "", name))

    async def pages(
        self,
        kind: type[K],
        *,
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
    ) -> AsyncIterator[Listing[K]]:
        await self._answer("list")
        version, found = self._listed(kind)
        undecodable = self.undecodable_keys if kind is Thing else set()
        decodable = [obj for obj in found if key_of(obj) not in undecodable]
        failed = [
            Undecodable(obj.metadata, "does not fit", b"{}")
            for obj in found
            if key_of(obj) in undecodable
        ]
        yield Listing(decodable[: self.page_size], str(version), undecodable=failed)
        for begin in range(self.page_size, len(decodable), self.page_size):
            await self._answer("list")
            yield Listing(decodable[begin : begin + self.page_size], str(version))

    @asynccontextmanager
    async def watch(
        self,
        kind: type[K],
        *,
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
        resource_version: str | None = None,
        timeout: timedelta = timedelta(minutes=5),  # noqa: ASYNC109
    ) -> AsyncIterator[_Opened]:
        await self._answer("watch")
        since = int(resource_version or "0")
        if since < self.compacted:
            raise errors.Gone(f"{since} is too old")
        stream = Stream(kind, since)
        self.streams.append(stream)
        try:
            yield _Opened(self, stream)
        finally:
            self.streams.remove(stream)

    async def create(self, obj: K, *, namespace: str | None = None) -> K:
        await self._answer("create")
        slot = (type(obj), key_of(obj))
        if slot in self.things:
            raise errors.AlreadyExists(str(slot[1]))
        return self._store(slot, obj, uid=f"uid-{next(self._uids)}", type="ADDED")

    async def merge_patch(
        self,
        kind: type[K],
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        resource_version: str | None = None,
        uid: str | None = None,
    ) -> K:
        await self._answer(f"patch {subresource}" if subresource else "patch")
        slot = (kind, Key(namespace or "", name))
        old = self._must_find(*slot)
        if resource_version not in {None, old.metadata.resource_version}:
            raise errors.Conflict(f"{slot[1]} is at {old.metadata.resource_version} now")
        if uid not in {None, old.metadata.uid}:
            raise errors.Conflict(f"{slot[1]} is another one now")
        merged = _merge(msgspec.to_builtins(old), patch)
        new = msgspec.convert(merged, kind)
        if new == old:
            return old
        if new.deleting and not new.metadata.finalizers:
            self.remove(kind, slot[1])
            # With the version before the deletion, as servers respond.
            return new
        return self._store(slot, new, uid=old.uid, type="MODIFIED")

    async def apply(
        self,
        kind: type[K],
        name: str,
        body: Mapping[str, Any],
        *,
        manager: str,
        force: bool = False,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> K:
        raise NotImplementedError

    async def delete(
        self,
        kind: type[Object],
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace: timedelta | None = None,
        propagation: str | None = None,
    ) -> None:
        await self._answer("delete")
        slot = (kind, Key(namespace or "", name))
        old = self._must_find(*slot)
        if uid not in {None, old.metadata.uid}:
            raise errors.Conflict(f"{slot[1]} is another one now")
        self.request_deletion(kind, slot[1])

    def request_deletion(self, kind: type[Object], key: Key) -> None:
        obj = self._must_find(kind, key)
        if not obj.metadata.finalizers:
            self.remove(kind, key)
        elif not obj.deleting:
            dying = _meta(obj, deletion_timestamp=DELETED_AT)
            self._store((kind, key), dying, uid=obj.uid, type="MODIFIED")

    # Inside.

    async def _answer(self, verb: str) -> None:
        self.calls.append(verb)
        if self.latency:
            await asyncio.sleep(self.latency)
        if self.unavailable:
            raise errors.ApiUnavailable("the server is away")
        waiting = self.failures.get(verb)
        failure = waiting.pop(0) if waiting else None
        if failure is not None:
            raise failure

    def _must_find(self, kind: type[K], key: Key) -> K:
        obj = self.things.get((kind, key))
        if obj is None:
            raise errors.NotFound(f"no {kind.__name__} {key}")
        return cast("K", obj)

    def _store(self, slot: tuple[type[Object], Key], obj: K, *, uid: str, type: str) -> K:
        self.version += 1
        stored = _meta(obj, resource_version=str(self.version), uid=uid)
        self.things[slot] = stored
        self._record(type, stored)
        return stored

    def _record(self, kind: str, obj: Object) -> None:
        self.history.setdefault(type(obj), []).append(Entry(self.version, kind, obj))
        for stream in self.streams:
            stream.woken.set()

    def _listed(self, kind: type[K]) -> tuple[int, list[K]]:
        if self.stale_list is not None and self.compacted <= self.stale_list < self.version:
            version, self.stale_list = self.stale_list, None
            return version, self._as_of(kind, version)
        return self.version, self.all(kind)

    def _as_of(self, kind: type[K], version: int) -> list[K]:
        state = {key: obj for (of, key), obj in self.things.items() if of is kind}
        for entry in reversed(self.history.get(kind, [])):
            if entry.version <= version:
                break
            key = key_of(entry.obj)
            before = self._before(kind, key, entry.version)
            if before is None:
                state.pop(key, None)
            else:
                state[key] = before
        return [state[key] for key in sorted(state)]

    def _before(self, kind: type[Object], key: Key, version: int) -> Any:
        earlier = [
            entry
            for entry in self.history.get(kind, [])
            if entry.version < version and key_of(entry.obj) == key
        ]
        if not earlier or earlier[-1].type == "DELETED":
            return None
        return earlier[-1].obj


class _Opened(msgspec.Struct, frozen=True):
    server: Any
    stream: Any

    async def batches(self) -> AsyncGenerator[list[WatchEvent[Any]], None]:
        stream = self.stream
        while True:
            if stream.cut and not stream.silent:
                raise errors.ApiUnavailable("the connection broke")
            if not stream.silent and (batch := self._new_events()):
                yield batch
                continue
            if stream.ends and not stream.silent:
                return
            stream.woken.clear()
            await stream.woken.wait()

    def _new_events(self) -> list[WatchEvent[Any]]:
        stream = self.stream
        entries = [
            entry
            for entry in self.server.history.get(stream.kind, [])
            if entry.version > stream.position
        ]
        events = [entry.event() for entry in entries]
        if entries:
            stream.position = entries[-1].version
        extra, stream.extra = stream.extra, []
        return [*events, *extra]


def sorted_things(things: Mapping[tuple[type[Object], Key], Any]) -> list[tuple[Any, Any]]:
    return sorted(things.items(), key=lambda item: item[0][1])


def _meta(obj: K, **changes: Any) -> K:
    metadata = msgspec.structs.replace(obj.metadata, **changes)
    return msgspec.structs.replace(obj, metadata=metadata)


def _at(obj: K, version: int) -> K:
    return _meta(obj, resource_version=str(version))


def _merge(old: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            merged[name] = _merge(merged.get(name), value)
        else:
            merged[name] = value
    return merged
