"""Pods as the rule sees them: where they are bound, and their specs whole, because a reference can stand anywhere in them."""

from __future__ import annotations

from typing import Any, ClassVar

from bramley.access import references
from bramley.access.references import References
from bramley.api.core import Pod
from bramley.api.meta import Object, Resource

# Selects the Pods that are bound to some Node.
BOUND = "spec.nodeName!="


class BoundPod(Object, frozen=True, kw_only=True):
    """A Pod with its spec as plain JSON."""

    resource: ClassVar[Resource] = Pod.resource

    spec: dict[str, Any] = {}

    @property
    def node(self) -> str:
        """Return the Node that the Pod is bound to; empty when to none."""
        return str(self.spec.get("nodeName") or "")

    @property
    def needed(self) -> tuple[str, str, References]:
        """Return namespace, name and references, as `roles.needs` takes them."""
        return self.namespace or "", self.name, references.of_spec(self.spec)
