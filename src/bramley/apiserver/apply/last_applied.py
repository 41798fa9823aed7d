"""The annotation of client-side apply, which kubectl's own server-side apply takes over and keeps up to date.

Only for the manager `kubectl`: what it applied from the client before is its own, so that going over to the server is no
conflict.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bramley.apiserver.apply import checking, sets, values
from bramley.apiserver.apply.merging import Kind
from bramley.apiserver.apply.sets import FieldSet

Json = dict[str, Any]

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"


def allowed(live: Json, manager: str, kind: Kind) -> FieldSet:
    """Return the fields that kubectl applied from the client and nobody has changed since."""
    config = _config(live) if manager == _KUBECTL else None
    if config is None or config.get("apiVersion") != kind.version:
        return sets.EMPTY
    if checking.complaint(config, kind.schema) is not None:
        return sets.EMPTY
    compared = values.compare(config, live, kind.schema)
    mine = values.fields_of(config, kind.schema)
    return mine - compared.modified - compared.added - compared.removed


def renewed(new: Json, config: Json, manager: str) -> Json:
    """Return the object with the annotation, if it has one, saying what kubectl applies now."""
    if manager != _KUBECTL or not _text(new):
        return new
    metadata = dict(config.get("metadata") or {})
    annotations = {
        key: each for key, each in (metadata.get("annotations") or {}).items() if key != ANNOTATION
    }
    if "annotations" in metadata:
        metadata["annotations"] = annotations
    written = msgspec.json.encode({**config, "metadata": metadata}, order="sorted").decode()
    own = new["metadata"]
    kept = {**own["annotations"], ANNOTATION: f"{written}\n"}
    return {**new, "metadata": {**own, "annotations": kept}}


def _text(body: Json) -> str:
    annotations = body["metadata"].get("annotations") or {}
    return str(annotations.get(ANNOTATION) or "")


def _config(live: Json) -> Json | None:
    try:
        found = msgspec.json.decode(_text(live) or "null")
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None
