"""Faults of the simulated Scaleway: errors, rate limits and latency for the next matching requests."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from bramley.sim.request_faults import RequestFault, RequestFaults, Text


class Fault(RequestFault, kw_only=True, forbid_unknown_fields=True):
    """What happens to the next matching requests."""

    # `gateway` is an error page in HTML: the gateway failed before the API.
    kind: Literal["status", "rate_limit", "gateway", "latency"]
    # Of the kinds `status` and `gateway`.
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 503
    type: Text = "internal"
    # The wait of a rate limit, or the latency.
    seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0


Faults = RequestFaults[Fault]
