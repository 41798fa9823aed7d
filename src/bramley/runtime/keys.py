"""The name of one object of a known kind: what queues hold and caches look up."""

from __future__ import annotations

from typing import NamedTuple

from bramley.api.meta import Object


class Key(NamedTuple):
    """Namespace and name; the namespace of a cluster-wide object is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def key_of(obj: Object) -> Key:
    """Return the key of an object."""
    metadata = obj.metadata
    return Key(metadata.namespace or "", metadata.name)
