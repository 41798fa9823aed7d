"""A bell: wakes keys of a controller for what happens outside the API, such as the end of a process.

Whoever has it may ring it at any time, also before the controller listens; those keys are kept until it does.
"""

from __future__ import annotations

from collections.abc import Callable

from bramley.runtime.keys import Key
from bramley.runtime.queue import Priority

Hears = Callable[[Key, Priority], None]


class Bell:
    """Passes keys on to the controllers that are woken from it."""

    def __init__(self) -> None:
        self._hearers: list[Hears] = []
        self._unheard: dict[Key, None] = {}

    def ring(self, key: Key) -> None:
        """Have the object of this key looked at; nothing is lost if nobody listens yet."""
        if not self._hearers:
            self._unheard[key] = None
        for hears in self._hearers:
            hears(key, Priority.CHANGE)

    def heard_by(self, hears: Hears) -> None:
        """Pass on every key from now on, and those that nobody has heard so far."""
        self._hearers.append(hears)
        unheard, self._unheard = self._unheard, {}
        for key in unheard:
            hears(key, Priority.CHANGE)
