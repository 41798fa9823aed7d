"""Authentication, impersonation and authorization of one request, in this order."""

from __future__ import annotations

from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.auth import impersonation
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.authenticator import Authenticator
from bramley.apiserver.auth.authorizer import Authorizer, refusal
from bramley.apiserver.http.exchange import Request


class AccessControl:
    """Sets a request's users and refuses what they may not do."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer

    def check(self, request: Request) -> Attributes | None:
        """Raise a 401 or 403; return the attributes that were authorized, None for `system:masters`, who may do everything."""
        request.sender = user = self._authenticator.identify(request)
        request.caller = user = impersonation.acting(
            user, request.scope["headers"], self._authorizer
        )
        if user.is_master:
            return None
        attributes = Attributes.of(user, request.info)
        self._authorizer.check(attributes)
        return attributes

    def check_master(self, request: Request) -> None:
        """Raise a 401 or 403 for everybody but `system:masters`, whatever roles grant."""
        attributes = self.check(request)
        if attributes is not None:
            raise refusal(attributes)

    def is_still_allowed(self, request: Request) -> bool:
        """Return whether a request that lasts would pass again: its credential is valid and its rights are unchanged."""
        try:
            self.check(request)
        except ApiError:
            return False
        return True
