"""Revisions of a Deployment: which ReplicaSet has which template, and the revision numbers for a rollback. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bramley.api.apps import Deployment, ReplicaSet, Template
from bramley.apiserver.controllers.deployments.replica_counts import DESIRED, MAX, by_age, max_surge
from bramley.apiserver.controllers.replica_sets import controller_ref

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Not copied from a Deployment to its ReplicaSets.
_NOT_COPIED = frozenset(
    {_LAST_APPLIED, REVISION, HISTORY, DESIRED, MAX, "deprecated.deployment.rollback.to"}
)
_MAX_NAME_LENGTH = 253
_MAX_HISTORY_LENGTH = 2000
# Letters and digits that cannot form words.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def plain(template: Template) -> Template:
    """Return a template without what a ReplicaSet adds to it, for comparison."""
    meta = {
        key: value
        for key, value in (template.get("metadata") or {}).items()
        if value and key != "creationTimestamp"
    }
    labels = {key: value for key, value in meta.pop("labels", {}).items() if key != HASH_LABEL}
    plain_meta = {**meta, **({"labels": labels} if labels else {})}
    return {**template, "metadata": plain_meta}


def template_hash(template: Template, collisions: int | None) -> str:
    """Return the hash of a template and the number of collisions so far."""
    text = msgspec.json.encode([plain(template), collisions or 0], order="deterministic")
    number = int.from_bytes(hashlib.blake2s(text, digest_size=6).digest())
    letters = []
    for _ in range(10):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return "".join(letters)


def find_new_replica_set(deployment: Deployment, sets: Sequence[ReplicaSet]) -> ReplicaSet | None:
    """Return the ReplicaSet of the Deployment's current template, the oldest if there are several."""
    desired = plain(deployment.spec.template)
    hash_of_template = template_hash(deployment.spec.template, deployment.status.collision_count)
    aged = by_age(sets)
    same = (each for each in aged if plain(each.spec.template) == desired)
    # A server may default a ReplicaSet's template differently; then the label with the hash identifies it.
    made = (each for each in aged if each.metadata.labels.get(HASH_LABEL) == hash_of_template)
    return next(same, None) or next(made, None)


def revision_of(owner: Deployment | ReplicaSet) -> int:
    """Return the revision number, or zero if there is none."""
    text = owner.metadata.annotations.get(REVISION, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def next_revision(olds: Sequence[ReplicaSet]) -> int:
    """Return the revision number that follows these."""
    return max((revision_of(each) for each in olds), default=0) + 1


def desired_annotations(
    deployment: Deployment, revision: int, existing: ReplicaSet | None
) -> dict[str, str]:
    """Return the desired annotations of the new ReplicaSet."""
    desired = deployment.metadata.annotations
    copied = {key: value for key, value in desired.items() if key not in _NOT_COPIED}
    if existing is None:
        return {**copied, REVISION: str(revision), **size_annotations(deployment)}
    current = existing.metadata.annotations
    result = {**current, **copied}
    before = revision_of(existing)
    if before < revision:
        result[REVISION] = str(revision)
        if before:
            result[HISTORY] = _with_history(current.get(HISTORY, ""), str(before))
    return result


def _with_history(history: str, before: str) -> str:
    numbers = [each for each in history.split(",") if each]
    numbers.append(before)
    while len(",".join(numbers)) > _MAX_HISTORY_LENGTH:
        numbers.pop(0)
    return ",".join(numbers)


def size_annotations(deployment: Deployment) -> dict[str, str]:
    """Return the annotations with the Deployment's size for which a ReplicaSet was scaled."""
    desired = deployment.spec.replicas
    return {DESIRED: str(desired), MAX: str(desired + max_surge(deployment))}


def body(deployment: Deployment, *, revision: int, replicas: int) -> dict[str, Any]:
    """Return the ReplicaSet of the current template as JSON."""
    hash_of_template = template_hash(deployment.spec.template, deployment.status.collision_count)
    template = deployment.spec.template
    meta: Mapping[str, Any] = template.get("metadata") or {}
    labels = {**(meta.get("labels") or {}), HASH_LABEL: hash_of_template}
    selector = msgspec.to_builtins(deployment.spec.selector)
    selector["matchLabels"] = {**selector.get("matchLabels", {}), HASH_LABEL: hash_of_template}
    prefix = deployment.name[: _MAX_NAME_LENGTH - len(hash_of_template) - 1]
    return {
        "apiVersion": ReplicaSet.resource.api_version,
        "kind": ReplicaSet.resource.kind,
        "metadata": {
            "name": f"{prefix}-{hash_of_template}",
            "labels": labels,
            "annotations": desired_annotations(deployment, revision, None),
            "ownerReferences": [controller_ref.controller_ref_wire(deployment)],
        },
        "spec": {
            "replicas": replicas,
            "minReadySeconds": deployment.spec.min_ready_seconds,
            "selector": selector,
            "template": {**template, "metadata": {**meta, "labels": labels}},
        },
    }


def beyond_history_limit(deployment: Deployment, olds: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """Return the old ReplicaSets beyond the history limit, except those with Pods."""
    limit = deployment.spec.revision_history_limit
    if limit is None:
        return []
    alive = [each for each in olds if not each.deleting]
    extra = len(alive) - limit
    if extra <= 0:
        return []
    ranked = sorted(alive, key=lambda each: (revision_of(each), by_age(alive).index(each)))
    return [
        each
        for each in ranked[:extra]
        if not each.spec.replicas
        and not each.status.replicas
        and each.metadata.generation <= each.status.observed_generation
    ]
