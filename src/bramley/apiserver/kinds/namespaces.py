"""Namespaces: their name as a label, their phase, and the finalizer that stands for their contents."""

from __future__ import annotations

from bramley.apiserver.registry.resources import Json

NAME_LABEL = "kubernetes.io/metadata.name"
_CONTENTS = "kubernetes"


def complete(new: Json) -> None:
    """Make a new namespace active and held by its contents."""
    spec = new.setdefault("spec", {})
    finalizers = spec.get("finalizers", [])
    if _CONTENTS not in finalizers:
        spec["finalizers"] = [*finalizers, _CONTENTS]
    new["status"] = {"phase": "Active"}


def default(new: Json) -> None:
    """Keep the label that says the name."""
    meta = new["metadata"]
    if meta.get("name") and meta.get("labels", {}).get(NAME_LABEL) != meta["name"]:
        meta["labels"] = {**meta.get("labels", {}), NAME_LABEL: meta["name"]}


def keep(new: Json, old: Json) -> None:
    """Leave the finalizers of the contents to those who remove the contents."""
    kept = {key: value for key, value in new.get("spec", {}).items() if key != "finalizers"}
    if "finalizers" in old.get("spec", {}):
        kept["finalizers"] = old["spec"]["finalizers"]
    new["spec"] = kept


def is_held(new: Json) -> bool:
    """Tell whether contents are still to be removed."""
    return bool(new.get("spec", {}).get("finalizers"))
