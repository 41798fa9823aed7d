"""ValidatingAdmissionPolicy and its binding: rules about writes that the API server itself enforces.

Their specs stay plain JSON, because one policy is shipped as a whole and none is read.
"""

from __future__ import annotations

from typing import Any, ClassVar

from bramley.api.meta import Object, Resource

GROUP = "admissionregistration.k8s.io"


class ValidatingAdmissionPolicy(Object, frozen=True, kw_only=True):
    """Expressions that a write must satisfy."""

    resource: ClassVar[Resource] = Resource(
        GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False
    )

    spec: dict[str, Any] = {}


class ValidatingAdmissionPolicyBinding(Object, frozen=True, kw_only=True):
    """Enables a policy."""

    resource: ClassVar[Resource] = Resource(
        GROUP,
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        namespaced=False,
    )

    spec: dict[str, Any] = {}
