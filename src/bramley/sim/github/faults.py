"""Faults of the simulated GitHub: errors, rate limits and latency for the next matching requests."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from bramley.sim.github.records import Refusal
from bramley.sim.request_faults import RequestFault, RequestFaults

MAX_SECONDS = 7 * 24 * 3600


class Fault(RequestFault, kw_only=True, forbid_unknown_fields=True):
    """What happens to the next matching requests."""

    kind: Literal["status", "secondary_limit", "latency"]
    # Of the kind `status`.
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 502
    # The wait of a secondary limit, or the latency.
    seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)] = 0.0

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


Faults = RequestFaults[Fault]
