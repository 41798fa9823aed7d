"""TokenRequest and TokenReview: minting a ServiceAccount's token, and asking who a token belongs to.

Tokens never show in a repr.
"""

from __future__ import annotations

from typing import ClassVar

from bramley.api.meta import Fields, Object, Resource, Time

GROUP = "authentication.k8s.io"


class BoundObjectReference(Fields, frozen=True, kw_only=True):
    """The object that a token dies with."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class TokenRequestSpec(Fields, frozen=True, kw_only=True):
    """For whom a token is good, how long and bound to what."""

    audiences: list[str] | None = None
    expiration_seconds: int | None = None
    bound_object_ref: BoundObjectReference | None = None


class TokenRequestStatus(Fields, frozen=True, kw_only=True):
    """The minted token and its end."""

    token: str = ""
    expiration_timestamp: Time | None = None

    def __repr__(self) -> str:
        return f"TokenRequestStatus(expiration_timestamp={self.expiration_timestamp!r})"


class TokenRequest(Object, frozen=True, kw_only=True):
    """A wish for a token; it exists only as the `token` subresource of a ServiceAccount."""

    resource: ClassVar[Resource] = Resource(
        GROUP, "v1", "TokenRequest", "tokenrequests", namespaced=True
    )

    spec: TokenRequestSpec = TokenRequestSpec()
    status: TokenRequestStatus = TokenRequestStatus()


class TokenReviewSpec(Fields, frozen=True, kw_only=True):
    """The token in question and the audiences we answer for."""

    token: str = ""
    audiences: list[str] = []

    def __repr__(self) -> str:
        return f"TokenReviewSpec(audiences={self.audiences!r})"


class UserInfo(Fields, frozen=True, kw_only=True):
    """Who a token belongs to."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str] | None] = {}


class TokenReviewStatus(Fields, frozen=True, kw_only=True):
    """The answer: whether the token is good, whose it is and for whom."""

    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: list[str] = []
    error: str = ""


class TokenReview(Object, frozen=True, kw_only=True):
    """A question about a token; it is answered and never stored."""

    resource: ClassVar[Resource] = Resource(
        GROUP, "v1", "TokenReview", "tokenreviews", namespaced=False
    )

    spec: TokenReviewSpec = TokenReviewSpec()
    status: TokenReviewStatus = TokenReviewStatus()
