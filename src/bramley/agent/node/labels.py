"""The Node's labels, taint and providerID: what they should be, and the smallest patch to it. Pure.

Every label below our own prefix belongs to the agent, so one that it does not say any more is removed; others are left alone.
A providerID is filled in where there is none, and never changed: Kubernetes does not allow it, and the machine behind it is
found by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bramley.agent.ledger.records import ImageRecord
from bramley.agent.settings import NodeSettings
from bramley.api.core import Node, Taint
from bramley.api.names import labels

TAINT = Taint(key=labels.MACOS_TAINT, value=labels.MACOS_TAINT_VALUE, effect=labels.NO_SCHEDULE)


def wanted(settings: NodeSettings, images: Sequence[ImageRecord]) -> dict[str, str]:
    """Return all labels that the agent says; what it is outweighs what it was told."""
    intrinsic = {
        labels.OS: labels.DARWIN,
        labels.ARCH: labels.ARM64,
        labels.HOSTNAME: settings.name,
        labels.RUNTIME: labels.RUNTIME_TART,
    }
    return {**settings.labels, **golden(images), **intrinsic}


def golden(images: Sequence[ImageRecord]) -> dict[str, str]:
    """Return a label for each reference whose golden base is on disk: schedulers know an image by its reference."""
    return {
        labels.golden(reference): labels.TRUE
        for image in images
        if image.golden
        for reference in image.references
    }


def patch(node: Node, settings: NodeSettings, images: Sequence[ImageRecord]) -> dict[str, Any]:
    """Return what has to change in metadata and spec; empty when nothing has to."""
    changes: dict[str, Any] = {}
    if differing := _labels(node.metadata.labels, wanted(settings, images)):
        changes["metadata"] = {"labels": differing}
    spec: dict[str, Any] = {}
    if settings.provider_id and not node.spec.provider_id:
        spec["providerID"] = settings.provider_id
    if all(taint.key != TAINT.key for taint in node.spec.taints):
        spec["taints"] = msgspec.to_builtins([*node.spec.taints, TAINT])
    if spec:
        changes["spec"] = spec
    return changes


def _labels(there: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    missing: dict[str, str | None] = {
        key: value for key, value in wanted.items() if there.get(key) != value
    }
    stale = {key: None for key in there if key.startswith(labels.PREFIX) and key not in wanted}
    return missing | stale
