"""What all kinds have in common: resource, metadata, owner references, conditions.

`Object` is the base of every top-level kind; its `resource` is its path in the API. Items of a list have no apiVersion and kind,
so these two are not fields: `to_wire` adds them when an object is created. Kubernetes has two types of times: `Time` (in seconds)
and `MicroTime` (exactly six fraction digits, otherwise Go rejects it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, NewType, TypeVar

import msgspec
from msgspec import Meta

Time = Annotated[datetime, Meta(tz=True)]
"""Kubernetes' metav1.Time; a value without a time zone is rejected."""

MicroTime = NewType("MicroTime", str)
"""Kubernetes' metav1.MicroTime, kept in its wire format; see `micro_time` and `moment`."""

# A server does not validate the format of numbers, and Go's int32 has this maximum.
MAX_INT32 = 2**31 - 1
Int32 = Annotated[int, Meta(extra_json_schema={"format": "int32"})]
Int64 = Annotated[int, Meta(extra_json_schema={"format": "int64"})]
Count = Annotated[Int32, Meta(ge=0, le=MAX_INT32)]

ConditionStatus = Literal["True", "False", "Unknown"]


def micro_time(when: datetime) -> MicroTime:
    """Return the time with exactly six fraction digits, as Go's MicroTime parser requires."""
    return MicroTime(f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z")


def moment(text: MicroTime) -> datetime:
    """Parse a MicroTime."""
    return msgspec.convert(text, Time)


@dataclass(frozen=True, slots=True)
class Resource:
    """The resource of a kind in the API."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """Return `group/version`, or the bare version for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """Return the path prefix of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the path of the collection, of one object or of one of its subresources."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        parts.extend(part for part in (name, subresource) if part)
        return "/".join(parts)


# Frozen trees of JSON cannot form cycles, so they are excluded from garbage collection: traversing 10,000 cached objects would
# take as long as decoding them.
class Fields(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """Base of every part of an object: immutable, camelCase on the wire, defaults omitted."""


class OwnerReference(Fields, frozen=True, kw_only=True):
    """The owner of this object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Fields, frozen=True, kw_only=True):
    """Identity, labels and life cycle of an object."""

    name: str = ""
    generate_name: str | None = None
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class Object(Fields, frozen=True, kw_only=True):
    """Base of every top-level kind."""

    resource: ClassVar[Resource]

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        """Return the object's name."""
        return self.metadata.name

    @property
    def namespace(self) -> str | None:
        """Return the object's namespace; None for cluster-wide kinds."""
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        """Return the id that is unique over time."""
        return self.metadata.uid

    @property
    def deleting(self) -> bool:
        """Return whether the object is being deleted."""
        return self.metadata.deletion_timestamp is not None


K = TypeVar("K", bound=Object)


class Condition(Fields, frozen=True, kw_only=True):
    """One observed condition of an object: its status, since when and why."""

    type: Annotated[str, Meta(description="The type of the condition, in CamelCase.")]
    status: Annotated[
        ConditionStatus,
        Meta(description="Whether the condition is true; Unknown if that cannot be determined."),
    ]
    reason: Annotated[str, Meta(description="The reason as one CamelCase word, for programs.")] = ""
    message: Annotated[str, Meta(description="The reason as a sentence, for people.")] = ""
    last_transition_time: Annotated[
        Time | None, Meta(description="When the status last changed.")
    ] = None
    observed_generation: Annotated[
        Int64 | None, Meta(description="The generation of the object that this was observed on.")
    ] = None


def to_wire(instance: Object) -> dict[str, Any]:
    """Return the object as plain JSON values with its apiVersion and kind, ready to be created."""
    body: Mapping[str, Any] = msgspec.to_builtins(instance)
    return {"apiVersion": instance.resource.api_version, "kind": instance.resource.kind, **body}
