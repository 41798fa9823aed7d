"""Faults of simulated services: what happens to the next requests that match, in the order in which faults were added."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Generic, TypeVar

import msgspec

Text = Annotated[str, msgspec.Meta(max_length=1000)]


class RequestFault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A fault of the next `times` requests whose method and path match."""

    method: Text = "*"
    path: Text = "*"
    times: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    # Whether the request is processed before the failure, so that only its response is lost.
    is_processed: bool = False

    def matches(self, method: str, path: str) -> bool:
        """Return whether a request is affected."""
        return fnmatchcase(method, self.method) and fnmatchcase(path, self.path)


F = TypeVar("F", bound=RequestFault)


class RequestFaults(Generic[F]):
    """The faults that are pending, in order."""

    def __init__(self) -> None:
        self._pending: list[F] = []

    @property
    def pending(self) -> tuple[F, ...]:
        """Return the faults that are left."""
        return tuple(self._pending)

    def add(self, fault: F) -> None:
        """Add a fault behind all others."""
        self._pending.append(fault)

    def clear(self) -> None:
        """Remove all faults."""
        self._pending.clear()

    def take(self, method: str, path: str) -> F | None:
        """Return the first fault for this request, and count it."""
        for fault in self._pending:
            if fault.matches(method, path):
                fault.times -= 1
                if fault.times <= 0:
                    self._pending.remove(fault)
                return fault
        return None
