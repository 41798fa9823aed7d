"""Which ReplicaSet stands for which template, and the numbers that people roll back to. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bramley.api.apps import Deployment, ReplicaSet, Template
from bramley.apiserver.controllers.deployments.replica_counts import (
    DESIRED,
    MAX,
    by_age,
    max_surge,
)
from bramley.apiserver.controllers.replica_sets import controller_ref

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Neither copied from a Deployment to its ReplicaSets, nor back.
_OWN = frozenset(
    {_LAST_APPLIED, REVISION, HISTORY, DESIRED, MAX, "deprecated.deployment.rollback.to"}
)
_LONGEST_NAME = 253
_LONGEST_HISTORY = 2000
# Letters and digits that form no words.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def plain(template: Template) -> Template:
    """Return a template without what a ReplicaSet adds to it, for comparing."""
    meta = {
        key: value
        for key, value in (template.get("metadata") or {}).items()
        if value and key != "creationTimestamp"
    }
    labels = {key: value for key, value in meta.pop("labels", {}).items() if key != HASH_LABEL}
    whole = {**meta, **({"labels": labels} if labels else {})}
    return {**template, "metadata": whole}


def template_hash(template: Template, collisions: int | None) -> str:
    """Return a short name for a template; another one for each collision counted so far."""
    text = msgspec.json.encode([plain(template), collisions or 0], order="deterministic")
    number = int.from_bytes(hashlib.blake2s(text, digest_size=6).digest())
    letters = []
    for _ in range(10):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return "".join(letters)


def find_new(deployment: Deployment, sets: Sequence[ReplicaSet]) -> ReplicaSet | None:
    """Return the ReplicaSet of the Deployment's present template; of several the oldest."""
    wanted = plain(deployment.spec.template)
    named = template_hash(deployment.spec.template, deployment.status.collision_count)
    aged = by_age(sets)
    same = (each for each in aged if plain(each.spec.template) == wanted)
    # A server may complete a ReplicaSet's template differently; one that we made for this template is the one.
    made = (each for each in aged if each.metadata.labels.get(HASH_LABEL) == named)
    return next(same, None) or next(made, None)


def revision_of(thing: Deployment | ReplicaSet) -> int:
    """Return the number of a revision; nothing when it has none."""
    text = thing.metadata.annotations.get(REVISION, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def next_revision(olds: Sequence[ReplicaSet]) -> int:
    """Return the number of the present revision, after these."""
    return max((revision_of(each) for each in olds), default=0) + 1


def marks(deployment: Deployment, revision: int, existing: ReplicaSet | None) -> dict[str, str]:
    """Return the annotations that the present ReplicaSet shall have."""
    given = deployment.metadata.annotations
    copied = {key: value for key, value in given.items() if key not in _OWN}
    if existing is None:
        return {**copied, REVISION: str(revision), **sizes(deployment)}
    found = existing.metadata.annotations
    result = {**found, **copied}
    before = revision_of(existing)
    if before < revision:
        result[REVISION] = str(revision)
        if before:
            result[HISTORY] = _with_history(found.get(HISTORY, ""), str(before))
    return result


def _with_history(history: str, before: str) -> str:
    numbers = [each for each in history.split(",") if each]
    numbers.append(before)
    while len(",".join(numbers)) > _LONGEST_HISTORY:
        numbers.pop(0)
    return ",".join(numbers)


def sizes(deployment: Deployment) -> dict[str, str]:
    """Return the annotations that say for which size of the Deployment a ReplicaSet was scaled."""
    wanted = deployment.spec.replicas
    return {DESIRED: str(wanted), MAX: str(wanted + max_surge(deployment))}


def body(deployment: Deployment, *, revision: int, replicas: int) -> dict[str, Any]:
    """Return the ReplicaSet of the present template."""
    named = template_hash(deployment.spec.template, deployment.status.collision_count)
    template = deployment.spec.template
    meta: Mapping[str, Any] = template.get("metadata") or {}
    labels = {**(meta.get("labels") or {}), HASH_LABEL: named}
    selector = msgspec.to_builtins(deployment.spec.selector)
    selector["matchLabels"] = {**selector.get("matchLabels", {}), HASH_LABEL: named}
    room = _LONGEST_NAME - len(named) - 1
    return {
        "apiVersion": ReplicaSet.resource.api_version,
        "kind": ReplicaSet.resource.kind,
        "metadata": {
            "name": f"{deployment.name[:room]}-{named}",
            "labels": labels,
            "annotations": marks(deployment, revision, None),
            "ownerReferences": [controller_ref.owner_wire(deployment)],
        },
        "spec": {
            "replicas": replicas,
            "minReadySeconds": deployment.spec.min_ready_seconds,
            "selector": selector,
            "template": {**template, "metadata": {**meta, "labels": labels}},
        },
    }


def superfluous(deployment: Deployment, olds: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """Return the old ReplicaSets that nobody will roll back to; those with Pods stay."""
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
