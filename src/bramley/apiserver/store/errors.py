"""The store's errors; the REST layer turns each of these into an HTTP response."""

from __future__ import annotations

from bramley.base import errors


class StorageUnavailable(errors.Unavailable):
    """The write failed and nothing of it was stored, for example because the disk is full.

    Most causes pass, for example when there is space again; those that need a restart set `cured_by_restart`.
    """

    def __init__(self, message: str, *, cured_by_restart: bool = False) -> None:
        super().__init__(message)
        self.cured_by_restart = cured_by_restart


class Closed(errors.Unavailable):
    """The store is shutting down; a retry reaches the next process."""


class Compacted(errors.Gone):
    """The history no longer reaches back to the requested revision."""

    def __init__(self, resource: str, *, requested: int, oldest: int) -> None:
        super().__init__(
            f"the history of {resource} begins at revision {oldest}, but {requested} was requested"
        )
        self.requested = requested
        self.oldest = oldest


class Overflowed(errors.Gone):
    """A watcher read too slowly for its buffer and missed changes; it must list again."""


class FutureRevision(errors.BramleyError):
    """The requested revision has not been reached yet."""

    def __init__(self, *, requested: int, current: int) -> None:
        super().__init__(f"revision {requested} was requested, but the newest is {current}")
        self.requested = requested
        self.current = current
