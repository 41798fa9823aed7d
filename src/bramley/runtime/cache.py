"""The objects of one kind as last seen, with indexes; only its informer writes to it.

Objects are frozen and handed out as they are. An index is a function from an object to the values it is found by, and is
kept up with each change, so a look-up costs what it finds and not what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic

from bramley.api.meta import K
from bramley.base import errors
from bramley.runtime.keys import Key

IndexFunction = Callable[[K], Iterable[Hashable]]


class _Index(Generic[K]):
    """Finds objects by the values that one function gives."""

    __slots__ = ("_buckets", "_values")

    def __init__(self, values: IndexFunction[K]) -> None:
        self._values = values
        self._buckets: dict[Hashable, dict[Key, K]] = {}

    def replace(self, key: Key, old: K | None, new: K | None) -> None:
        if old is not None:
            for value in self._values(old):
                self._drop(value, key)
        if new is not None:
            for value in self._values(new):
                self._buckets.setdefault(value, {})[key] = new

    def find(self, value: Hashable) -> list[K]:
        bucket = self._buckets.get(value)
        return [bucket[key] for key in sorted(bucket)] if bucket else []

    def _drop(self, value: Hashable, key: Key) -> None:
        bucket = self._buckets.get(value)
        if bucket is not None:
            bucket.pop(key, None)
            if not bucket:
                del self._buckets[value]


class Cache(Generic[K]):
    """Holds the last seen state of every object that an informer follows."""

    def __init__(self, kind: type[K]) -> None:
        self.kind = kind
        self._things: dict[Key, K] = {}
        self._indexes: dict[str, _Index[K]] = {}
        self._sorted: list[Key] | None = None

    def __len__(self) -> int:
        return len(self._things)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._things)

    def index(self, name: str, values: IndexFunction[K]) -> None:
        """Keep an index by what the function gives; it is filled at once with what is here."""
        index = self._indexes[name] = _Index(values)
        for key, thing in self._things.items():
            index.replace(key, None, thing)

    def has_index(self, name: str) -> bool:
        """Tell whether somebody keeps an index of this name; caches are shared."""
        return name in self._indexes

    def find(self, key: Key) -> K | None:
        """Return the object, or None when it is not here."""
        return self._things.get(key)

    def get(self, name: str, *, namespace: str = "") -> K:
        """Return the object; raise NotFound when it is not here."""
        thing = self._things.get(Key(namespace, name))
        if thing is None:
            raise errors.NotFound(
                f"no {self.kind.resource.kind} {Key(namespace, name)} in the cache"
            )
        return thing

    def all(self, *, namespace: str | None = None) -> list[K]:
        """Return every object, or every one of a namespace, in the order of their keys."""
        if self._sorted is None:
            self._sorted = sorted(self._things)
        return [
            self._things[key]
            for key in self._sorted
            if namespace is None or key.namespace == namespace
        ]

    def indexed(self, name: str, value: Hashable) -> list[K]:
        """Return the objects that the index of this name finds by the value, in the order of their keys."""
        return self._indexes[name].find(value)

    def put(self, key: Key, thing: K) -> K | None:
        """Hold this state from now on; return the state held before."""
        old = self._things.get(key)
        self._things[key] = thing
        if old is None:
            self._sorted = None
        if self._indexes:
            self._reindex(key, old, thing)
        return old

    def remove(self, key: Key) -> K | None:
        """Hold the object no longer; return the state held before."""
        old = self._things.pop(key, None)
        if old is not None:
            self._sorted = None
            self._reindex(key, old, None)
        return old

    def _reindex(self, key: Key, old: K | None, new: K | None) -> None:
        for index in self._indexes.values():
            index.replace(key, old, new)
