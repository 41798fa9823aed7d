"""SubjectAccessReview: asks the API server whether a user is authorized for an action."""

from __future__ import annotations

from typing import ClassVar

from bramley.api.meta import Fields, Object, Resource

GROUP = "authorization.k8s.io"


class ResourceAttributes(Fields, frozen=True, kw_only=True):
    """The verb and the resource to authorize."""

    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class SubjectAccessReviewSpec(Fields, frozen=True, kw_only=True):
    """The user and the action to authorize."""

    user: str = ""
    groups: list[str] = []
    uid: str = ""
    extra: dict[str, list[str]] = {}
    resource_attributes: ResourceAttributes | None = None


class SubjectAccessReviewStatus(Fields, frozen=True, kw_only=True):
    """The decision."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""


class SubjectAccessReview(Object, frozen=True, kw_only=True):
    """The authorization of one action; it is never stored."""

    resource: ClassVar[Resource] = Resource(
        GROUP, "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
    )

    spec: SubjectAccessReviewSpec = SubjectAccessReviewSpec()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()
