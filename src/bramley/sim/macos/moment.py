"""One moment of a Mac: a block in which nobody else does anything to it, so that what was found out once holds until its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Moment:
    """Tells whether a moment lasts, and has forgotten when it is over what was found out in it."""

    def __init__(self) -> None:
        self._depth = 0
        self._forget: list[Callable[[], object]] = []

    @property
    def lasts(self) -> bool:
        """Tell whether a block is under way, so that what is found out now may be kept."""
        return self._depth > 0

    def when_over(self, forget: Callable[[], object]) -> None:
        """Call this whenever a block ends."""
        self._forget.append(forget)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Take a block for one moment, which waits for nobody; one within another is a part of it."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            for forget in self._forget:
                forget()
