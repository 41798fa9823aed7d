"""Faults of the simulated Scaleway: errors, rate limits and latency for the next matching requests."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec

Text = Annotated[str, msgspec.Meta(max_length=1000)]


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What happens to the next `times` requests whose method and path match."""

    # `gateway` is an error page in HTML: the gateway failed before the API.
    kind: Literal["status", "rate_limit", "gateway", "latency"]
    method: Text = "*"
    path: Text = "*"
    times: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    # Of the kinds `status` and `gateway`.
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 503
    type: Text = "internal"
    # The wait of a rate limit, or the latency.
    seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    # Whether the request is processed before the failure, so that only its response is lost.
    is_processed: bool = False

    def matches(self, method: str, path: str) -> bool:
        """Return whether a request is affected."""
        return fnmatchcase(method, self.method) and fnmatchcase(path, self.path)


class Faults:
    """The faults that are pending, in order."""

    def __init__(self) -> None:
        self._pending: list[Fault] = []

    @property
    def pending(self) -> tuple[Fault, ...]:
        """Return the faults that are left."""
        return tuple(self._pending)

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
