"""TokenRequest and TokenReview: issue a ServiceAccount's token, and authenticate a token.

Tokens are not part of any repr.
"""

from __future__ import annotations

from typing import ClassVar

from bramley.api.meta import Fields, Object, Resource, Time

GROUP = "authentication.k8s.io"


class BoundObjectReference(Fields, frozen=True, kw_only=True):
    """The object that a token is bound to; the token becomes invalid with it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class TokenRequestSpec(Fields, frozen=True, kw_only=True):
    """Audiences, lifetime and bound object of a token."""

    audiences: list[str] | None = None
    expiration_seconds: int | None = None
    bound_object_ref: BoundObjectReference | None = None


class TokenRequestStatus(Fields, frozen=True, kw_only=True):
    """The issued token and its expiry."""

    token: str = ""
    expiration_timestamp: Time | None = None

    def __repr__(self) -> str:
        return f"TokenRequestStatus(expiration_timestamp={self.expiration_timestamp!r})"


class TokenRequest(Object, frozen=True, kw_only=True):
    """A request for a token; it exists only as the `token` subresource of a ServiceAccount."""

    resource: ClassVar[Resource] = Resource(
        GROUP, "v1", "TokenRequest", "tokenrequests", namespaced=True
    )

    spec: TokenRequestSpec = TokenRequestSpec()
    status: TokenRequestStatus = TokenRequestStatus()


class TokenReviewSpec(Fields, frozen=True, kw_only=True):
    """The token to authenticate and the accepted audiences."""

    token: str = ""
    audiences: list[str] = []

    def __repr__(self) -> str:
        return f"TokenReviewSpec(audiences={self.audiences!r})"


class UserInfo(Fields, frozen=True, kw_only=True):
    """The user that a token belongs to."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str] | None] = {}


class TokenReviewStatus(Fields, frozen=True, kw_only=True):
    """The result: whether the token is valid, its user and its audiences."""

    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: list[str] = []
    error: str = ""


class TokenReview(Object, frozen=True, kw_only=True):
    """The authentication of a token; it is never stored."""

    resource: ClassVar[Resource] = Resource(
        GROUP, "v1", "TokenReview", "tokenreviews", namespaced=False
    )

    spec: TokenReviewSpec = TokenReviewSpec()
    status: TokenReviewStatus = TokenReviewStatus()
