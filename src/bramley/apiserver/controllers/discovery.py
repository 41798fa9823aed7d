"""Discovery of the served kinds, and `PartialObject`, the metadata of an object of any kind.

Garbage collection and namespace deletion have to handle every served kind, so `PartialTypes` makes one type per resource that
has only the fields these two need.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import msgspec

from bramley.api.meta import Fields, Object, OwnerReference, Resource, Time
from bramley.base import errors
from bramley.kube.client import Client


class PartialMeta(Fields, frozen=True, kw_only=True):
    """Identity, owners and deletion of an object, without labels and annotations, which are most of its size."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: Time | None = None
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class PartialObject(Object, frozen=True, kw_only=True):
    """An object of any kind, without spec and status."""

    resource: ClassVar[Resource]

    metadata: PartialMeta = PartialMeta()  # type: ignore[assignment]  # a narrower view of the same fields


@dataclass(frozen=True, slots=True)
class PartialTypes:
    """One type per resource, so that each decoder is built only once."""

    known: dict[Resource, type[PartialObject]] = field(default_factory=dict)

    def of(self, resource: Resource) -> type[PartialObject]:
        """Return the type for objects of this resource."""
        kind = self.known.get(resource)
        if kind is None:
            made = msgspec.defstruct(
                f"Partial{resource.kind}",
                [],
                bases=(PartialObject,),
                namespace={"resource": resource},
                frozen=True,
                kw_only=True,
            )
            kind = self.known[resource] = cast("type[PartialObject]", made)
        return kind


@dataclass(frozen=True, slots=True)
class ServedResource:
    """A resource that the API serves in its preferred version, and its verbs."""

    resource: Resource
    verbs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Discovery:
    """The served resources, the versions of each group, and the group versions that could not be read."""

    kinds: tuple[ServedResource, ...] = ()
    versions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def find(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind, or None if this version of it is not served."""
        group, _, version = api_version.rpartition("/")
        if version not in self.versions.get(group, ()):
            return None
        resources = (each.resource for each in self.kinds)
        return next((item for item in resources if (item.group, item.kind) == (group, kind)), None)


async def discover(client: Client) -> Discovery:
    """Read the discovery documents; a group that fails is recorded and does not affect the others."""
    versions: dict[str, tuple[str, ...]] = {"": ("v1",)}
    preferred = {"": "v1"}
    for group in (await client.read_wire("/apis"))["groups"]:
        versions[group["name"]] = tuple(each["version"] for each in group["versions"])
        preferred[group["name"]] = group["preferredVersion"]["version"]
    kinds: list[ServedResource] = []
    failures: dict[str, str] = {}
    for group, version in preferred.items():
        api_version = f"{group}/{version}" if group else version
        try:
            document = await client.read_wire(f"/apis/{api_version}" if group else "/api/v1")
        except errors.BramleyError as error:
            failures[api_version] = str(error)
        else:
            kinds += _kinds(group, version, document["resources"])
    return Discovery(tuple(kinds), versions, failures)


def _kinds(group: str, version: str, entries: list[dict[str, Any]]) -> list[ServedResource]:
    return [
        ServedResource(
            Resource(group, version, each["kind"], each["name"], namespaced=each["namespaced"]),
            frozenset(each["verbs"]),
        )
        for each in entries
        if "/" not in each["name"]
    ]
