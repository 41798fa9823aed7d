"""Eviction: asking for a Pod to leave in a way that may be refused."""

from __future__ import annotations

from typing import ClassVar

from bramley.api.meta import Fields, Object, Resource


class Preconditions(Fields, frozen=True, kw_only=True):
    """What must still be true of the object for the deletion to happen."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Fields, frozen=True, kw_only=True):
    """How to delete."""

    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    dry_run: list[str] = []


class Eviction(Object, frozen=True, kw_only=True):
    """A wish that a Pod leaves; it exists only as the `eviction` subresource of a Pod."""

    resource: ClassVar[Resource] = Resource(
        "policy", "v1", "Eviction", "evictions", namespaced=True
    )

    delete_options: DeleteOptions | None = None
