"""How the store says no; the REST layer turns each of these into one HTTP answer."""

from __future__ import annotations

from bramley.base import errors


class StorageUnavailable(errors.Unavailable):
    """The disk did not take the write, for example because it is full; nothing of it happened.

    Most of it passes by itself, when there is space again; `cured_by_restart` says that it does not.
    """

    def __init__(self, message: str, *, cured_by_restart: bool = False) -> None:
        super().__init__(message)
        self.cured_by_restart = cured_by_restart


class Closed(errors.Unavailable):
    """The store is shutting down; whoever asks again reaches its successor."""


class Compacted(errors.Gone):
    """The history no longer reaches back to the revision asked for."""

    def __init__(self, resource: str, *, asked: int, oldest: int) -> None:
        super().__init__(f"{resource} are kept since revision {oldest}, but {asked} was asked for")
        self.asked = asked
        self.oldest = oldest


class Overflowed(errors.Gone):
    """A watcher read too slowly for its buffer and has missed changes; it must list again."""


class FutureRevision(errors.BramleyError):
    """The revision asked for has not been reached yet."""

    def __init__(self, *, asked: int, current: int) -> None:
        super().__init__(f"revision {asked} was asked for, but the newest is {current}")
        self.asked = asked
        self.current = current
