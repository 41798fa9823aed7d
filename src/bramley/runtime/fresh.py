"""The read-your-writes guard: nobody decides on a cache that is older than what he wrote himself.

Each write made while a key is reconciled is noted under that key. Before the key is reconciled again, the caches of the
kinds it wrote must have seen those writes; the guard waits a bounded time for them and else says no. Without it a
controller creates the same child twice because its cache had not heard of the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bramley.api.meta import Object
from bramley.runtime.informer import Informer
from bramley.runtime.keys import Key


class Desk:
    """Where one worker sits: for which owner it writes at the moment."""

    __slots__ = ("owner",)

    def __init__(self, owner: Hashable = None) -> None:
        self.owner = owner


_NOBODY = Desk()
_desk: contextvars.ContextVar[Desk] = contextvars.ContextVar("desk", default=_NOBODY)


@dataclass(slots=True)
class _Writes:
    """What one key wrote that one informer should see: the newest version, and who was deleted."""

    version: int = 0
    lists: int = 0
    deleted: dict[Key, str] = field(default_factory=dict)

    def seen_by(self, informer: Informer[Any]) -> bool:
        mirror = informer.mirror
        # Of two whole lists since then the second was asked for after the write. If even that is older, the write is lost:
        # the server was set back, and waiting for the version would mean waiting for ever.
        if mirror.version < self.version and mirror.lists < self.lists + 2:
            return False
        return not any(_still_there(informer, key, uid) for key, uid in self.deleted.items())


def _still_there(informer: Informer[Any], key: Key, uid: str) -> bool:
    thing = informer.cache.find(key)
    return thing is not None and thing.uid == uid and not thing.deleting


class Freshness:
    """Remembers what was written for which key, and tells whether the caches have caught up."""

    def __init__(self, *, patience: timedelta = timedelta(seconds=3)) -> None:
        self._patience = patience
        self._informers: dict[type[Object], list[Informer[Any]]] = {}
        self._written: dict[Hashable, dict[Informer[Any], _Writes]] = {}

    def follow(self, informer: Informer[Any]) -> None:
        """Hold this informer's cache against what is written to its kind."""
        self._informers.setdefault(informer.kind, []).append(informer)

    @contextlib.contextmanager
    def at_desk(self) -> Iterator[Desk]:
        """Note the writes made inside, also by callees, under the owner that the desk has then."""
        desk = Desk()
        token = _desk.set(desk)
        try:
            yield desk
        finally:
            _desk.reset(token)

    def wrote(self, thing: Object) -> None:
        """Note that the object was written and is now at its version."""
        version = thing.metadata.resource_version
        if version.isdecimal():
            for writes in self._of_current(type(thing)):
                writes.version = max(writes.version, int(version))

    def deleted(self, kind: type[Object], key: Key, uid: str) -> None:
        """Note that the object of this uid was asked to go."""
        for writes in self._of_current(kind):
            writes.deleted[key] = uid

    def has_written(self, owner: Hashable) -> bool:
        """Tell whether anything was written for the owner that is not known to be seen."""
        return owner in self._written

    async def caught_up(self, owner: Hashable) -> bool:
        """Wait, but not for long, until every cache shows what was written for the owner."""
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                while (behind := self._behind(owner)) is not None:
                    await behind.mirror.changed()
        except TimeoutError:
            if behind is not None:
                behind.refresh()
            return False
        self.forget(owner)
        return True

    def forget(self, owner: Hashable) -> None:
        """Forget what was written for an owner that has no more to decide."""
        self._written.pop(owner, None)

    def _of_current(self, kind: type[Object]) -> Iterator[_Writes]:
        owner = _desk.get().owner
        if owner is None:
            return
        for informer in self._informers.get(kind, ()):
            writes = self._written.setdefault(owner, {}).setdefault(informer, _Writes())
            writes.lists = informer.mirror.lists
            yield writes

    def _behind(self, owner: Hashable) -> Informer[Any] | None:
        written = self._written.get(owner, {})
        return next((seer for seer, writes in written.items() if not writes.seen_by(seer)), None)
