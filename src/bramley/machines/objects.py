"""What the controllers share: owner references, pauses, and writes of one exact object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from bramley.api import conditions
from bramley.api.cluster_api import Cluster
from bramley.api.core import Pod
from bramley.api.label_selectors import LabelSelector
from bramley.api.mac_status import MachineCondition
from bramley.api.meta import ConditionStatus, Fields, K, Object, OwnerReference
from bramley.api.names import annotations as annotation_names
from bramley.base import errors, log
from bramley.kube.client import Client
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)


def owner_reference(owner: Object, *, controller: bool = True) -> OwnerReference:
    """Return a reference to an owner."""
    return OwnerReference(
        api_version=owner.resource.api_version,
        kind=owner.resource.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True if controller else None,
        block_owner_deletion=True if controller else None,
    )


def controller_uids(obj: Object) -> list[str]:
    """Return the uid of an object's controller, for an index."""
    return [ref.uid for ref in obj.metadata.owner_references if ref.controller]


def ownership_patch(
    obj: Object, owner: OwnerReference, labels: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the patch that adds an owner and labels; None if the object has them, or another controller."""
    references = obj.metadata.owner_references
    others = [each for each in references if each.uid != owner.uid]
    if owner.controller and any(each.controller for each in others):
        return None
    missing = {key: value for key, value in labels.items() if obj.metadata.labels.get(key) != value}
    if len(others) < len(references) and not missing:
        return None
    wire = [msgspec.to_builtins(each) for each in (*others, owner)]
    return {"metadata": {"ownerReferences": wire, "labels": missing}}


@dataclass(frozen=True, slots=True)
class Pauses:
    """Whether objects are to be left alone."""

    clusters: Cache[Cluster]

    def cluster_of(self, obj: Object, cluster_name: str) -> Cluster | None:
        """Return the Cluster of an object."""
        return self.clusters.find(Key(obj.namespace or "", cluster_name))

    def has(self, obj: Object, cluster_name: str) -> bool:
        """Return whether an object is paused, by its own annotation or with its Cluster, or lacks a Cluster."""
        cluster = self.cluster_of(obj, cluster_name)
        return cluster is None or is_paused(obj, cluster)


def is_paused(obj: Object, cluster: Cluster | None) -> bool:
    """Return whether an object is paused by its own annotation, or by its Cluster."""
    by_cluster = cluster is not None and cluster.spec.paused
    return by_cluster or annotation_names.PAUSED in obj.metadata.annotations


def put_condition(
    current: Sequence[MachineCondition],
    type: str,
    problem: str = "",
    *,
    message: str = "",
    severity: str = "Info",
    status: ConditionStatus = "False",
    now: datetime,
) -> list[MachineCondition]:
    """Return the conditions with this one, which is true without a problem."""
    if not problem:
        return conditions.put(current, MachineCondition(type=type, status="True"), now=now)
    fields = {"type": type, "status": status, "reason": problem, "message": message}
    condition = msgspec.convert({**fields, "severity": severity}, MachineCondition)
    return conditions.put(current, condition, now=now)


def selector_text(selector: LabelSelector) -> str:
    """Return a selector's required labels as `kubectl` and autoscalers write them."""
    return ",".join(f"{key}={value}" for key, value in sorted(selector.match_labels.items()))


async def patch(
    kube: FencedKube, obj: K, body: Mapping[str, Any], *, subresource: str | None = None
) -> K:
    """Merge a patch into exactly this version of an object."""
    meta = obj.metadata
    return await kube.merge_patch(
        type(obj),
        meta.name,
        body,
        namespace=meta.namespace,
        subresource=subresource,
        resource_version=meta.resource_version,
        uid=meta.uid,
    )


def status_wire(status: Fields) -> dict[str, Any]:
    """Return a status for a merge patch that removes the fields without a value."""
    fields = {each.encode_name: None for each in msgspec.structs.fields(type(status))}
    return {**fields, **msgspec.to_builtins(status)}


async def report(
    kube: FencedKube, obj: Object, status: Fields, *, always: Iterable[str] = ()
) -> None:
    """Write a status that differs from the object's own; zeros are removed unless they are `always` written."""
    if status == getattr(obj, "status", None):
        return
    meta = obj.metadata
    wire = {**status_wire(status), **dict.fromkeys(always, 0), **msgspec.to_builtins(status)}
    with suppress(errors.NotFound):
        await kube.merge_patch(
            type(obj),
            meta.name,
            {"status": wire},
            namespace=meta.namespace,
            subresource="status",
            uid=meta.uid,
        )


def is_older(obj: Object, other: Object) -> bool:
    """Return whether an object was there before another one."""
    first, second = obj.metadata.creation_timestamp, other.metadata.creation_timestamp
    if first is None or second is None or first == second:
        return obj.uid < other.uid
    return first < second


async def evict(kube: FencedKube, client: Client, pod: Pod) -> None:
    """Evict a Pod; an eviction that is refused is repeated by the caller."""
    # The plain client does not check whether this process still leads.
    kube.check()
    try:
        await client.evict(pod.name, pod.namespace or "", uid=pod.uid)
    except errors.RateLimited as error:
        logger.info("Eviction refused", pod=pod.name, reason=str(error))
    except (errors.NotFound, errors.Conflict):
        # Gone, or another Pod of the same name.
        return
