"""Hosts of tests."""

from __future__ import annotations

from bramley.providers.provider import Host, HostRef, HostState

POOL = "tuist-pool-"
PENDING = "tuist-claim-pending-"


def a_host(
    id: str,
    name: str = "",
    *,
    type: str = "M2-L",
    os: str = "Tahoe",
    state: HostState = HostState.READY,
    is_delivered: bool = True,
    is_deletion_scheduled: bool = False,
) -> Host:
    return Host(
        HostRef("fr-par-1", id),
        name or f"{POOL}{id}",
        type,
        (os,),
        state,
        state.lower(),
        is_delivered,
        is_deletion_scheduled,
    )
