"""Lease: the holder of a lease, since when and for how long. Its times are MicroTimes; see `meta.micro_time`."""

from __future__ import annotations

from typing import ClassVar

from bramley.api.meta import Fields, MicroTime, Object, Resource


class LeaseSpec(Fields, frozen=True, kw_only=True):
    """The holder and the times that client-go's leader election uses."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True, kw_only=True):
    """A claim that expires unless it is renewed."""

    resource: ClassVar[Resource] = Resource(
        "coordination.k8s.io", "v1", "Lease", "leases", namespaced=True
    )

    spec: LeaseSpec = LeaseSpec()
