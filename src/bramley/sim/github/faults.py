"""Faults of the simulated GitHub: errors, rate limits and latency for the next matching requests."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec

from bramley.sim.github.records import Refusal

MAX_SECONDS = 7 * 24 * 3600


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What happens to the next `times` requests whose method and path match."""

    kind: Literal["status", "secondary_limit", "latency"]
    method: str = "*"
    path: str = "*"
    times: Annotated[int, msgspec.Meta(ge=1)] = 1
    # Of the kind `status`.
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 502
    # The wait of a secondary limit, or the latency.
    seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)] = 0.0
    # Whether the request is processed before the failure, so that only its response is lost.
    is_processed: bool = False

    def matches(self, method: str, path: str) -> bool:
        """Return whether a request is affected."""
        return fnmatchcase(method, self.method) and fnmatchcase(path, self.path)

    def refusal(self) -> Refusal | None:
        """Return the answer; None if there is only latency."""
        if self.kind == "latency":
            return None
        if self.kind == "status":
            return Refusal(self.status, "Server Error")
        message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
        if not self.seconds:
            return Refusal(403, message)
        return Refusal(403, message, retry_after=f"{self.seconds:.0f}")


class Faults:
    """The faults that are pending, in order."""

    def __init__(self) -> None:
        self._pending: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Add a fault behind all others."""
        self._pending.append(fault)

    def clear(self) -> None:
        """Remove all faults."""
        self._pending.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """Return the first fault for this request, and count it."""
        for fault in self._pending:
            if fault.matches(method, path):
                fault.times -= 1
                if fault.times <= 0:
                    self._pending.remove(fault)
                return fault
        return None
