"""What an API serves, learned from its discovery documents, and objects of any kind by their metadata alone.

Garbage collection and the end of namespaces concern kinds that nobody knows beforehand, so for each of them a type is made
that holds what these two need and nothing else; a `Kinds` makes each only once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import msgspec

from bramley.api.meta import Fields, Object, OwnerReference, Resource, Time
from bramley.base import errors
from bramley.kube.client import Client


class ThinMeta(Fields, frozen=True, kw_only=True):
    """Identity, owners and end of an object; labels and annotations are left out, since they are most of its size."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: Time | None = None
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class Thin(Object, frozen=True, kw_only=True):
    """An object of any kind, without its contents."""

    resource: ClassVar[Resource]

    metadata: ThinMeta = ThinMeta()  # type: ignore[assignment]  # a narrower view of the same fields


@dataclass(frozen=True, slots=True)
class Kinds:
    """Gives each resource one type, so that decoders are made only once."""

    known: dict[Resource, type[Thin]] = field(default_factory=dict)

    def of(self, resource: Resource) -> type[Thin]:
        """Return the type for objects of this resource."""
        kind = self.known.get(resource)
        if kind is None:
            made = msgspec.defstruct(
                f"Thin{resource.kind}",
                [],
                bases=(Thin,),
                namespace={"resource": resource},
                frozen=True,
                kw_only=True,
            )
            kind = self.known[resource] = cast("type[Thin]", made)
        return kind


@dataclass(frozen=True, slots=True)
class Served:
    """One kind that the API serves in its preferred version, and what can be done with it."""

    resource: Resource
    verbs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Discovery:
    """All kinds that were found, the versions of each group, and which group versions could not be read."""

    kinds: tuple[Served, ...] = ()
    versions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def find(self, api_version: str, kind: str) -> Resource | None:
        """Return where objects of this kind are found; None when this version of it is not served."""
        group, _, version = api_version.rpartition("/")
        if version not in self.versions.get(group, ()):
            return None
        found = (each.resource for each in self.kinds)
        return next((one for one in found if (one.group, one.kind) == (group, kind)), None)


async def discover(client: Client) -> Discovery:
    """Read what is served; a group that cannot be read is named and does not hide the others."""
    versions: dict[str, tuple[str, ...]] = {"": ("v1",)}
    preferred = {"": "v1"}
    for group in (await client.read_wire("/apis"))["groups"]:
        versions[group["name"]] = tuple(each["version"] for each in group["versions"])
        preferred[group["name"]] = group["preferredVersion"]["version"]
    kinds: list[Served] = []
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


def _kinds(group: str, version: str, entries: list[dict[str, Any]]) -> list[Served]:
    return [
        Served(
            Resource(group, version, each["kind"], each["name"], namespaced=each["namespaced"]),
            frozenset(each["verbs"]),
        )
        for each in entries
        if "/" not in each["name"]
    ]
