"""What keeps events from flooding the API: a budget per object, and one event for many alike.

The figures are client-go's: 25 events at once for one object and then one in five minutes; the same event again only
counts up; more than ten different texts for the same reason within ten minutes become one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V")

BURST = 25
REFILL_SECONDS = 300.0
ALIKE = 10
ALIKE_SECONDS = 600.0
REMEMBERED = 4096
COMBINED = "(combined from similar events): "


class Recent(Generic[V]):
    """A mapping that forgets what was not used for longest."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._entries: OrderedDict[Hashable, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Hashable) -> V | None:
        """Return the value and count it as used."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: Hashable, value: V) -> V:
        """Keep the value, dropping the one unused for longest if there are too many."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
        return value

    def drop(self, key: Hashable) -> None:
        """Forget the key."""
        self._entries.pop(key, None)


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Budget:
    """A token bucket for each source."""

    def __init__(self) -> None:
        self._buckets: Recent[_Bucket] = Recent()

    def spend(self, source: Hashable, now: float) -> bool:
        """Take one token of the source; tell whether there was one."""
        bucket = self._buckets.find(source) or self._buckets.put(source, _Bucket(BURST, now))
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) / REFILL_SECONDS)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


@dataclass(slots=True)
class _Kin:
    texts: set[str]
    since: float


class Alike:
    """Tells events that say the same in ever new words."""

    def __init__(self) -> None:
        self._kin: Recent[_Kin] = Recent()

    def text(self, group: Hashable, message: str, now: float) -> tuple[Hashable, str]:
        """Return what identifies the event and its text; beyond ten texts, they are those of the group."""
        kin = self._kin.find(group)
        if kin is None or now - kin.since > ALIKE_SECONDS:
            kin = self._kin.put(group, _Kin(set(), now))
        if len(kin.texts) < ALIKE or message in kin.texts:
            kin.texts.add(message)
            return (group, message), message
        return (group,), COMBINED + message
