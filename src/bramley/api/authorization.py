"""SubjectAccessReview: asking the API server whether somebody may do something."""

from __future__ import annotations

from typing import ClassVar

from bramley.api.meta import Fields, Object, Resource

GROUP = "authorization.k8s.io"


class ResourceAttributes(Fields, frozen=True, kw_only=True):
    """What somebody wants to do with which resource."""

    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class SubjectAccessReviewSpec(Fields, frozen=True, kw_only=True):
    """Who wants to do what."""

    user: str = ""
    groups: list[str] = []
    uid: str = ""
    extra: dict[str, list[str]] = {}
    resource_attributes: ResourceAttributes | None = None


class SubjectAccessReviewStatus(Fields, frozen=True, kw_only=True):
    """The answer."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""


class SubjectAccessReview(Object, frozen=True, kw_only=True):
    """A question about rights; it is answered and never stored."""

    resource: ClassVar[Resource] = Resource(
        GROUP, "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
    )

    spec: SubjectAccessReviewSpec = SubjectAccessReviewSpec()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()
