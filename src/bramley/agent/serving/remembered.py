"""Answers kept for a while: as many as fit, each for its own time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """A bounded memory; the one that was put first is forgotten first."""

    def __init__(self, most: int, now: Callable[[], float]) -> None:
        self._most = most
        self._now = now
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: K) -> V | None:
        """Return what is known and still holds."""
        ends, value = self._kept.get(key, (0.0, None))
        return value if self._now() < ends else None

    def put(self, key: K, value: V, lasts: timedelta) -> None:
        """Keep an answer for this long."""
        self._kept.pop(key, None)
        self._kept[key] = (self._now() + lasts.total_seconds(), value)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
